"""Lockstep: every worker waits for all updates of a step and applies them in slot order, so replicas stay equal.

Updates are exchanged in one of three patterns (LambdaML, section 3.2.3, has the last two). Broadcast: each worker reads
every peer's frame. Scatter-reduce: each worker merges one range of rows, and reads the other merged ranges. AllReduce:
the first active worker, the leader, reads and merges all frames, and the others read the sum. The last two add the
updates in slot order, and then their sum to the parameters; broadcast adds one after the other to the parameters.
"""

from __future__ import annotations

from ..stats import Stats, told
from .base import CompletedRound, RoundPolicy, Step, register_policy


@register_policy("lockstep")
class Lockstep(RoundPolicy):
    """The rounds of one worker that waits for all updates of every step."""

    def exchange(self, step: Step) -> list[CompletedRound]:
        """See `RoundPolicy`."""
        n_active, exchange = len(step.active), self._broadcast
        if self.scatters(n_active):
            exchange = self._scatter_reduce
        elif self.has_leader and n_active > 1:
            exchange = self._all_reduce if step.slot == step.active[0] else self._follow
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

    def _all_reduce(self, step: Step) -> Stats:
        """The leader's part in an AllReduce."""
        replica, leader = self.replica, [step.slot]
        own = replica.encode_parts(step.number, step.stats, leader)[step.slot]
        done = step.exchange(step.request(b"", parts={}))
        merged, sums = replica.merge_all(step.active, own, done.frames, step.number)
        step.learn(self.log.publish(step.request(merged, kind="m", publishers=leader)))
        replica.apply_merged(leader, merged, [])
        step.waited_s = done.complete_at - done.published_at
        step.merged_bytes = len(merged)
        return sums

    def _follow(self, step: Step) -> Stats:
        """The others' part in an AllReduce."""
        replica, leader = self.replica, step.active[:1]
        parts = replica.encode_parts(step.number, step.stats, leader)
        step.learn(self.log.publish(step.request(b"", parts=parts)))
        published_at, reading = self.clock(), step.request(b"", kind="m", publishers=leader)
        self.log.wait(reading, step.pay)
        step.waited_s = self.clock() - published_at
        frames = self.log.frames(reading)
        replica.apply_merged(leader, b"", frames)
        return told(frames[0])
