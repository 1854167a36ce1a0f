"""The coordinator on Redis: frames sharded by slot over one or more servers, everything else on the first."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from importlib import resources

import redis

from ...money.request import SHARES
from ...redaction import scrubbed
from ..plan import Plan
from ..protocol import Arrival, Closing, Exchanged, Frame, FrameKey, RoundRequest, key_prefix
from ..restarts import LostData, Restart, rounds_prefix
from ..seals import Seal, SealedRounds, WorkerRounds
from ..slots import role_of
from ..standing import NO_PAST, Past, Standing
from ..step_report import LateArrival, StepEntry
from ..stores import FrameStore, StoredRounds
from .arrivals import GONE, Arrivals, aborted_of, fence_of, restart_of
from .client import connect
from .rounds import Rounds
from .standing import identities_of, standing_of
from .step_log import StepLogReader, add

#: Seconds until an unused key expires, also if the run's processes were killed.
TTL_S = 86_400
#: Seconds that the answer to a budget request is kept: longer than a client of `connect` repeats the request.
ANSWER_KEPT_S = 300


def _script(name: str) -> str:
    return (resources.files(__package__) / f"{name}.lua").read_text("utf-8")


class RedisCoordinator:
    """See `Coordinator`. The methods of a round, and `read_steps`, are for one thread, the others for any.

    Parameters
    ----------
    urls : list of str
        Redis URLs; the frames of ``slot`` are kept on number ``slot % len(urls)``.
    job_id : str
        Every key begins with ``mlless:{<job_id>}:`` (`key_prefix`).
    generation : str
        Names this start of the job: arrivals of functions from an earlier start are refused.
    nonce : str
        Identifies this invocation: arrivals of a duplicate of it are refused.
    store : FrameStore, optional
        Keeps the frames instead of Redis.
    frame_key : str
        Frames are sealed under this key, hexadecimal, see `mlless_nb.exchange.seals`; with "" they are not.
    """

    #: Steps that workers take after an announced stop, beside those that the protocol names.
    steps_ahead = 0

    def __init__(
        self,
        urls: list[str],
        job_id: str,
        generation: str,
        nonce: str = "",
        store: FrameStore | None = None,
        frame_key: str = "",
    ) -> None:
        self._shards = [connect(url) for url in urls]
        self._redis = self._shards[0]
        self._prefix = key_prefix(job_id)
        self._store, self.generation, self._nonce = store, generation, nonce
        self._job = self._key("job")
        self._announce = self._redis.register_script(_script("announce"))
        self._reserve = self._redis.register_script(_script("reserve"))
        self._abort = self._redis.register_script(_script("abort"))
        self._roll_back = self._redis.register_script(_script("roll_back"))
        self._steps = StepLogReader(self._redis, self._key("steps"))
        arrivals = Arrivals(self._prefix, generation, nonce, _script("arrive"), _script("catch_up"), TTL_S)
        rounds = Rounds(self._shards, self._prefix, arrivals, TTL_S)
        plain: WorkerRounds = rounds if store is None else StoredRounds(rounds, store)
        self._rounds = SealedRounds(plain, Seal(bytes.fromhex(frame_key), self._prefix)) if frame_key else plain
        #: See `CountsFrames`; bound, as it is called in every step.
        self.frame_count = plain.frame_count

    def _key(self, *parts: object) -> str:
        return self._prefix + ":".join(map(str, parts))

    def create(self, *, cap_nusd: int | None, reserved_nusd: int, past: Past = NO_PAST) -> None:
        """See `Coordinator`."""
        state = {
            "generation": self.generation,
            "cap": -1 if cap_nusd is None else cap_nusd,
            "reserved": reserved_nusd,
            "latest": past.restart.step,
            "closed": past.restart.step,
            "version": past.plan.version,
            "plan": past.plan.encode(),
            "fence": fence_of(self.generation, past.restart),
        }
        with self._redis.pipeline(transaction=True) as pipeline:  # no key is without an expiry at any time
            pipeline.hset(self._job, mapping=state)
            pipeline.expire(self._job, TTL_S)
            for entry in past.steps:
                add(pipeline, self._key("steps"), entry)
            pipeline.expire(self._key("steps"), TTL_S)
            pipeline.execute()
        self._redis.script_load(_script("arrive"))
        self._redis.script_load(_script("catch_up"))
        if self._store is not None:
            self._store.create()

    def delete(self) -> int:
        """See `Coordinator`. Redis and the store are both cleaned, also if one of them fails."""
        try:
            n_frames = self._store.clear() if self._store is not None else 0
        finally:
            n_keys = sum(self._delete_keys(shard, self._prefix + "*") for shard in self._shards)
        return n_frames + n_keys

    @staticmethod
    def _delete_keys(shard: redis.Redis, pattern: str) -> int:
        keys = list(shard.scan_iter(match=pattern, count=1000))
        return sum(int(shard.unlink(*keys[first : first + 500])) for first in range(0, len(keys), 500))

    def close(self) -> None:
        """Release the connections. Idempotent."""
        self._rounds.close()
        for shard in self._shards:
            shard.close()

    def now_s(self) -> float:
        """See `Coordinator`."""
        seconds, microseconds = self._redis.time()
        return float(seconds) + float(microseconds) * 1e-6

    def renew(self, role: str, lease_s: float) -> None:
        """See `Coordinator`."""
        self._redis.set(self._key("lease", role), self._nonce or "1", px=int(lease_s * 1000))

    def alive(self, roles: list[str]) -> list[bool]:
        """See `Coordinator`."""
        return [value is not None for value in self._redis.mget([self._key("lease", role) for role in roles])]

    def at_work(self, slots: list[int]) -> dict[int, str]:
        """See `Coordinator`."""
        if not slots:
            return {}
        claims = self._redis.mget([self._key("claim", slot) for slot in slots])
        settled = self.settled(slots)
        found = zip(slots, claims, strict=True)
        return {slot: nonce.decode() for slot, nonce in found if nonce is not None and slot not in settled}

    def settled(self, slots: list[int]) -> set[int]:
        """See `Coordinator`."""
        refunds = self._redis.hmget(self._job, [f"refunded:{slot}" for slot in slots]) if slots else []
        return {slot for slot, refund in zip(slots, refunds, strict=True) if refund is not None}

    def bury(self, role: str) -> None:
        """See `Coordinator`."""
        self._redis.delete(self._key("lease", role))

    def restart(self) -> Restart:
        """See `Coordinator`."""
        return restart_of(self._redis.hget(self._job, "fence"), self.generation)

    def join(self, restart: Restart) -> None:
        """See `Coordinator`."""
        self._rounds.join(restart)

    def roll_back(self, known: Restart, step: int, replaced: list[int], n_workers: int, origin: int = 0) -> Restart:
        """See `Coordinator`."""
        roles = [role_of(slot) for slot in replaced]
        freed = [self._key("claim", slot) for slot in replaced] + [self._key("lease", role) for role in roles]
        args = [self.generation, known.number, step, origin, TTL_S * 1000, n_workers, *replaced]
        code, text = self._roll_back(keys=[self._job, self._key("wake"), *freed], args=args)
        if code == -3:
            raise aborted_of(text)
        restart = restart_of(text, self.generation)
        if code == 1:
            # What the rounds before have left would stay until the end of the run.
            past = rounds_prefix(self._prefix, known)
            kinds = ("frame:*", "arrivals:*", "reached")
            for shard in self._shards:
                for kind in kinds:
                    self._delete_keys(shard, past + kind)
        return restart

    def identities(self) -> list[str]:
        """See `Coordinator`."""
        return identities_of(self._shards)

    def standing(self, slots: list[int]) -> Standing:
        """See `Coordinator`."""
        return standing_of(self._shards, self._key, slots, self.generation)

    def release(self, slot: int) -> None:
        """See `Coordinator`."""
        self._redis.hdel(self._job, f"refunded:{slot}", f"start:{self._key('claim', slot)}")
        self._redis.unlink(self._key("claim", slot), self._key("lease", role_of(slot)))

    def hand_over(self, slot: int, step: int) -> None:
        """See `Coordinator`."""
        keys = [self._job, self._key("claim", slot), self._key("lease", role_of(slot))]
        self._announce(keys=keys, args=[self.generation, "handed_over", self._nonce, slot, step])

    def read_plan(self) -> Plan:
        """See `Coordinator`."""
        return Plan.decode(self._redis.hget(self._job, "plan") or "")

    def announce_leave(self, slots: list[int], command_id: str = "") -> Plan:
        """See `Coordinator`."""
        return Plan.decode(self._announce(keys=[self._job], args=[self.generation, "leave", command_id, *slots]))

    def announce_checkpoint(self) -> Plan:
        """See `Coordinator`."""
        return Plan.decode(self._announce(keys=[self._job], args=[self.generation, "checkpoint"]))

    def announce_hand_over(self, slots: list[int]) -> Plan:
        """See `Coordinator`."""
        return Plan.decode(self._announce(keys=[self._job], args=[self.generation, "hand_over", *slots]))

    def announce_stop(self, status: str, reason: str) -> Plan:
        """See `Coordinator`."""
        return Plan.decode(self._announce(keys=[self._job], args=[self.generation, "stop", status, scrubbed(reason)]))

    def abort(self, reason: str, n_workers: int, status: str = "failed") -> None:
        """See `Coordinator`."""
        self._abort(keys=[self._job, self._key("wake")], args=[scrubbed(f"{status} {reason}"), TTL_S * 1000])

    def aborted(self) -> tuple[str, str] | None:
        """See `Coordinator`."""
        text = self._redis.hget(self._job, "abort")
        if text is None:
            return None
        error = aborted_of(text)
        return error.status, str(error)

    def money(self) -> tuple[int | None, int]:
        """See `Coordinator`."""
        cap, reserved = self._redis.hmget(self._job, "cap", "reserved")
        if cap is None:
            raise LostData(GONE)
        return (int(cap) if int(cap) >= 0 else None), int(reserved)

    def reserve(self, nusd: int, least_nusd: int | None = None, request_id: str = "") -> int:
        """See `Coordinator`."""
        least_nusd = nusd if least_nusd is None else least_nusd
        return self._request("reserve", [nusd, least_nusd, SHARES], request_id=request_id)

    def reserve_start(self, nusd: dict[int, int], request_id: str = "") -> bool:
        """See `Coordinator`."""
        claims = [self._key("claim", slot) for slot in nusd]
        return bool(self._request("start", list(nusd.values()), claims, request_id))

    def _request(self, what: str, amounts: list[int], claims: Sequence[str] = (), request_id: str = "") -> int:
        """Request money under a unique id, which the client's retries repeat."""
        keys = [self._job, self._key("request", request_id or uuid.uuid4().hex), *claims]
        return self._answer(self._reserve(keys=keys, args=[what, 1000 * ANSWER_KEPT_S, *amounts]))

    def start_grant(self, slot: int) -> int:
        """See `Coordinator`."""
        return int(self._redis.hget(self._job, f"start:{self._key('claim', slot)}") or 0)

    def refund(self, nusd: int, slot: int, part: int = 0) -> None:
        """See `Coordinator`."""
        self._reserve(keys=[self._job], args=["refund", nusd, f"{slot}.{part}.{self._nonce}" if part else slot])

    def set_cap(self, cap_nusd: int) -> bool:
        """See `Coordinator`."""
        return bool(self._answer(self._reserve(keys=[self._job], args=["cap", cap_nusd])))

    @staticmethod
    def _answer(reply: int) -> int:
        if reply < 0:
            raise LostData(GONE)
        return reply

    def claim(self, slot: int) -> bool:
        """See `Coordinator`."""
        key, own = self._key("claim", slot), self._nonce.encode()
        if self._redis.get(key) == own:  # a supervisor asks again and again
            return True
        return bool(self._redis.set(key, own, nx=True, ex=TTL_S)) or self._redis.get(key) == own

    def count(self, name: str, index: int) -> tuple[bool, int]:
        """Count ``index`` under ``name``, atomically and once: whether it is new, and how many were counted so far."""
        key = self._key("count", name)
        with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.sadd(key, index)
            pipeline.scard(key)
            pipeline.expire(key, TTL_S)
            is_new, count, _ = pipeline.execute()
        return bool(is_new), int(count)

    def publish(self, part: RoundRequest) -> Arrival:
        """See `Coordinator`."""
        return self._rounds.publish(part)

    def wait(self, part: RoundRequest, pay: Callable[[], None]) -> Closing | None:
        """See `Coordinator`."""
        return self._rounds.wait(part, pay)

    def catch_up(self, part: RoundRequest) -> tuple[Arrival, list[Closing]]:
        """See `Coordinator`."""
        return self._rounds.catch_up(part)

    def put_model(self, frame: bytes) -> None:
        """See `Coordinator`."""
        self._rounds.put_model(frame)

    def get_model(self) -> Frame | None:
        """See `Coordinator`."""
        return self._rounds.get_model()

    def frames(self, part: RoundRequest, slots: list[int] | None = None) -> list[Frame]:
        """See `Coordinator`. The frames are views, valid until the next `frames`, `publish`, `wait` or `exchange`."""
        return self._rounds.frames(part, slots)

    def exchange(self, part: RoundRequest, pay: Callable[[], None]) -> Exchanged:
        """See `Coordinator`. With one server, all in one write."""
        return self._rounds.exchange(part, pay)

    def publish_and_poll(self, part: RoundRequest, keys: Sequence[FrameKey]) -> tuple[Arrival, list[Frame | None]]:
        """See `Coordinator`. With one server, all in one write; the frames are views, as of `frames`."""
        return self._rounds.publish_and_poll(part, keys)

    def wait_for_any(self, part: RoundRequest, keys: Sequence[FrameKey], pay: Callable[[], None]) -> list[Frame | None]:
        """See `Coordinator`. The frames are views, as of `frames`."""
        return self._rounds.wait_for_any(part, keys, pay)

    def read_steps(self, timeout_s: float) -> list[StepEntry]:
        """See `Coordinator`."""
        return self._steps.read(timeout_s)

    def read_late(self) -> list[LateArrival]:
        """See `Coordinator`."""
        return self._steps.late()

    def announce_quorum(self, quorum: int) -> None:
        """See `Coordinator`."""
        self._announce(keys=[self._job], args=[self.generation, "quorum", quorum])
