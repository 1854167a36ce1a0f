"""What functions are granted: it pays for runtimes that end as late as any was seen to, so that the cap holds."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mlless_nb.exchange import MemoryCoordinator, MemoryHub
from mlless_nb.function import entry
from mlless_nb.money import Rates, price_profile, profile_names
from mlless_nb.money.budget import Prepaid
from mlless_nb.money.meter import NUSD
from mlless_nb.money.start import StartingMoney
from mlless_nb.simulate import CLOUD, TWO_CORES, Machine, Workload
from mlless_nb.simulate.functions import Function
from mlless_nb.simulate.run import _Simulation
from mlless_nb.storage.objects import MemoryObjects

RATES = st.builds(
    Rates, st.sampled_from(profile_names()).map(price_profile), st.sampled_from([128, 1769, 10_240]), st.integers(1, 3)
)
SHARES = st.floats(0, 1)


def ending_after(rates: Rates, share: float) -> Rates:
    """Prices of functions whose runtimes end by this ``share`` of the margin later than is estimated."""
    price = rates.profile.function
    tail_s = price.tail_s + share * price.tail_margin_s * rates.core_share
    profile = dataclasses.replace(rates.profile, function=dataclasses.replace(price, tail_s=tail_s))
    return dataclasses.replace(rates, profile=profile)


def bill_nusd(rates: Rates, span_s: float, *, is_supervisor: bool) -> int:
    """What a function of ``span_s`` seconds costs, and the servers meanwhile if it is the supervisor."""
    return rates.function_nusd(span_s) + (rates.servers_nusd(span_s + rates.tail_s) if is_supervisor else 0)


@given(RATES, st.floats(0, 900), SHARES, st.booleans())
def test_the_margin_covers_a_late_end_of_the_runtime(
    rates: Rates, span_s: float, share: float, is_supervisor: bool
) -> None:
    estimated, real = (
        bill_nusd(each, span_s, is_supervisor=is_supervisor) for each in (rates, ending_after(rates, share))
    )
    margin = StartingMoney(rates, 1, is_local=False).end_margin_nusd(is_supervisor=is_supervisor)
    assert estimated <= real <= estimated + margin


@given(
    rates=RATES,
    room_s=st.floats(0, 20),
    steps=st.lists(st.tuples(st.floats(0.01, 2), SHARES), max_size=20),
    ends=st.lists(st.tuples(SHARES, SHARES), min_size=4, max_size=4),
)
@example(Rates(price_profile("aws-lambda-x86"), 1769), 0.0, [], [(1.0, 1.0)] * 4)
def test_no_end_of_the_runtimes_up_to_the_longest_passes_the_cap(
    rates: Rates, room_s: float, steps: list[tuple[float, float]], ends: list[tuple[float, float]]
) -> None:
    """A run passed its cap by the time that runtimes took on a busy machine after their functions had returned."""
    money = StartingMoney(rates, len(ends) - 1, is_local=False)
    least = money.least_nusd(0)
    cap = least + round(room_s * (len(ends) * rates.function_usd_s + rates.servers_usd_s) * NUSD)
    log = MemoryCoordinator(MemoryHub())
    log.create(cap_nusd=cap, reserved_nusd=least)
    spans_s = dict.fromkeys(range(-1, len(ends) - 1), 0.0)
    living = {slot: prepaid(money, slot, spans_s) for slot in spans_s}
    real_nusd = 0
    for step_s, share in steps:
        bought = [each.buy(step_s, log.reserve) for each in living.values()]
        if not all(bought):
            break
        for slot in spans_s:
            spans_s[slot] += share * step_s
    for (slot, function), (left, late) in zip(living.items(), ends, strict=True):
        spans_s[slot] += left * max(function.left_s, 0.0)
        log.refund(function.granted_nusd - function.spent_nusd, slot)
        real_nusd += bill_nusd(ending_after(rates, late), spans_s[slot], is_supervisor=slot < 0)
    assert real_nusd <= log.money()[1] <= cap


def prepaid(money: StartingMoney, slot: int, spans_s: dict[int, float]) -> Prepaid:
    """The grant of the function of ``slot``, which makes no requests; its clock is in ``spans_s``."""
    is_supervisor = slot < 0
    granted = money.supervisor_nusd if is_supervisor else money.worker_nusd(slot)
    granted -= money.end_margin_nusd(is_supervisor=is_supervisor)
    return Prepaid(money.rates, granted, lambda: spans_s[slot], lambda: 0, with_servers=is_supervisor)


@pytest.mark.parametrize("machine", [TWO_CORES, CLOUD], ids=["here", "cloud"])
def test_a_function_can_neither_spend_nor_return_what_is_for_the_end_of_its_runtime(machine: Machine) -> None:
    simulation = _Simulation(Workload(workers=2), machine, 0)
    log: Any = MemoryCoordinator(MemoryHub())
    for invocation in simulation._invocations():
        margin = invocation.end_margin_nusd
        assert (margin > 0) == (machine is CLOUD)
        outlived = entry._prepaid(
            invocation, entry._rates(invocation), log, MemoryObjects(), None
        ).rates.outliving_nusd * (invocation.slot < 0)
        simulated = Function(simulation._world, simulation._cores, invocation, lambda function: None)
        for function in (
            entry._prepaid(invocation, entry._rates(invocation), log, MemoryObjects(), None),
            simulated.prepaid,
        ):
            assert function.granted_nusd == invocation.granted_nusd - margin - outlived
            assert function.rest_nusd(0) == invocation.granted_nusd - margin


@pytest.mark.parametrize("machine", [TWO_CORES, CLOUD], ids=["here", "cloud"])
def test_the_servers_are_reserved_for_a_second_in_which_workers_outlive_the_supervisor(machine: Machine) -> None:
    """If Redis did not answer, its grant ended before the next second of them; the workers lived on into that."""
    invocation, *_ = _Simulation(Workload(workers=2), machine, 0)._invocations()
    log: Any = MemoryCoordinator(MemoryHub())
    function = entry._prepaid(invocation, entry._rates(invocation), log, MemoryObjects(), None)
    span_s, rates = function.elapsed_s + function.left_s, function.rates
    servers = rates.servers_nusd(span_s + rates.tail_s + 1.0)
    assert rates.servers_usd_s > 0
    assert rates.function_nusd(span_s) + servers <= invocation.granted_nusd - invocation.end_margin_nusd


def test_without_a_redis_a_function_has_the_requests_on_its_bill_that_it_makes_after_it() -> None:
    """It returned the money for them, so that others could spend it, too."""
    log: Any = MemoryCoordinator(MemoryHub())
    (_, invocation, *_) = _Simulation(Workload(workers=2), TWO_CORES, 0)._invocations()
    for urls, n_puts in ((["redis://here"], 0), ([], entry.LAST_PUTS)):
        billed = dataclasses.replace(invocation, redis_urls=urls)
        function = entry._prepaid(billed, entry._rates(billed), log, MemoryObjects(), None)
        assert function.storage_nusd == function.rates.requests_nusd(0, n_puts)


@pytest.mark.parametrize(("pause_s", "margin_s"), [(1.5, entry.AGE_MARGIN_S), (0.004, 0.004)])
def test_the_answer_of_a_paused_server_is_in_a_function_s_age_once(
    pause_s: float, margin_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counted twice: functions that started while a Redis was paused were billed for seconds before they began."""
    log: Any = MemoryCoordinator(MemoryHub())
    (_, invocation, *_) = _Simulation(Workload(workers=2), TWO_CORES, 0)._invocations()
    clock = [100.0]

    def answered() -> float:
        clock[0] += pause_s
        return invocation.launched_at_s + invocation.invoked_s + clock[0] - 99.7  # asked 0.3 s after the invocation

    monkeypatch.setattr(log, "now_s", answered)
    monkeypatch.setattr(entry, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(entry, "billed_s", lambda: clock[0] - 99.75)  # the runtime started 0.05 s after the invocation
    function = entry._prepaid(invocation, entry._rates(invocation), log, MemoryObjects(), None)
    clock[0] += 2.0
    assert function.elapsed_s == pytest.approx(0.25 + pause_s + 2.0 + margin_s)
