"""The analytic model against LambdaML's formulas, and the choice among options."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb.adviser import Option, analytic
from mlless_nb.adviser.constants import constants
from mlless_nb.adviser.here import LOOP_S, here
from mlless_nb.adviser.sizes import Sizes
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.meter import NUSD

RATES = Rates(price_profile("aws-lambda-x86"), 1769)
SIZES = Sizes(
    epochs=10,
    n_minibatches=120,
    local_steps=1,
    minibatch_s=0.01,
    apply_s=0.0,
    update_bytes=1e6,
    table_bytes=4e6,
    data_bytes=1.3e8,
)


def test_the_start_up_times_are_those_of_table_6() -> None:
    known = constants()
    assert [known.start_s(w) for w in (10, 50, 100, 200)] == [1.2, 11.0, 18.0, 35.0]
    assert [known.start_s(w, are_vms=True) for w in (10, 50, 100, 200)] == [132.0, 160.0, 292.0, 606.0]
    assert known.start_s(30) == pytest.approx((1.2 + 11.0) / 2)


def test_functions_over_an_object_storage_take_what_the_paper_says() -> None:
    option = analytic.functions("storage", 10, SIZES, RATES, constants(), speed=1.0)
    rounds = 10 * 120 / 10
    assert option.exchange_s == pytest.approx(rounds * (3 * 10 - 2) * (1e6 / 10 / 65e6 + 0.08))
    assert option.compute_s == pytest.approx(rounds * 0.01)
    assert option.start_s == pytest.approx(1.2 + 1.3e8 / 10 / 65e6 + 0.08)


def test_every_update_passes_a_frame_server_once_for_each_reader() -> None:
    """It keeps frames; a parameter server would send the merged model instead."""
    option = analytic.functions("server", 10, SIZES, RATES, constants(), speed=1.0)
    assert option.place == "a frame server"
    assert option.exchange_s >= 10 * 120 / 10 * 10 * 10 * 1e6 / 225e6


def test_a_cluster_of_vms_takes_what_the_paper_says() -> None:
    vm = constants().vms["c5.large"]
    option = analytic.cluster(vm, 10, SIZES, constants(), speed=1.0)
    rounds = 10 * 120 / (10 * vm.cores)
    assert option.exchange_s == pytest.approx(rounds * (2 * 10 - 2) * (1e6 / 10 / 225e6 + 0.15e-3))
    assert option.usd == pytest.approx(10 * 0.085 / 3600 * option.time_s)


def test_more_workers_compute_less_each_and_a_worker_alone_exchanges_nothing() -> None:
    for store in constants().channels:
        options = [analytic.functions(store, w, SIZES, RATES, constants(), speed=1.0) for w in (1, 2, 4, 8)]
        compute = [option.compute_s for option in options]
        assert compute == sorted(compute, reverse=True)
        assert options[0].exchange_s == 0
    alone = here(1, SIZES, RATES, cores=2)
    assert alone.time_s > here(2, SIZES, RATES, cores=2).compute_s


def test_functions_that_take_longer_to_load_start_later_and_are_billed_for_it() -> None:
    quick, slow = (here(4, dataclasses.replace(SIZES, loaded_s=s), RATES, cores=2) for s in (0.3, 0.9))
    assert slow.time_s - quick.time_s == pytest.approx(0.6)
    servers_nusd = RATES.servers_nusd(slow.time_s) - RATES.servers_nusd(quick.time_s)
    functions_usd = 5 * 0.6 * RATES.function_usd_s
    assert slow.usd - quick.usd == pytest.approx(functions_usd + servers_nusd / NUSD, abs=1e-6)
    assert slow.exchange_s == quick.exchange_s


def test_what_a_worker_does_beside_its_arithmetic_takes_longer_on_a_slower_machine() -> None:
    free = dataclasses.replace(SIZES, loaded_s=0.3, minibatch_s=0.0)  # nothing is left but what depends on the loop
    usual, slow = (here(4, dataclasses.replace(free, loop_s=k * LOOP_S), RATES, cores=2) for k in (1.0, 2.0))
    assert usual == here(4, free, RATES, cores=2)
    assert slow.start_s - 0.3 == pytest.approx(2 * (usual.start_s - 0.3))
    assert slow.compute_s == pytest.approx(2 * usual.compute_s)
    assert slow.exchange_s == pytest.approx(2 * usual.exchange_s)


def test_what_was_measured_of_a_worker_counts_where_it_works_like_that() -> None:
    measured = dataclasses.replace(
        SIZES, alone_minibatch_s=0.005, crowded_minibatch_s=0.02, apply_s=0.001, crowded_apply_s=0.004
    )
    alone, paired, crowded = (here(w, measured, RATES, cores=2) for w in (1, 2, 3))
    plain = [here(w, SIZES, RATES, cores=2) for w in (1, 2, 3)]
    rounds = [SIZES.n_rounds(w) for w in (1, 2, 3)]
    assert alone.compute_s - plain[0].compute_s == pytest.approx(rounds[0] * (0.005 - 0.01))
    assert paired.compute_s == plain[1].compute_s
    assert paired.exchange_s - plain[1].exchange_s == pytest.approx(rounds[1] * 2 * 1 * 0.001 / 2)
    assert crowded.compute_s - plain[2].compute_s == pytest.approx(rounds[2] * 3 * (0.02 - 0.01) / 2)
    assert crowded.exchange_s - plain[2].exchange_s == pytest.approx(rounds[2] * 3 * 2 * 0.004 / 2)
    known = constants()
    vm = analytic.one_vm(known.vms["c5.large"], measured, known, speed=1.0)
    assert vm.compute_s == pytest.approx(10 * 120 * 0.005 / 2)


def test_requests_to_the_storage_are_on_the_bill() -> None:
    known, many = constants(), dataclasses.replace(SIZES, update_bytes=1.0)
    free = Rates(dataclasses.replace(RATES.profile, requests=price_profile("ibm-paper").requests), 1769)
    priced, unpriced = (analytic.functions("storage", 8, many, rates, known, speed=1.0) for rates in (RATES, free))
    rounds = 10 * 120 / 8
    assert priced.usd - unpriced.usd >= rounds * (8 * 8 * 5e-6 + 2 * 8 * 7 * 4e-7)


@given(st.lists(st.tuples(st.floats(0.1, 1e4), st.floats(1e-6, 10.0)), min_size=1, max_size=12))
def test_no_option_is_quicker_and_cheaper_than_one_of_the_front(points: list[tuple[float, float]]) -> None:
    options = [Option("functions", str(i), 1, time_s, 0.0, 0.0, usd) for i, (time_s, usd) in enumerate(points)]
    front = analytic.pareto(options)
    assert front
    for chosen in front:
        assert not any(one.time_s < chosen.time_s and one.usd < chosen.usd for one in options)
    for one in options:
        assert any(chosen.time_s <= one.time_s and chosen.usd <= one.usd for chosen in front)
    assert [one.time_s for one in front] == sorted(one.time_s for one in front)
