"""A worker function's whole life: one `Worker` after another, if the run goes on from a checkpoint meanwhile."""

from __future__ import annotations

import time

import redis

from ..bus import Bus
from ..bus.messages import Invocation, Left, Message, Trouble
from ..exchange import Aborted, Coordinator, Fenced, LostData, Restart, Restarted
from ..money.budget import Prepaid
from ..storage.objects import ObjectStore
from .loop import Worker

#: Longest wait for the driver to restart a run whose data was lost, seconds, and the pause between two polls.
PATIENCE_S, RESTART_POLL_S = 60.0, 0.05


def work(invocation: Invocation, log: Coordinator, bus: Bus, objects: ObjectStore, prepaid: Prepaid) -> Message | None:
    """Work until the run's end; returns the final message, None if another invocation has taken over the slot."""
    restart = Restart()
    try:
        restart = _newest_restart(invocation, log, bus, prepaid)
        while True:
            log.join(restart)
            if not log.claim(invocation.slot):
                return None
            begin = _beginning(invocation, log, restart)
            try:
                return _worker(invocation, log, bus, objects, prepaid, begin).run()
            except Restarted as news:
                restart = news.restart
            except Fenced:
                raise
            except LostData as error:
                restart = _after_loss(invocation, log, bus, prepaid, restart, str(error))
    except Fenced:
        return None
    except Aborted as error:
        spent = prepaid.spent_nusd, prepaid.storage_nusd
        more = {"store_nusd": prepaid.store_nusd, "number": restart.number}
        frames = [*log.frame_count()]
        left = Left(invocation.slot, 0, *spent, 0.0, 0.0, error.status, str(error), **more, frames=frames)
        log.abort(str(error), invocation.n_workers, error.status)
        bus.send("supervisor", left.encode())
        return left


def _newest_restart(invocation: Invocation, log: Coordinator, bus: Bus, prepaid: Prepaid) -> Restart:
    """The run's newest restart; the next one if the data was lost before this function knew any."""
    try:
        return log.restart()
    except LostData as error:
        return _after_loss(invocation, log, bus, prepaid, Restart(), str(error))


def _after_loss(
    invocation: Invocation, log: Coordinator, bus: Bus, prepaid: Prepaid, known: Restart, reason: str
) -> Restart:
    """Tell the driver that data was lost, and wait for the restart after the ``known`` one."""
    bus.send("driver", Trouble(invocation.slot, known.number, reason, is_lost=False).encode())
    return _await_restart(log, known, prepaid, reason)


def _beginning(invocation: Invocation, log: Coordinator, restart: Restart) -> Restart:
    """From where a function begins: where its slot was handed over, or the checkpoint of the newest restart.

    A restart has forgotten earlier hand-overs. One that is announced has not happened yet.
    """
    step = log.read_plan().handed_over.get(invocation.slot)
    return restart if step is None else Restart(restart.number, step, restart.number)


def _worker(
    invocation: Invocation, log: Coordinator, bus: Bus, objects: ObjectStore, prepaid: Prepaid, restart: Restart
) -> Worker:
    """The worker; a failure to make one ends the run, unless a server fails or has lost the run's data."""
    try:
        return Worker(invocation, log, bus, objects, prepaid, restart=restart)
    except (Aborted, Restarted, LostData, redis.ConnectionError, redis.TimeoutError):
        raise
    except Exception as error:
        raise Aborted(f"worker {invocation.slot} could not start: {type(error).__name__}: {error}") from error


def _await_restart(log: Coordinator, known: Restart, prepaid: Prepaid, reason: str) -> Restart:
    """The next restart, once the driver has announced it; raises `Aborted` with ``reason`` if it does not."""
    give_up_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < give_up_at:
        aborted = log.aborted()
        if aborted is not None:
            raise Aborted(aborted[1], aborted[0])
        try:
            restart = log.restart()
            if restart.number > known.number:
                return restart
            prepaid.buy(RESTART_POLL_S, log.reserve)
        except LostData:
            pass  # not restored yet
        time.sleep(RESTART_POLL_S)
    raise Aborted(reason)
