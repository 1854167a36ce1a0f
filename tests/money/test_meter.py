"""Seconds and requests in, nano-dollars out: never too low, never too generous."""

from __future__ import annotations

import copy
import dataclasses
import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb.money import Cost, Rates, StoreUse, price_profile, profile_names
from mlless_nb.money.catalogue import RequestPrice
from mlless_nb.money.cost import COMPONENTS
from mlless_nb.money.meter import NUSD, to_nusd

RATES = st.builds(
    Rates,
    st.sampled_from(profile_names()).map(price_profile),
    st.integers(128, 10_240),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([("", 0), ("memcached", 1), ("memcached", 3)]),
)
SPANS = st.floats(0, 1e5, allow_subnormal=False)
NANODOLLARS = st.integers(0, 10**15)


@given(RATES, SPANS, SPANS)
def test_a_longer_span_never_costs_less(rates: Rates, one: float, other: float) -> None:
    short, long = sorted((one, other))
    assert rates.function_nusd(short) <= rates.function_nusd(long)
    assert rates.servers_nusd(short) <= rates.servers_nusd(long)


@given(RATES, SPANS)
def test_a_bill_is_at_least_the_seconds_used_and_at_most_a_quantum_more(rates: Rates, span_s: float) -> None:
    price = rates.profile.function
    exact = (max(span_s + rates.tail_s, price.minimum_s) * rates.function_usd_s + price.request_usd) * NUSD
    start = rates.servers_start_usd * NUSD
    # A billionth of a quantum is forgiven, so that 0.3 s in steps of 0.1 s is three steps.
    assert rates.function_nusd(span_s) >= exact * (1 - 1e-12) - 1e-3
    assert rates.function_nusd(span_s) <= exact * (1 + 1e-12) + price.quantum_s * rates.function_usd_s * NUSD + 1
    servers = rates.servers_nusd(span_s)
    assert servers >= (span_s * rates.servers_usd_s * NUSD + start) * (1 - 1e-12) - 1e-3
    assert servers <= ((span_s + 1) * rates.servers_usd_s * NUSD + start) * (1 + 1e-12) + 1


@given(RATES, NANODOLLARS, st.booleans())
def test_the_seconds_for_an_amount_cost_no_more_than_it(rates: Rates, nusd: int, with_servers: bool) -> None:
    def bill(span_s: float) -> int:
        servers = rates.servers_nusd(span_s + rates.tail_s) if with_servers else 0
        return rates.function_nusd(span_s) + servers

    span_s = rates.seconds_for(nusd, with_servers=with_servers)
    assert rates.seconds_for(nusd + 1, with_servers=with_servers) >= span_s
    if span_s >= 0:
        assert bill(span_s) <= nusd
    # Nor is it stingy: two quanta and the rounding more are too much.
    longer_s = max(span_s, 0.0) + 2 * rates.profile.function.quantum_s + 1e-3
    if span_s >= 0:
        assert bill(longer_s * (1 + 1e-9)) > nusd


@given(RATES, SPANS, st.booleans())
def test_the_bill_of_a_span_buys_nearly_all_of_it(rates: Rates, span_s: float, with_servers: bool) -> None:
    tail_s, quantum_s = rates.tail_s, rates.profile.function.quantum_s
    nusd = rates.function_nusd(span_s) + (rates.servers_nusd(span_s + tail_s) if with_servers else 0)
    lost_s = quantum_s + 4 / NUSD / rates.function_usd_s
    assert rates.seconds_for(nusd, with_servers=with_servers) >= span_s - lost_s - 1e-9 * span_s


@given(RATES, st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_requests_together_cost_no_more_than_apart(rates: Rates, gets: int, puts: int, more: int, most: int) -> None:
    together = rates.requests_nusd(gets + more, puts + most)
    apart = rates.requests_nusd(gets, puts) + rates.requests_nusd(more, most)
    assert together <= apart <= together + 1
    assert together >= rates.requests_nusd(gets, puts)


def test_quanta_are_whole_and_short_runs_pay_the_minimum() -> None:
    paper = Rates(price_profile("ibm-paper"), 2048)  # 3.4e-5 dollars a second in tenths, tail 0.05 s
    assert paper.function_nusd(0.0) == paper.function_nusd(0.05) == 3_400
    assert paper.function_nusd(0.051) == 6_800
    assert paper.function_nusd(0.25) == 3 * 3_400
    assert paper.requests_nusd(1000, 1000) == 0
    aws = Rates(price_profile("aws-lambda-x86"), 1024)
    # With 1024 of the 1769 MB of a whole core its tail is 0.05 / (1024 / 1769) = 0.0864 s.
    assert aws.function_nusd(0.9136) == math.ceil(16_666.7 + 200)
    assert Rates(price_profile("aws-lambda-x86"), 3538).tail_s == 0.05
    assert aws.requests_nusd(10, 2) == 10 * 400 + 2 * 5_000
    assert aws.servers_nusd(0.0) == 0
    assert aws.servers_nusd(0.1) == aws.servers_nusd(1.0) == math.ceil(0.156 / 3600 * NUSD)


def test_servers_are_as_many_as_there_are() -> None:
    one, three = Rates(price_profile("aws-lambda-arm"), 1769), Rates(price_profile("aws-lambda-arm"), 1769, 3, True)
    assert three.server_usd_s["redis"] == pytest.approx(3 * one.server_usd_s["redis"])
    assert one.server_usd_s["broker"] == 0 < three.server_usd_s["broker"]
    assert three.servers_usd_s == three.server_usd_s["redis"] + three.server_usd_s["broker"]


@given(st.floats(1e-9, 1e6))
def test_a_cap_never_grows_by_rounding(usd: float) -> None:
    nusd = to_nusd(usd)
    assert Decimal(nusd) / NUSD <= Decimal(repr(usd)) < Decimal(nusd + 1) / NUSD
    assert nusd / NUSD <= usd


@given(st.integers(0, 10**14))
def test_a_cap_of_whole_nanodollars_is_kept(nusd: int) -> None:
    assert to_nusd(nusd / NUSD) == nusd


def test_dollars_are_taken_as_they_are_written() -> None:
    assert [to_nusd(usd) for usd in (0.29, 0.57, 1, 0.1 + 0.2, 1e-9, 9.9e-10)] == [
        290_000_000,
        570_000_000,
        NUSD,
        300_000_000,
        1,
        0,
    ]


@given(st.lists(st.integers(0, 10**13), min_size=5, max_size=5))
def test_the_total_is_the_sum_of_the_parts_and_keeps_the_cap(parts: list[int]) -> None:
    cost = Cost.of_nusd(dict(zip(COMPONENTS, parts, strict=True)))
    assert to_nusd(cost.total) == sum(parts)
    assert cost.total == sum(parts) / NUSD  # so it is never above a cap of as many nano-dollars
    assert cost.total == pytest.approx(sum(cost.values()))


def test_a_cost_says_its_parts() -> None:
    assert str(Cost(workers=0.1, redis=0.25)) == "$0.350000 (workers $0.100000, redis $0.250000)"


def test_a_cost_is_a_mapping_and_has_its_components_as_attributes() -> None:
    cost = Cost(workers=0.1, redis=0.25)
    assert dict(cost) == {"workers": 0.1, "supervisor": 0.0, "redis": 0.25, "broker": 0.0, "storage": 0.0}
    assert (cost.workers, cost["redis"], cost.broker) == (0.1, 0.25, 0.0)
    assert cost == Cost(redis=0.25, workers=0.1)
    assert cost != Cost(redis=0.25)
    assert hash(cost) == hash(Cost(redis=0.25, workers=0.1))
    with pytest.raises(AttributeError, match="'dynamodb'"):
        _ = cost.dynamodb
    assert copy.deepcopy(cost) == cost
    assert repr(Cost(**cost)) == repr(cost)


def test_what_the_store_did_is_told_beside_the_cost() -> None:
    told = {"n_puts": 1200, "n_gets": 1, "put_bytes": 5000, "got_bytes": 999, "nusd": 750_000}
    profile = price_profile("aws-lambda-x86")
    over_table = StoreUse.of("dynamodb", told, Rates(profile, 1769))
    assert over_table == StoreUse("dynamodb", 1200, 1, 5000, 999, requests_usd=0.00075)
    cost = Cost.of_nusd({"dynamodb": 750_000}, over_table)
    assert cost.store is over_table
    assert str(cost) == (
        "$0.000750 (dynamodb $0.000750); frames in dynamodb: 1,200 puts of 5,000 B, 1 get of 999 B ($0.000750)"
    )
    assert cost.total == 0.00075  # what is told of the store is a part of it
    on_servers = StoreUse.of("memcached", {**told, "nusd": 0}, Rates(profile, 1769, store_servers=("memcached", 2)))
    assert on_servers is not None
    assert on_servers.start_s == 132
    assert on_servers.start_usd == pytest.approx(2 * 132 * 0.156 / 3600)
    assert str(on_servers).endswith("1 get of 999 B, 132 s of start-up ($0.011440)")
    assert StoreUse.from_json(on_servers.to_json()) == on_servers
    # Nobody has told: the supervisor is lost, or the record is of an earlier version.
    assert StoreUse.of("redis", {}, Rates(profile, 1769)) is StoreUse.from_json(None) is None


def test_a_store_that_is_priced_is_metered_and_billed() -> None:
    """A new store is a price: nothing else of the meter or of the cost names it."""
    profile = price_profile("aws-lambda-x86")
    table = RequestPrice("a table of keys", {"read": 1.25e-7, "write": 6.25e-7}, "2025-01", "a price list")
    rates = Rates(dataclasses.replace(profile, requests={**profile.requests, "dynamodb": table}), 1769)
    nusd = rates.store_nusd("dynamodb", read=3, write=2)
    assert nusd == 3 * 125 + 2 * 625
    cost = Cost.of_nusd({"workers": 5, "dynamodb": nusd})
    assert cost.dynamodb == nusd / NUSD
    assert to_nusd(cost.total) == nusd + 5
    assert "dynamodb $0.000002" in str(cost)


@given(RATES, SPANS)
def test_the_servers_bill_is_the_sum_of_its_parts(rates: Rates, span_s: float) -> None:
    nusd = rates.servers_nusd(span_s)
    parts = rates.servers_by_component(nusd)
    assert sum(parts.values()) == nusd
    assert set(parts) == {"redis", "broker"} | {rates.store_servers[0]} - {""}
    running = nusd - math.ceil(round(rates.servers_start_usd * NUSD, 3))
    assert abs(parts["redis"] - running * rates.server_usd_s["redis"] / rates.servers_usd_s) <= 0.5 + 1e-12 * nusd


def test_a_server_that_keeps_frames_is_billed_from_its_start() -> None:
    plain, cached = (
        Rates(price_profile("aws-lambda-x86"), 1769, store_servers=servers) for servers in (("", 0), ("memcached", 2))
    )
    usd_s = 2 * 0.156 / 3600
    more = cached.servers_nusd(10.0) - plain.servers_nusd(10.0)
    assert more / NUSD == pytest.approx((132 + 10) * usd_s, rel=1e-6)
    assert cached.servers_by_component(cached.servers_nusd(10.0))["memcached"] / NUSD == pytest.approx(
        (132 + 10) * usd_s, rel=1e-6
    )


@pytest.mark.parametrize("name", profile_names())
def test_each_price_says_as_of_when_and_from_where(name: str) -> None:
    profile = price_profile(name)
    assert profile.name == name
    for item in (profile.function, *profile.servers.values(), *profile.requests.values()):
        assert item.item
        assert item.source
        assert item.as_of[:2] == "20"
    assert profile.function.usd_per_gb_s > 0
    assert profile.function.quantum_s > 0
    assert profile.servers["redis"].usd_per_h > 0
