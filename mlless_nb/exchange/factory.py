"""Opens the coordinator of a job: on Redis, or in the object storage if the job has no Redis."""

from __future__ import annotations

import contextlib

from redis.exceptions import RedisError

from ..errors import JobError, MllessError
from ..money import Rates
from ..money.budget import SLICE_S
from ..storage.conditional import conditional
from ..storage.objects import ObjectStore
from .protocol import Coordinator, key_prefix
from .redis.coordinator import RedisCoordinator
from .storage.coordinator import PAUSES_S, StorageCoordinator
from .stores import REDIS, FrameStore, open_store
from .stores.storage import StorageStore

#: Seconds between two changes of a job's state in a cloud by requests for money: a change takes two requests, and is
#: repeated if another function was quicker.
CHANGE_S = 1.0
#: Seconds that what was read of the budget, of an abort and of leases is taken for current, if a request is billed.
FRESHNESS_S = 1.0
#: Seconds between two looks for a slot, if no request is billed.
SLOT_POLL_S = 0.02

#: Most reads and writes of one function beside those of its frames, at its start and at its end, and reads for each
#: worker of the run: claim, leases, messages, budget.
FUNCTION_GETS, FUNCTION_PUTS, GETS_A_WORKER = 20, 11, 8
#: Writes that a function may make beyond its grant, before it has asked for more: they are reserved, too.
MARGIN_PUTS = 11

JobCoordinator = RedisCoordinator | StorageCoordinator


def prepaid_nusd(rates: Rates, n_workers: int, redis_urls: list[str]) -> int:
    """Nano-dollars that a function keeps for the requests of its start and of its end; 0 on Redis."""
    if redis_urls:
        return 0
    return rates.requests_nusd(FUNCTION_GETS + GETS_A_WORKER * n_workers, FUNCTION_PUTS)


def request_margin_nusd(rates: Rates) -> int:
    """Nano-dollars of requests that are reserved for a function beyond its grant, if there is no Redis."""
    return rates.requests_nusd(0, MARGIN_PUTS)


def slice_s(log: JobCoordinator, n_workers: int) -> float:
    """Seconds of running that a function requests at a time: more if all requests change one object of a cloud."""
    return SLICE_S + CHANGE_S * (n_workers + 1) if _is_billed(log) else SLICE_S


def slot_pauses_s(log: Coordinator) -> tuple[float, float]:
    """Seconds of the first and of the longest pause between two looks for a slot; see `GROWTH` for those between."""
    return PAUSES_S if _is_billed(log) else (SLOT_POLL_S, SLOT_POLL_S)


def _is_billed(log: Coordinator) -> bool:
    """Whether each request to the coordinator is."""
    return isinstance(log, StorageCoordinator) and not log.has_local_objects


def leave(log: JobCoordinator, job_id: str, store: str, objects: ObjectStore) -> None:
    """To be called by the supervisor at last: if the driver is lost, nobody else removes what is in the storage.

    On Redis all keys expire. In another ``store`` of the job frames may stay, and be billed for ever.
    """
    if isinstance(log, StorageCoordinator):
        if not log.alive(["driver"])[0]:
            log.delete()
    elif store != REDIS:
        with contextlib.suppress(MllessError, RedisError):  # a driver that is there may have stopped Redis by now
            if not log.alive(["driver"])[0] and (frames := open_store(store, key_prefix(job_id), objects)) is not None:
                with contextlib.closing(frames):
                    frames.clear()


def open_coordinator(
    redis_urls: list[str],
    job_id: str,
    generation: str,
    nonce: str = "",
    store: FrameStore | None = None,
    objects: ObjectStore | None = None,
    frame_key: str = "",
) -> JobCoordinator:
    """The coordinator of a job.

    Parameters
    ----------
    redis_urls : list of str
        Empty: the job has no Redis, and is coordinated in the object storage.
    job_id, generation, nonce, store, frame_key
        See `RedisCoordinator`. In the object storage frames are not sealed.
    objects : ObjectStore, optional
        The object storage, for a job without Redis and for ``store``.

    Raises
    ------
    JobError
        The job has no Redis, and the storage does not write on conditions.
    """
    if redis_urls:
        return RedisCoordinator(redis_urls, job_id, generation, nonce, store, frame_key)
    if objects is None:
        raise JobError("redis", None, "the URL of a Redis server")
    if not isinstance(store, StorageStore):
        store = StorageStore(key_prefix(job_id), objects)
    storage = conditional(objects)
    freshness_s = 0.0 if storage.has_local_objects else FRESHNESS_S
    return StorageCoordinator(storage, store, generation, nonce, freshness_s=freshness_s, looks_ahead=True)
