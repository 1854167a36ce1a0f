"""Lockstep: every worker waits for all updates of a step and applies them in slot order, so replicas stay equal."""

from __future__ import annotations

from ..stats import Stats
from .base import CompletedRound, RoundPolicy, Step, register_policy


@register_policy("lockstep")
class Lockstep(RoundPolicy):
    """With broadcast, each worker reads every peer's frame; with scatter-reduce, it merges one range of rows."""

    def exchange(self, step: Step) -> list[CompletedRound]:
        """See `RoundPolicy`."""
        exchange = self._scatter_reduce if self.scatters(len(step.active)) else self._broadcast
        return [CompletedRound(step.number, step.epoch, exchange(step))]

    def _broadcast(self, step: Step) -> Stats:
        frame = self.replica.encode(step.number, step.stats) if len(step.active) > 1 else b""
        done = step.exchange(step.request(frame))
        sums = self.replica.apply(done.slots, done.frames, step.stats)
        step.waited_s = done.complete_at - done.published_at
        return sums

    def _scatter_reduce(self, step: Step) -> Stats:
        replica, active = self.replica, step.active
        parts = replica.encode_parts(step.number, step.stats, active)
        own = parts.pop(step.slot)
        first = step.exchange(step.request(b"", parts=parts))
        merged, sums = replica.merge(active, own, first.frames, step.number)
        second = step.exchange(step.request(merged, kind="m"))
        replica.apply_merged(active, merged, second.frames)
        step.waited_s = sum(done.complete_at - done.published_at for done in (first, second))
        step.merged_bytes = len(merged)
        return sums
