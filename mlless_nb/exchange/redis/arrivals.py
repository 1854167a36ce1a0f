"""Arriving at a round on Redis: the script's command, and what its answer tells."""

from __future__ import annotations

import hashlib
import math
import time
from typing import Any

from ..protocol import Aborted, Arrival, Plan, RoundRequest

#: Seconds between two renewals of the TTL of the job's own keys, which is a day.
REFRESH_S = 600.0
#: A lease is renewed by an arrival once this share of it has passed, and is that much longer.
LEASE_SHARE = 1 / 8
GONE = "the run's data is gone from Redis (was it restarted or flushed?)"
FENCED = "this worker's slot was given to another invocation"


def called_off(text: bytes) -> Aborted:
    """The exception of a run that was called off, from what `abort` left: the status, a space, the reason."""
    status, _, reason = text.decode().partition(" ")
    return Aborted(reason, status)


def slots_from(text: bytes | None) -> list[int] | None:
    """The slots whose frames count, ascending, as the script tells them; None where that is everybody."""
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
        # When the lease and the TTLs were renewed, by slot; and by the arrival that is on its way.
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
        """What the script says; only now is what was sent known to be done."""
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
        """Commands that ask how the round and the run stand, and renew the lease."""
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
        """Whether the round is complete by the replies to `looking`, and whose frames count.

        Raises
        ------
        Aborted
            The run was called off, or its data is gone.
        """
        (generation, aborted), n_arrived, slots, _ = replies
        if generation is None:
            raise Aborted(GONE)
        if aborted is not None:
            raise called_off(aborted)
        return int(n_arrived) >= part.n_due, slots_from(slots)


def lease_ms(part: RoundRequest) -> int:
    """Milliseconds for which an arrival renews the lease."""
    return int(part.lease_s * (1 + LEASE_SHARE) * 1000)
