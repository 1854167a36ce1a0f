"""Arriving at a round on Redis: the command that runs the script, and the decoding of its reply."""

from __future__ import annotations

import hashlib
import math
import time
from typing import Any

from ..protocol import Aborted, Arrival, Plan, RoundRequest

#: Seconds between two renewals of the TTL of the job's own keys, which is a day.
REFRESH_S = 600.0
#: An arrival renews a lease once this share of it has passed; leases are longer by the same share.
LEASE_SHARE = 1 / 8
GONE = "the run's data is gone from Redis (was it restarted or flushed?)"
FENCED = "this worker's slot was given to another invocation"


def called_off(text: bytes) -> Aborted:
    """The exception of an aborted run, from the text that `abort` stored: the status, a space, the reason."""
    status, _, reason = text.decode().partition(" ")
    return Aborted(reason, status)


def slots_from(text: bytes | None) -> list[int] | None:
    """The slots whose frames count, ascending, from the script's reply; None if all count."""
    return sorted(map(int, text.split(b","))) if text else None


class Arrivals:
    """The arrivals of one invocation.

    Parameters
    ----------
    prefix, generation, nonce : str
        See `RedisCoordinator`.
    script : str
        The script that arrives at a round.
    ttl_s : int
        Seconds that a key outlives its last use.
    """

    def __init__(self, prefix: str, generation: str, nonce: str, script: str, ttl_s: int) -> None:
        self._prefix, self._generation, self._nonce = prefix, generation, nonce
        self.script, self._sha = script, hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
        self._ttl = str(ttl_s * 1000)
        # Times of the last renewal of lease and TTLs, by slot; and those that the arrival being sent would set.
        self._renewed: dict[int, tuple[float, float]] = {}
        self._renewing = (0.0, 0.0)

    def command(self, part: RoundRequest) -> tuple[Any, ...]:
        """The command that arrives at a round."""
        now, prefix = time.monotonic(), self._prefix
        leased_at, refreshed_at = self._renewed.get(part.slot, (-math.inf, -math.inf))
        renews, refreshes = now - leased_at >= part.lease_s * LEASE_SHARE, now - refreshed_at >= REFRESH_S
        self._renewing = (now if renews else leased_at, now if refreshes else refreshed_at)
        rarely = (part.kept_steps, *((1,) if part.quorum else ())) if part.kept_steps != 2 or part.quorum else ()
        return (
            "EVALSHA",
            self._sha,
            8,
            f"{prefix}job",
            f"{prefix}arrivals:{part.round_id}",
            f"{prefix}steps",
            f"{prefix}lease:{part.slot}",
            f"{prefix}claim:{part.slot}",
            f"{prefix}lease:supervisor",
            f"{prefix}wake",
            prefix,
            self._generation,
            self._nonce,
            part.round_id,
            part.step,
            part.slot,
            lease_ms(part) if renews else 0,
            self._ttl,
            b"" if part.report is None else part.report.encode(),
            part.wanted.nusd,
            part.wanted.least_nusd,
            part.known_plan,
            part.n_due,
            int(part.is_awaited),
            int(refreshes),
            *rarely,
        )

    def learnt(self, reply: Any, part: RoundRequest) -> Arrival:
        """The arrival from the script's reply. Only now is it certain that the renewals that were sent took effect."""
        code, told, granted, text, slots = (1, reply, 0, b"", b"") if isinstance(reply, int) else (*reply, b"")[:5]
        if code == -3:
            raise called_off(text)
        if code != 1:
            raise Aborted(FENCED if code == -2 else GONE)
        self._renewed[part.slot] = self._renewing
        n_arrived, has_supervisor = divmod(told, 2)
        plan = Plan.decode(text) if text else None
        return Arrival(n_arrived >= part.n_due, plan, granted, bool(has_supervisor), slots_from(slots))

    def looking(self, part: RoundRequest) -> list[tuple[Any, ...]]:
        """Commands that read the state of the round and the run, and renew the lease."""
        prefix = self._prefix
        arrivals = f"{prefix}arrivals:{part.round_id}"
        return [
            ("HMGET", f"{prefix}job", "generation", "abort"),
            ("HLEN", arrivals),
            ("HGET", arrivals, "slots"),
            ("SET", f"{prefix}lease:{part.slot}", self._nonce, "PX", lease_ms(part)),
        ]

    @staticmethod
    def seen(replies: list[Any], part: RoundRequest) -> tuple[bool, list[int] | None]:
        """Whether the round is complete, and the slots whose frames count, from the replies to `looking`.

        Raises
        ------
        Aborted
            The run was aborted, or its data was lost.
        """
        (generation, aborted), n_arrived, slots, _ = replies
        if generation is None:
            raise Aborted(GONE)
        if aborted is not None:
            raise called_off(aborted)
        return int(n_arrived) >= part.n_due, slots_from(slots)


def lease_ms(part: RoundRequest) -> int:
    """Duration of a lease that an arrival renews, milliseconds."""
    return int(part.lease_s * (1 + LEASE_SHARE) * 1000)
