"""Steps of a run's end in the driver: estimate a missing bill, fetch the model, remove everything else."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import redis

from ...bus.messages import Ended, Invocation
from ...bus.recorded import recorded
from ...errors import DecodeError, ServiceError
from ...exchange import SUPERVISOR, LostData, Plan
from ...models import FittedModel
from ...money import Cost, Rates
from ...money.budget import Prepaid
from ...money.cost import PREPARATION, cut
from ...money.meter import NUSD, to_nusd
from ...money.start import StartingMoney
from ...storage import run_objects
from ...storage.checkpoint import Progress
from ...storage.objects import ObjectStore
from ...telemetry.left import words
from ...telemetry.live import RunState, Telemetry
from ...telemetry.record import LAST, Record
from ..launch.invocations import LEASE_S
from ..servers.services import Services
from .final_bill import until_exits
from .last_functions import abort_functions
from .remains import Remains

#: The end of a run of which nothing is left.
ALL_DOWN = "Everything is shut down"
#: Tries to fetch the model, and the pause between them, seconds.
FETCH_TRIES, FETCH_PAUSE_S = 3, 0.5
#: Longest wait for functions of a cloud whose budget is used up, seconds: they end themselves, and nobody pays for the
#: servers any more.
CAPPED_S = 5.0
#: A function of a cloud may take so many times as long to start as is estimated.
STARTS = 2.0
#: Messages of one function, about, which a second supervisor reads.
MESSAGES = 10


def estimate_bill_nusd(
    services: Services, rates: Rates, n_workers: int, launched_at: float, time_s: float, state: RunState
) -> tuple[dict[str, int], int | None]:
    """The bill by component if the supervisor sent none, and what was reserved, nano-dollars; None if not known.

    Every slot is billed up to ``time_s``, seconds since the invocation, or until its function exited, if that is known;
    the sum is at most what was reserved, since functions end within their grants.
    """
    objects, exits = services.launcher.objects, services.launcher.exits
    servers = rates.servers_nusd(time_s)

    def function_nusd(slot: int) -> int:
        exited_at, first_s = exits.at(slot), 0.0 if exits.began_at is None else exits.began_at - launched_at
        if exited_at is None:
            return rates.function_nusd(max(time_s - first_s, 0.0))
        return rates.lost_nusd(min(exited_at - launched_at, time_s) - first_s)

    # The functions' requests are known only as part of the total cost that the supervisor reported last.
    seconds = (n_workers + 1) * rates.function_nusd(state.time_s) + rates.servers_nusd(state.time_s)
    storage = max(rates.requests_nusd(objects.gets, objects.puts), round(state.spent_usd * NUSD) - seconds)
    costs = {
        "workers": sum(map(function_nusd, range(n_workers))),
        "supervisor": function_nusd(SUPERVISOR),
        **rates.servers_by_component(servers),
        "storage": storage,
    }
    most = None if state.budget_usd is None else to_nusd(state.budget_usd)
    with contextlib.suppress(Exception):  # the reservations may be lost with Redis; the cap still holds
        most = services.log.money()[1]
    return cut(costs, most), most


def failure(
    services: Services,
    rates: Rates,
    n_workers: int,
    state: RunState,
    said: Ended,
    launched_at: float,
    prepared_nusd: int,
    *,
    is_launched: bool,
) -> Ended:
    """A final message by the driver, if the supervisor sent none: aborts the functions and bills them up to now.

    Parameters
    ----------
    said : Ended
        Status, reason and step.
    launched_at : float
        When the functions were invoked, on the monotonic clock; 0 if they were not.
    prepared_nusd : int
        Nano-dollars that preparing the data has cost.
    is_launched : bool
        Whether invoking them succeeded.
    """
    objects = services.launcher.objects
    costs = {"storage": rates.requests_nusd(objects.gets, objects.puts)}
    if launched_at:
        is_local = services.launcher.is_local
        may_run, start_s = is_launched or not is_local, StartingMoney(rates, n_workers, is_local).start_s
        patience_s = CAPPED_S if said.status == "capped" and not is_local else 2 * LEASE_S
        starts_until = launched_at + STARTS * start_s if is_launched else launched_at  # else some were never accepted
        began = time.monotonic()
        abort_functions(services, n_workers, said.reason, patience_s if may_run else 0.0, starts_until)
        if is_launched and not is_local:  # no supervisor reserves the servers' time meanwhile
            with contextlib.suppress(Exception):
                services.log.reserve(rates.servers_nusd(time.monotonic() - began) - rates.servers_nusd(0.0))
    # Functions run on until they are known to have ended: each, or all together.
    gone_at, slots = services.launcher.gone_at or time.monotonic(), [SUPERVISOR, *range(n_workers)]
    if is_launched and services.launcher.is_local and not services.redis_urls:
        with contextlib.suppress(Exception):  # without it each is billed to the exit of the last one
            services.launcher.exits.note(services.log.at_work(slots))
    exits = [services.launcher.exits.at(slot) for slot in slots]
    if None not in exits and services.launcher.gone_at:
        gone_at = min(gone_at, max(at for at in exits if at is not None))
    time_s = gone_at - launched_at if is_launched else 0.0
    most_nusd = None
    if is_launched:
        costs, most_nusd = estimate_bill_nusd(services, rates, n_workers, launched_at, time_s, state)
    if prepared_nusd:
        costs["storage"] = max(costs["storage"] - prepared_nusd * is_launched, 0)  # the estimate has it there
        costs[PREPARATION] = prepared_nusd
    return dataclasses.replace(said, costs_nusd=costs, time_s=time_s, most_nusd=most_nusd)


def unspent(cap_usd: float, cost_nusd: int, rates: Rates) -> str:
    """A note on the unspent rest of the cap, for a run that ended at its budget."""
    rest, second = to_nusd(cap_usd) - cost_nusd, rates.servers_nusd(1.0) - rates.servers_nusd(0.0)
    why = f"less than a second of the servers (${second / NUSD:.6f})" if rest < second else "kept to end in good order"
    return f"; ${rest / NUSD:.6f} of ${cap_usd:g} is left, {why}"


def aborted(services: Services) -> tuple[str, str] | None:
    """Status and reason of an abort; None if there was none, or it cannot be read."""
    with contextlib.suppress(Exception):  # Redis may be what failed
        return services.log.aborted()
    return None


def conclude(
    services: Services,
    rates: Rates,
    launched_at: float,
    invocation: Invocation | None,
    aborted: tuple[str, str] | None,
    failure: Ended,
    plan: Plan,
) -> Ended:
    """The final message that the supervisor did not send, made by a second supervisor in this process.

    Parameters
    ----------
    launched_at : float
        When the functions were invoked, on the monotonic clock.
    invocation : Invocation or None
        The supervisor's; None if no function was invoked.
    aborted : tuple or None
        Status and reason of an abort before the driver gave up.
    failure : Ended
        Its status and reason are used if nothing else says how the run ended, and all of it if there is no telling.
    plan : Plan
        The newest one that is known here.
    """
    from ...supervisor.ending import LOST
    from .substitute_supervisor import SubstituteSupervisor  # needed only here

    if invocation is None:
        return failure
    dues = services.dues
    try:
        # It reads the step log, an object for each step, and all messages.
        if dues is not None and not dues.pay_end(2 * failure.step + MESSAGES * (invocation.n_workers + 1)):
            return failure
        prepaid = Prepaid(rates, 0, lambda: failure.time_s, lambda: 0, with_servers=True)
        # The driver may reach the servers by other addresses than functions do.
        own = dataclasses.replace(invocation, redis_urls=list(services.redis_urls))
        with recorded(services.bus, own) as bus:
            successor = SubstituteSupervisor(own, services.log, bus, services.launcher.objects, prepaid)
            successor.over_s, successor.plan = failure.time_s, plan
            with contextlib.suppress(LostData):  # some may have come and gone since anybody looked
                services.launcher.exits.note(services.log.at_work([SUPERVISOR, *range(invocation.n_workers)]))
            ended = until_exits(successor.conclude(aborted), services.launcher.exits, launched_at, rates)
        if ended.reason == LOST:
            ended = dataclasses.replace(ended, status=failure.status, reason=failure.reason)
        try:
            most_nusd = services.log.money()[1]
        except LostData:
            return dataclasses.replace(ended, n_invoked=None)  # what functions have said is gone with it
        return dataclasses.replace(ended, costs_nusd=cut(ended.costs_nusd, most_nusd), most_nusd=most_nusd)
    except Exception:
        return failure


def fetch_model(
    objects: ObjectStore, run_id: str, ended: Ended, begin: Callable[[], Progress], begun: str
) -> tuple[Progress, str]:
    """The progress that the run stored, with its model, and a note on it.

    Without a checkpoint it is the result of ``begin``, described by ``begun``, e.g. "untrained".
    """
    if ended.model_key is not None and ended.kept_step is not None:
        try:
            progress = Progress.decode(objects.get(ended.model_key))
            return progress, f"; the model is that of step {ended.kept_step}" if ended.status == "failed" else ""
        except (KeyError, DecodeError):
            pass  # the function ended before it was stored
    found = run_objects.newest(objects, run_id)
    if found is None:
        return begin(), f"; no checkpoint yet, the model is {begun}"
    return found.progress, f"; the model is that of step {found.progress.step}"


def fetch_last(objects: ObjectStore, ended: Ended) -> tuple[Progress | None, str]:
    """The last model, None if it is the one that the run returns, or cannot be read; and a note on that."""
    note = ""
    if ended.last_key is None:
        return None, note
    for left in reversed(range(FETCH_TRIES)):
        try:
            return Progress.decode(objects.get(ended.last_key)), ""
        except (KeyError, DecodeError, ServiceError) as error:
            note = f"; the last model could not be read ({type(error).__name__}: {error})"
        if left:
            time.sleep(FETCH_PAUSE_S)
    return None, note


def fetch_with_retries(fetch: Callable[[], tuple[Progress, str]], place: str) -> tuple[Progress | None, str]:
    """The result of ``fetch`` within `FETCH_TRIES` tries, else None and a note on where the model is stored."""
    for left in reversed(range(FETCH_TRIES)):
        try:
            return fetch()
        except Exception as error:
            note = f"; the model could not be read ({type(error).__name__}: {error}) and is left in {place}"
        if left:
            time.sleep(FETCH_PAUSE_S)
    return None, note


def remove_all(
    services: Services, run_id: str, remove_objects: Callable[[], None] | None
) -> tuple[str, dict[str, int]]:
    """Remove the functions and all of the run's objects, keys and queues, also if one of these fails.

    Without ``remove_objects`` the objects stay. Returns a sentence on the outcome, and what is really left by its kind.
    """
    launcher, remains, n_queues = services.launcher, None, 0
    with contextlib.suppress(Exception):  # a count must cost neither the removal nor the model
        remains = Remains(services, run_id)
    failed: list[str] = []

    def close_bus() -> None:
        nonlocal n_queues
        n_queues = services.bus.close(delete=True)

    def attempt(step: Callable[[], object], sentence: str) -> None:
        try:
            step()
        except Exception as error:
            failed.append(f"{sentence} ({type(error).__name__})")

    attempt(launcher.close, "the functions' files could not be removed")
    if remove_objects is not None:
        attempt(remove_objects, "objects could not be removed")
    # A server may have failed.
    attempt(partial(_delete_keys, services), "Redis could not be cleaned, its keys expire within a day")
    attempt(close_bus, "the control bus could not be cleaned, what is in it expires")
    attempt(services.sweep, "unfinished objects could not be removed")
    left: dict[str, int] = {}
    with contextlib.suppress(Exception):
        left = {} if remains is None else remains.count(n_queues, with_objects=remove_objects is not None)
    return outcome(failed, left), left


def outcome(failed: Sequence[str], left: Mapping[str, int]) -> str:
    """A sentence on the removal of a run: what has ``failed``, in clauses, and what is ``left`` by its kind."""
    n_left = sum(left.values())
    if not failed and not n_left:
        return ALL_DOWN
    begin = "Not everything is shut down" if left.get("processes") else "All functions are shut down"
    remedy = "is left: %mlless clean removes it" if n_left == 1 else "are left: %mlless clean removes them"
    return "; ".join([begin, *failed, *([f"{words(left)} {remedy}"] if n_left else [])])


def _delete_keys(services: Services) -> None:
    """Delete the run's keys; those of a private Redis that was killed are gone with it."""
    try:
        services.log.delete()
    except redis.ConnectionError:
        if services.embedded is None or services.embedded.is_alive:
            raise


def keep(
    record: Record,
    telemetry: Telemetry,
    changes: dict[str, Any],
    model: FittedModel | None,
    last: FittedModel | None,
    cost: Cost,
    job: dict[str, Any],
    progress: Progress | None,
    resume: dict[str, Any],
) -> None:
    """Write the run's end into its record: its state with the last ``changes``, its cost, ``job`` for replays.

    ``progress`` and ``resume`` are for a run that resumes from it, see `mlless_nb.driver.launch.resumption`.
    """
    state = dataclasses.replace(telemetry.state, pending=(), spent_usd=cost.total, **changes)
    if model is not None:
        record.keep_model(model)
    if last is not None:
        record.keep_model(last, LAST)
    if progress is not None:
        record.keep_progress(progress.encode())
    store = cost.store.to_json() if cost.store is not None else None
    record.end({"state": state.to_json(), "cost": dict(cost), "store": store, "job": job, "resume": resume})
    if not record.is_complete:
        telemetry.add_event(changes["time_s"], f"history incomplete: {record.folder} could not be written")
