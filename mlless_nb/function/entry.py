"""The entry point of a function, for both roles. Lithops calls it with an `Invocation` as JSON."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import redis

from ..bus import Bus
from ..bus.messages import HANDED_OVER, Invocation, Left, Message
from ..bus.recorded import recorded
from ..errors import DecodeError, ServiceError
from ..exchange import Aborted, LostData
from ..exchange.factory import JobCoordinator, leave, open_coordinator, request_margin_nusd, slice_s
from ..exchange.protocol import key_prefix
from ..exchange.slots import nonce_of, place_of, role_of
from ..exchange.storage.coordinator import StorageCoordinator
from ..exchange.stores import FrameStore, open_store, store_servers
from ..job.sync import sync_from_json
from ..money import Rates, price_profile
from ..money.budget import Prepaid
from ..money.grant_watch import GrantWatch
from ..money.request_gate import RequestGate
from ..preparation.messages import PartCall
from ..redaction import in_configuration, in_job, remember, scrub
from ..stateless.messages import Call
from ..storage.objects import LithopsObjects, ObjectStore
from ..storage.run_objects import tally_key
from ..worker.attempts import work
from . import second_start
from .age import billed_s, is_cold
from .inviting import invite
from .malloc import keep_memory
from .package_digest import checked
from .patience import open_patiently
from .start_deadline import StartDeadline
from .succession import await_slot, unused_by

#: Writes to the storage by which a function ends, without a Redis.
LAST_PUTS = 2
#: What a function's age is taken for more than it is, at most, seconds: it is told in steps of 10 ms, and processes
#: take a moment to exit.
AGE_MARGIN_S = 0.02
#: Longest wait for data that is lost while a function starts, seconds (as the driver's `UNKNOWN_S`), and between polls.
RESTORED_S, RESTORED_POLL_S = 2.0, 0.05


def run_function(payload: str, storage: Any) -> str:
    """Run the function that ``payload`` describes, of whichever kind, until it has ended.

    Parameters
    ----------
    payload : str
        An `Invocation`, a `Call` or a `PartCall` as JSON, after the digest of the caller's mlless_nb if that may be
        another version (`package_digest`).
    storage : lithops.Storage
        Passed by Lithops.

    Returns
    -------
    str
        The final message as JSON; Lithops stores it, nothing depends on it.

    Raises
    ------
    OtherVersionError
        Before the payload is read, whose fields may be others in another version.
    """
    invocation = Message.decode(checked(payload))
    fields = getattr(invocation, "job", None) or vars(invocation)
    remember(*in_job(fields), *in_configuration([getattr(storage, "config", {}), dict(os.environ)]))
    try:
        return _run(invocation, storage)
    except Exception as error:
        scrub(error)  # Lithops logs and stores it
        raise


def _run(invocation: Message, storage: Any) -> str:
    """Run a function until it has ended; its final message as JSON."""
    objects = LithopsObjects(storage)
    objects.part_connections()
    keep_memory()
    if isinstance(invocation, Call):
        from ..stateless.functions import run_call  # workers do not need it, and start sooner without

        return run_call(invocation, objects).encode().decode()
    if isinstance(invocation, PartCall):
        from ..preparation.functions import run_part

        return run_part(invocation, storage).encode().decode()
    if not isinstance(invocation, Invocation):
        raise DecodeError(f"a {type(invocation).__name__} where an Invocation was expected")
    if invocation.role == "host":
        from ..stateless.host import serve

        return serve(invocation, objects)
    objects.keep_tally(tally_key(invocation.job_id))
    nonce = nonce_of(os.getpid(), invocation.invoked_s)
    rates = _rates(invocation)
    deadline = StartDeadline(invocation, rates, billed_s(), is_exact=is_cold() is False)
    store = _open_store(invocation, objects) if invocation.role == "worker" else None
    log = _open_log(invocation, objects, nonce, store)
    is_over = threading.Event()
    try:
        prepaid = _prepaid(invocation, rates, log, objects, store)
        if not _begin(invocation, log, prepaid, objects, nonce):
            return ""  # another invocation with the same payload is running
        last_call: Callable[[], None] = partial(_abort_run, invocation, objects, log, nonce, is_over)
        if not invocation.redis_urls:
            objects.on_request = gate = RequestGate(prepaid, last_call)
            last_call = gate.call

        def give_back(nusd: int, part: int) -> None:
            log.refund(nusd, invocation.slot, part)

        GrantWatch(prepaid, log.reserve, last_call, log.money, give_back)
        deadline.lift()
        lease = threading.Thread(target=_keep_lease, args=(invocation, log, is_over), name="mlless-lease", daemon=True)
        if not invocation.is_successor:
            lease.start()  # before the bus, which may be away
        bus = open_patiently(invocation, objects)
        try:
            if has_slot := not invocation.is_successor or await_slot(invocation, log, bus, prepaid.elapsed_s):
                if invocation.is_successor:
                    lease.start()
                if invocation.role == "supervisor" and invocation.invoked_s and isinstance(log, StorageCoordinator):
                    with contextlib.suppress(ServiceError, LostData, Aborted):  # who reads meets the same error
                        prepaid.buy_reads(log.count_log(), log.reserve)  # it takes over
                inviting = invite(invocation, objects, run_function)
                act = _supervise if invocation.role == "supervisor" else work
                last = act(invocation, log, bus, objects, prepaid)
                if inviting is not None:
                    inviting.join()
        finally:
            bus.close()  # delivers pending messages, while the budget is still watched
        if not has_slot:
            with contextlib.suppress(LostData):  # the run is over
                prepaid.settle(give_back, unused_by(invocation), alone=True)
            prepaid.end()
            return ""
        if last is None:
            prepaid.end()
            return ""  # another invocation has the slot; what this one had is not returned
        handed_over = last.step if isinstance(last, Left) and last.status == HANDED_OVER else None
        if handed_over is not None:
            prepaid.settle(give_back, unused_by(invocation))
            is_over.set()
            log.hand_over(invocation.slot, handed_over)  # from now on the successor has it
        else:
            # A function that settled its budget has ended properly; one that exits without doing so counts as lost.
            prepaid.settle(give_back)
        prepaid.end()
        is_over.set()
        if invocation.role == "supervisor" and handed_over is None:
            leave(log, invocation.job_id, invocation.store, objects)
        return last.encode().decode()
    finally:
        deadline.lift()
        is_over.set()
        log.close()


def _begin(invocation: Invocation, log: JobCoordinator, prepaid: Prepaid, objects: ObjectStore, nonce: str) -> bool:
    """Claim the slot, if it is not waited for, and learn of the budget; False if another function is there.

    If that was invoked for itself, the money of this one is returned; if both have the money for one, what this one has
    spent is booked, also if the other one is lost by now. Data that is lost meanwhile is waited for: the driver
    restores it, and counts the time as spent.
    """
    slot, give_up_at = invocation.slot, time.monotonic() + RESTORED_S
    while True:
        asked_s = prepaid.elapsed_s
        try:
            if not log.claim(place_of(slot, invocation.invoked_s)):
                second_start.book(invocation, log, prepaid, objects, nonce)
                return False
            if not invocation.is_successor and not log.claim(slot):
                if invocation.invoked_s:
                    # One that came too late may have spent more than its grant, and then the rest is below 0: what is
                    # spent counts as reserved even if that is above the cap, so that the others get no more.
                    log.refund(prepaid.rest_nusd(prepaid.alone_nusd), slot, unused_by(invocation))
                else:  # or it comes so late that another one was invoked, while its grant stays reserved
                    tells = second_start.carries_it_out(invocation, log)
                    second_start.book(invocation, log, prepaid, objects, nonce, tells=tells)
                return False
            # What was granted for a slow start is that of the function which has the slot, not of its successor.
            granted_nusd = 0 if invocation.is_successor else log.start_grant(slot)
            prepaid.learn(*log.money())
            prepaid.questions.note(prepaid.elapsed_s - asked_s)
            prepaid.add(granted_nusd)
            prepaid.buy(0.0, log.reserve)  # the start may have taken longer than was prepaid
            return True
        except LostData:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(RESTORED_POLL_S)


def _open_log(
    invocation: Invocation, objects: ObjectStore, nonce: str = "", store: FrameStore | None = None
) -> JobCoordinator:
    names = invocation.job_id, invocation.generation, nonce
    return open_coordinator(invocation.redis_urls, *names, store, objects, invocation.frame_key)


def _open_store(invocation: Invocation, objects: ObjectStore) -> FrameStore | None:
    """The job's frame store; aborts the run if this runtime lacks its package, which the driver cannot know."""
    try:
        return open_store(invocation.store, key_prefix(invocation.job_id), objects)
    except Exception as error:
        log = _open_log(invocation, objects)
        log.abort(f"worker {invocation.slot} could not start: {error}", invocation.n_workers)
        log.close()
        raise


def _supervise(
    invocation: Invocation, log: JobCoordinator, bus: Bus, objects: ObjectStore, prepaid: Prepaid
) -> Message | None:
    with recorded(bus, invocation) as recording:
        try:
            from ..supervisor.loop import Supervisor  # here, since workers do not need it and start sooner without

            supervisor = Supervisor(invocation, log, recording, objects, prepaid)
        except (redis.ConnectionError, redis.TimeoutError, ServiceError):
            raise  # a server fails: another one is invoked
        except Exception as error:
            log.abort(f"the supervisor could not start: {type(error).__name__}: {error}", invocation.n_workers)
            raise
        return supervisor.run()


def _keep_lease(invocation: Invocation, log: JobCoordinator, is_over: threading.Event) -> None:
    """Renew the lease while the function is busy; a process that is stopped or killed loses it."""
    while True:
        with contextlib.suppress(Exception):  # the main thread meets the same error and reports it
            log.renew(role_of(invocation.slot), invocation.lease_s)
        if is_over.wait(invocation.lease_s / 3):
            return


def _abort_run(
    invocation: Invocation, objects: ObjectStore, own: JobCoordinator, nonce: str, is_over: threading.Event
) -> None:
    """Abort the run, over a separate connection: this function's budget is used up before it could end properly.

    Nobody waits for one that was replaced while it stood still, and its slot and lease are another one's.
    """
    log, slot = _open_log(invocation, objects), invocation.slot
    if invocation.redis_urls and not invocation.is_successor and log.at_work([slot]).get(slot) != nonce:
        is_over.set()
        return
    if isinstance(log, StorageCoordinator) and isinstance(own, StorageCoordinator):
        log.speak_for(own)
    who = f"worker {slot}" if invocation.role == "worker" else "the supervisor"
    log.abort(f"the budget was used up before {who} could end", invocation.n_workers, "capped")
    if invocation.redis_urls and not invocation.is_successor:  # the object storage's requests are billed
        is_over.set()
        log.bury(role_of(slot))  # it ends at once: who waits for it pays for the servers meanwhile


def _rates(invocation: Invocation) -> Rates:
    return Rates(
        price_profile(invocation.prices),
        invocation.memory_mb,
        len(invocation.redis_urls),
        invocation.has_broker,
        store_servers(invocation.store),
    )


def _prepaid(
    invocation: Invocation, rates: Rates, log: JobCoordinator, objects: ObjectStore, store: FrameStore | None
) -> Prepaid:
    asked, now_s = time.monotonic(), log.now_s()
    began = time.monotonic()
    since_s, answered_s = now_s - invocation.launched_at_s - invocation.invoked_s, began - asked
    # The answer may be as old as the request. Until the runtime was started nothing was billed.
    late_s = min(max(since_s, 0.0) + answered_s, billed_s()) + min(answered_s, AGE_MARGIN_S)
    # They are made after the bill: the last message, and what returns the money.
    last_puts = 0 if invocation.redis_urls else LAST_PUTS
    margin_nusd = 0 if invocation.redis_urls else request_margin_nusd(rates)
    kept_nusd = max(invocation.coordination_nusd - margin_nusd - rates.requests_nusd(0, last_puts), 0)

    def requests_nusd(n_more_puts: int) -> int:
        own = rates.requests_nusd(objects.gets, objects.puts + n_more_puts)
        return own + (store.cost_nusd(rates) if store else 0)

    if isinstance(log, StorageCoordinator):
        log.requested_nusd = partial(requests_nusd, 1)
    is_supervisor = invocation.role == "supervisor"
    margin_nusd += rates.outliving_nusd if is_supervisor else 0
    prepaid = Prepaid(
        rates,
        invocation.granted_nusd - invocation.end_margin_nusd - margin_nusd,
        lambda: late_s + time.monotonic() - began,
        partial(requests_nusd, last_puts),
        with_servers=is_supervisor,
        n_functions=invocation.n_workers + 1,
        store_nusd=lambda: store.price_nusd(store.usage(), rates) if store else 0,
        store_end_nusd=kept_nusd + (invocation.store_end_nusd if invocation.role == "worker" else 0),
        steps_ahead=lambda: log.steps_ahead,
        slice_s=slice_s(log, invocation.n_workers),
        margin_nusd=margin_nusd,
    )
    prepaid.is_cold = is_cold()
    prepaid.steps_to_end += sync_from_json(invocation.sync).staleness
    return prepaid
