"""Arriving at a round on Redis, and catching up: the commands that run the scripts, and the decoding of replies."""

from __future__ import annotations

import hashlib
import math
import time
from typing import Any

from ..plan import Plan
from ..protocol import Arrival, Closing, RoundRequest
from ..restarts import Aborted, Fenced, LostData, Restart, Restarted, rounds_prefix

#: Seconds between two renewals of the TTL of the job's own keys, which is a day.
REFRESH_S = 600.0
#: An arrival renews a lease once this share of it has passed; leases are longer by the same share.
LEASE_SHARE = 1 / 8
GONE = "the run's data is gone from Redis (was it restarted or flushed?)"
FENCED = "this worker's slot was given to another invocation"
#: Most rounds that a worker which catches up is told of at once.
MOST_ROUNDS = 32


def aborted_of(text: bytes) -> Aborted:
    """The exception of an aborted run, from the text that `abort` stored: the status, a space, the reason."""
    status, _, reason = text.decode().partition(" ")
    return Aborted(reason, status)


def fence_of(generation: str, restart: Restart) -> str:
    """What a worker's rounds are checked against: the job's generation and the newest restart."""
    return " ".join(map(str, (generation, *restart)))


def restart_of(fence: bytes | None, generation: str) -> Restart:
    """The restart in a fence; raises `LostData` if there is none, or that of another generation."""
    of, *found = (fence or b"").decode().rsplit(" ", len(Restart._fields))
    if len(found) != len(Restart._fields) or of != generation:
        raise LostData(GONE)
    return Restart(*map(int, found))


def closing_of(slots: bytes, following: bytes | int) -> Closing | None:
    """How a round of a quorum ended, from a script's reply; None if it is not complete."""
    return Closing(sorted(map(int, slots.split(b","))), int(following)) if slots else None


class Arrivals:
    """The arrivals of one invocation.

    Parameters
    ----------
    prefix, generation, nonce : str
        See `RedisCoordinator`.
    script, catch_up_script : str
        The scripts that arrive at a round, and return the rounds that a late worker has missed.
    ttl_s : int
        Seconds that a key outlives its last use.
    """

    def __init__(self, prefix: str, generation: str, nonce: str, script: str, catch_up_script: str, ttl_s: int) -> None:
        self._prefix, self._generation, self._nonce = prefix, generation, nonce
        self._job = f"{prefix}job"
        self._known: dict[int, tuple[str, ...]] = {}  # keys and arguments that stay the same until a restart, by slot
        self.scripts = (script, catch_up_script)
        self._sha, self._catch_up_sha = (
            hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest() for text in self.scripts
        )
        self._ttl = str(ttl_s * 1000)
        # Times of the last renewal of lease and TTLs, by slot; and those that the arrival being sent would set.
        self._renewed: dict[int, tuple[float, float]] = {}
        self._renewing = (0.0, 0.0)
        self.join(Restart())

    def join(self, restart: Restart) -> None:
        """From now on arrive at the rounds of ``restart``."""
        self._fence, self._rounds = fence_of(self._generation, restart), rounds_prefix(self._prefix, restart)
        self._known.clear()
        self._renewed.clear()  # a server that has lost its data has new keys, without their TTLs

    def _known_of(self, slot: int) -> tuple[str, ...]:
        """The keys and arguments between those of a round, in the order of the script."""
        if slot not in self._known:
            names = "steps", f"lease:{slot}", f"claim:{slot}", "lease:supervisor", "wake"
            keys = [f"{self._prefix}{name}" for name in names]
            self._known[slot] = (*keys, self._rounds, self._fence, self._nonce)
        return self._known[slot]

    def command(self, part: RoundRequest) -> tuple[Any, ...]:
        """The command that arrives at a round."""
        now = time.monotonic()
        leased_at, refreshed_at = self._renewed.get(part.slot, (-math.inf, -math.inf))
        renews, refreshes = now - leased_at >= part.lease_s * LEASE_SHARE, now - refreshed_at >= REFRESH_S
        self._renewing = (now if renews else leased_at, now if refreshes else refreshed_at)
        rarely: tuple[int, ...] = (part.kept_steps,) if part.kept_steps != 2 else ()
        if part.quorum:
            rarely = part.kept_steps, part.most_late, *part.publishers
        return (
            "EVALSHA",
            self._sha,
            8,
            self._job,
            f"{self._rounds}arrivals:{part.round_id}",
            *self._known_of(part.slot),
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
        code, told, granted, text, *rest = (1, reply, 0, b"") if isinstance(reply, int) else reply
        if code != 1:
            raise self._refusal(code, text, part)
        self._renewed[part.slot] = self._renewing
        n_arrived, has_supervisor = divmod(told, 2)
        plan = Plan.decode(text) if text else None
        arrival = Arrival(n_arrived >= part.n_due, plan, granted, bool(has_supervisor))
        if rest:
            arrival = arrival._replace(closing=closing_of(*rest[:2]), read_step=rest[2])
        return arrival

    def _refusal(self, code: int, text: bytes, part: RoundRequest) -> Exception:
        """What a code other than 1 in a script's reply says: the run is over for this worker, or goes on elsewhere."""
        if code == -3:
            return aborted_of(text)
        if code == -4:
            return Aborted(f"worker {part.slot} is so late that round {part.round_id} is no longer kept")
        if code == -2:
            return Fenced(FENCED)
        return Restarted(restart_of(text, self._generation))

    def catching_up(self, part: RoundRequest) -> tuple[Any, ...]:
        """The command that asks for the complete rounds from that of ``part`` on."""
        prefix = self._prefix
        claim, supervisor = f"{prefix}claim:{part.slot}", f"{prefix}lease:supervisor"
        keys = (f"{prefix}job", f"{self._rounds}reached", claim, supervisor, self._rounds)
        known = (part.step, part.slot, self._ttl, part.known_plan, MOST_ROUNDS)
        return ("EVALSHA", self._catch_up_sha, len(keys), *keys, self._fence, self._nonce, *known)

    def caught_up(self, reply: Any, part: RoundRequest) -> tuple[Arrival, list[Closing]]:
        """The answer and the complete rounds, from the reply to `catching_up`."""
        code, has_supervisor, text, *rest = reply
        if code != 1:
            raise self._refusal(code, text, part)
        found = [closing_of(slots, following) for slots, following in zip(rest[::2], rest[1::2], strict=True)]
        plan = Plan.decode(text) if text else None
        return Arrival(False, plan, 0, bool(has_supervisor)), [one for one in found if one is not None]

    def polling(self, part: RoundRequest) -> list[tuple[Any, ...]]:
        """Commands that read the state of the round and the run, and renew the lease."""
        prefix = self._prefix
        return [
            ("HMGET", f"{prefix}job", "fence", "abort"),
            ("HLEN", f"{self._rounds}arrivals:{part.round_id}"),
            ("SET", f"{prefix}lease:{part.slot}", self._nonce, "PX", lease_ms(part)),
        ]

    def seen(self, replies: list[Any], part: RoundRequest) -> bool:
        """Whether the round is complete, from the replies to `polling`.

        Raises
        ------
        Aborted
            The run was aborted, or its data was lost.
        Restarted
            The run goes on from a checkpoint.
        """
        (fence, aborted), n_arrived, _ = replies
        if fence != self._fence.encode():
            raise Restarted(restart_of(fence, self._generation))
        if aborted is not None:
            raise aborted_of(aborted)
        return int(n_arrived) >= part.n_due


def lease_ms(part: RoundRequest) -> int:
    """Duration of a lease that an arrival renews, milliseconds."""
    return int(part.lease_s * (1 + LEASE_SHARE) * 1000)
