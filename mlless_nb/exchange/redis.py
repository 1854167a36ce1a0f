"""The step log on Redis: frames sharded by slot over one or more servers, everything else on the first."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from importlib import resources
from typing import Any

import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from ..errors import ServiceError
from .base import LOOK_S, Aborted, Arrival, Exchanged, Frame, Plan, Round, StepEntry, exchange_in_parts
from .line import TRIES, Line

#: Seconds that a key outlives its last use, whatever happens to those who made it.
TTL_S = 86_400
GONE = "the run's data is gone from Redis (was it restarted or flushed?)"
#: JSON of a plan that nothing was announced in yet.
NO_PLAN = '{"version":0}'


def _script(name: str) -> str:
    return (resources.files(__package__) / f"{name}.lua").read_text("utf-8")


def connect(url: str) -> redis.Redis:
    """A client for ``url`` that retries a lost connection.

    Every command of ours is safe to repeat; a repeated `reserve` may take the money twice, which a cap can bear.
    """
    return redis.Redis.from_url(
        url,
        socket_timeout=15,
        socket_connect_timeout=5,
        retry=Retry(ExponentialBackoff(cap=0.5, base=0.02), 4),
        retry_on_error=[redis.ConnectionError, redis.TimeoutError],
    )


class RedisStepLog:
    """See `StepLog`. `exchange` and `read_steps` serve one thread, the rest any.

    Parameters
    ----------
    urls : list of str
        Redis URLs; the frames of ``slot`` are kept on number ``slot % len(urls)``.
    job_id : str
        Every key begins with ``mlless:{job_id}:``.
    generation : str
        Fences whoever belongs to an earlier life of the job.
    nonce : str
        Tells this invocation from a duplicate of it.
    """

    def __init__(self, urls: list[str], job_id: str, generation: str, nonce: str = "") -> None:
        self._shards = [connect(url) for url in urls]
        self._redis = self._shards[0]
        self._prefix = f"mlless:{job_id}:"
        self.generation, self._nonce = generation, nonce
        self._job = self._key("job")
        self._arrive = self._redis.register_script(_script("arrive"))
        self._announce = self._redis.register_script(_script("announce"))
        self._reserve = self._redis.register_script(_script("reserve"))
        self._abort = self._redis.register_script(_script("abort"))
        self._line = Line(self._redis)
        self._last_entry = "0-0"
        self._ttl_ms = TTL_S * 1000
        self._is_loaded = False
        self._kept: dict[tuple[int, int], dict[str, None]] = {}  # keys of frames by (slot, step)

    def _key(self, *parts: object) -> str:
        return self._prefix + ":".join(map(str, parts))

    def _shard(self, slot: int) -> redis.Redis:
        return self._shards[slot % len(self._shards)]

    def create(self, *, cap_nusd: int | None, reserved_nusd: int) -> None:
        """See `StepLog`."""
        self._redis.hset(
            self._job,
            mapping={
                "generation": self.generation,
                "cap": -1 if cap_nusd is None else cap_nusd,
                "reserved": reserved_nusd,
                "latest": 0,
                "version": 0,
                "plan": NO_PLAN,
            },
        )
        self._redis.expire(self._job, TTL_S)

    def delete(self) -> int:
        """See `StepLog`."""
        n_keys = 0
        for shard in self._shards:
            keys = list(shard.scan_iter(match=self._prefix + "*", count=1000))
            for first in range(0, len(keys), 500):
                n_keys += int(shard.unlink(*keys[first : first + 500]))
        return n_keys

    def close(self) -> None:
        """Release the connections. Idempotent."""
        self._line.close()
        for shard in self._shards:
            shard.close()

    def now_s(self) -> float:
        """See `StepLog`."""
        seconds, microseconds = self._redis.time()
        return float(seconds) + float(microseconds) * 1e-6

    def renew(self, role: str, lease_s: float) -> None:
        """See `StepLog`."""
        self._redis.set(self._key("lease", role), self._nonce or "1", px=int(lease_s * 1000))

    def alive(self, roles: list[str]) -> list[bool]:
        """See `StepLog`."""
        return [value is not None for value in self._redis.mget([self._key("lease", role) for role in roles])]

    def read_plan(self) -> Plan:
        """See `StepLog`."""
        return Plan.decode(self._redis.hget(self._job, "plan") or NO_PLAN)

    def announce_leave(self, slots: list[int]) -> Plan:
        """See `StepLog`."""
        return Plan.decode(self._announce(keys=[self._job], args=[self.generation, "leave", *slots]))

    def announce_stop(self, status: str, reason: str) -> Plan:
        """See `StepLog`."""
        return Plan.decode(self._announce(keys=[self._job], args=[self.generation, "stop", status, reason]))

    def abort(self, reason: str, n_workers: int, status: str = "failed") -> None:
        """See `StepLog`."""
        self._abort(keys=[self._job, self._prefix], args=[f"{status} {reason}", n_workers, self._ttl_ms])

    def aborted(self) -> tuple[str, str] | None:
        """See `StepLog`."""
        text = self._redis.hget(self._job, "abort")
        if text is None:
            return None
        status, _, reason = text.decode().partition(" ")
        return status, reason

    def money(self) -> tuple[int | None, int]:
        """See `StepLog`."""
        cap, reserved = self._redis.hmget(self._job, "cap", "reserved")
        if cap is None:
            raise Aborted(GONE)
        return (int(cap) if int(cap) >= 0 else None), int(reserved)

    def reserve(self, nusd: int) -> bool:
        """See `StepLog`."""
        return self._is_done(self._reserve(keys=[self._job], args=["reserve", nusd]))

    def refund(self, nusd: int, slot: int) -> None:
        """See `StepLog`."""
        self._reserve(keys=[self._job], args=["refund", nusd, slot])

    def set_cap(self, cap_nusd: int) -> bool:
        """See `StepLog`."""
        return self._is_done(self._reserve(keys=[self._job], args=["cap", cap_nusd]))

    @staticmethod
    def _is_done(reply: int) -> bool:
        if reply < 0:
            raise Aborted(GONE)
        return bool(reply)

    def claim(self, slot: int) -> bool:
        """See `StepLog`."""
        key = self._key("claim", slot)
        is_first = self._redis.set(key, self._nonce, nx=True, ex=TTL_S)
        return bool(is_first) or self._redis.get(key) == self._nonce.encode()

    def publish(self, part: Round) -> Arrival:
        """See `StepLog`."""
        arrive, shard = self._arrival(part), self._shard(part.slot)
        with shard.pipeline(transaction=False) as pipe:
            for command in self._storing(part):
                pipe.execute_command(*command)
            if shard is self._redis:
                pipe.execute_command(*arrive)
                reply = pipe.execute()[-1]
            else:
                pipe.execute()
                reply = self._redis.execute_command(*arrive)
        return self._learnt(reply, part)

    def _frame_key(self, round_id: str, slot: int, receiver: int | None) -> str:
        return self._key("frame", round_id, slot if receiver is None else f"{slot}>{receiver}")

    def _storing(self, part: Round) -> list[tuple[Any, ...]]:
        """Commands that keep the frames, and drop those that nobody needs any more."""
        # Not over again when repeated: a twin of this worker cannot replace what the others may have read already.
        commands: list[tuple[Any, ...]] = []
        kept = self._kept.setdefault((part.slot, part.step), {})
        for receiver, frame in part.outgoing.items():
            key = self._frame_key(part.round_id, part.slot, receiver)
            commands.append(("SET", key, frame, "NX", "PX", self._ttl_ms))
            kept[key] = None
        # Whoever publishes step s has seen all arrive at s - 1, so all have read s - 2.
        past = self._kept.get((part.slot, part.step - 2))
        if past:
            commands.append(("UNLINK", *past))
        self._kept.pop((part.slot, part.step - 3), None)
        return commands

    def _arrival(self, part: Round) -> tuple[Any, ...]:
        """The command that arrives at a round."""
        if not self._is_loaded:
            self._arrive.sha = self._redis.script_load(self._arrive.script)
            self._is_loaded = True
        return (
            "EVALSHA",
            self._arrive.sha,
            7,
            self._job,
            self._key("arrivals", part.round_id),
            self._key("steps"),
            self._key("lease", part.slot),
            self._key("claim", part.slot),
            self._key("lease", "supervisor"),
            self._prefix,
            self.generation,
            self._nonce,
            part.round_id,
            part.step,
            part.slot,
            int(part.lease_s * 1000),
            self._ttl_ms,
            "" if part.report is None else json.dumps(part.report, separators=(",", ":")),
            part.wanted.nusd,
            part.wanted.least_nusd,
            part.known_plan,
            len(part.publishers),
            *part.waiters,
        )

    @staticmethod
    def _learnt(reply: list[Any], part: Round) -> Arrival:
        code, arrived, granted, has_supervisor, plan = reply
        if code != 1:
            raise Aborted("this worker's slot was given to another invocation" if code == -2 else GONE)
        is_complete = arrived >= len(part.publishers)
        return Arrival(is_complete, Plan.decode(plan) if plan else None, int(granted), bool(has_supervisor))

    def exchange(self, part: Round, pay: Callable[[], None]) -> Exchanged:
        """See `StepLog`. With one server, all in one write."""
        if len(self._shards) > 1 or not part.peers:
            return exchange_in_parts(self, part, pay)
        for attempt in range(TRIES):
            try:
                return self._exchange_in_one(part, pay)
            except (redis.ConnectionError, redis.TimeoutError) as error:
                self._line.drop()
                if attempt == TRIES - 1:
                    raise ServiceError(f"Redis is gone: {error}") from None
                time.sleep(0.02 * 2**attempt)
            except redis.exceptions.NoScriptError:  # the server was restarted
                self._line.drop()
                self._is_loaded = False
        raise ServiceError("Redis forgets the run's scripts: it is restarted over and over")

    def _exchange_in_one(self, part: Round, pay: Callable[[], None]) -> Exchanged:
        storing = self._storing(part)
        wake = ("BLPOP", self._key("wake", part.slot), LOOK_S)
        fetch = ("MGET", *(self._frame_key(part.round_id, slot, part.inbox) for slot in part.peers))
        replies = self._line.send([*storing, self._arrival(part), wake, fetch])
        try:
            for _ in storing:
                next(replies)
            arrival = self._learnt(next(replies), part)
        except (Aborted, redis.ResponseError):
            self._line.drop()
            raise
        published_at = time.monotonic()
        popped = next(replies)
        complete_at = time.monotonic()
        frames = next(replies)
        called_off = self.aborted() if popped is not None and popped[1] == b"abort" else None
        if called_off is not None:
            raise Aborted(called_off[1], called_off[0])
        if popped is None or popped[1] != part.round_id.encode() or None in frames:
            # Too early, or woken by something else: on with the patient way.
            if not arrival.is_complete:
                self.wait(part, pay)
            complete_at = time.monotonic()
            frames = self.frames(part)
        return Exchanged(arrival, frames, published_at, complete_at)

    def wait(self, part: Round, pay: Callable[[], None]) -> None:
        """See `StepLog`."""
        wake, token = self._key("wake", part.slot), part.round_id.encode()
        give_up_at = time.monotonic() + part.deadline_s
        while True:
            popped = self._redis.blpop([wake], timeout=LOOK_S)
            if popped is not None and popped[1] == token:
                return
            if popped is not None and popped[1] != b"abort":
                continue  # a token of an earlier round that completed without waiting
            called_off = self.aborted()
            if called_off is not None:
                raise Aborted(called_off[1], called_off[0])
            # The token may have been lost with a connection; the count is the truth.
            if self._redis.hlen(self._key("arrivals", part.round_id)) >= len(part.publishers):
                return
            self.renew(str(part.slot), part.lease_s)
            pay()
            if time.monotonic() > give_up_at:
                raise Aborted(f"round {part.round_id} did not complete within {part.deadline_s:g} s")

    def frames(self, part: Round) -> list[Frame]:
        """See `StepLog`."""
        found: dict[int, bytes | None] = {}
        for number, shard in enumerate(self._shards):
            here = [slot for slot in part.peers if slot % len(self._shards) == number]
            if here:
                keys = [self._frame_key(part.round_id, slot, part.inbox) for slot in here]
                found.update(zip(here, shard.mget(keys), strict=True))
        frames = [frame for slot in part.peers if (frame := found[slot]) is not None]
        if len(frames) < len(part.peers):
            lost = next(slot for slot in part.peers if found[slot] is None)
            raise Aborted(f"the update of worker {lost} in round {part.round_id} is gone from Redis")
        return frames

    def read_steps(self, timeout_s: float) -> list[StepEntry]:
        """See `StepLog`."""
        reply = self._redis.xread(
            {self._key("steps"): self._last_entry}, count=500, block=max(int(timeout_s * 1000), 1)
        )
        entries: list[StepEntry] = []
        for _, rows in reply.items() if isinstance(reply, dict) else reply or []:
            for entry_id, fields in rows[0] if rows and isinstance(rows[0], list) else rows:
                self._last_entry = entry_id.decode()
                step, at_s = int(fields.pop(b"step")), float(fields.pop(b"at"))
                reports = {int(slot): json.loads(text) for slot, text in fields.items()}
                entries.append(StepEntry(step, at_s, reports))
        return entries
