"""How many updates a step waits for: the estimates of DBW against direct formulas, and what the rules do with them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from mlless_nb import DBW
from mlless_nb.exchange.policies.gradient_spread import SpreadMeter
from mlless_nb.exchange.stats import NO_STATS
from mlless_nb.kernels import encode_update
from mlless_nb.supervisor.policy.backup_workers import FallingLoss, GainPerSecond, QuorumRule, rule_of
from mlless_nb.supervisor.policy.gain import MOST_SMOOTHNESS, RECENT, RECENT_BOUNDED, GainEstimate
from mlless_nb.supervisor.policy.loss_rise import LossRise
from mlless_nb.supervisor.policy.monotone_times import fit_times
from mlless_nb.supervisor.policy.round_times import REMEMBERED, RoundTimes


def constraints(n: int) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """The pairs of cells (smaller, larger) of problem (17), 0-based."""
    cells = list(itertools.product(range(n), range(n)))
    pairs = [((h, k), (h, k + 1)) for h, k in cells if k + 1 < n]
    pairs += [((h + 1, k), (h, k)) for h, k in cells if h + 1 < n]
    return pairs + [((k, k), (k + 1, k + 1)) for k in range(n - 1)]


def loss(x: np.ndarray, mean: np.ndarray, count: np.ndarray) -> float:
    known = count > 0
    return float(np.sum(count[known] * (x[known] - mean[known]) ** 2))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_fitted_times_are_the_constrained_least_squares(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    mean, count = rng.exponential(1.0, (n, n)), rng.integers(0, 4, (n, n)).astype(float)
    count[rng.integers(n), rng.integers(n)] += 1
    fitted, pairs = fit_times(mean, count), constraints(n)
    assert all(fitted[low] <= fitted[high] + 1e-12 for low, high in pairs)
    limits = [
        {"type": "ineq", "fun": lambda x, a=low, b=high: x.reshape(n, n)[b] - x.reshape(n, n)[a]} for low, high in pairs
    ]
    known = np.full((n, n), mean[count > 0].mean())
    best = minimize(lambda x: loss(x.reshape(n, n), mean, count), known.ravel(), constraints=limits, method="SLSQP")
    assert loss(fitted, mean, count) <= best.fun + 1e-6


def test_times_are_those_from_the_end_of_the_step_before_also_of_late_arrivals() -> None:
    times = RoundTimes(2)
    assert times.estimate() is None
    times.append(1, 2, [0.5, 1.0], 1.0)  # nothing is known of its begin
    times.append(2, 1, [1.4], 1.4)  # after a step that waited for 2
    times.note(2, 2, 3.0)
    times.append(3, 1, [1.9], 1.9)  # after one that waited for 1
    times.note(3, 2, 2.4)
    # x[2, 1] = 0.4, x[2, 2] = 2, x[1, 1] = 0.5, x[1, 2] = 1: the last must not be below x[2, 2].
    older = 2 * REMEMBERED
    np.testing.assert_allclose(times.estimate(), [0.5, (older + 1) / (REMEMBERED + 1)])


def test_a_slowdown_is_seen_after_many_quick_steps() -> None:
    times, now = RoundTimes(2), 0.0
    for step in range(1, 400):
        slow = 5.0 if step > 300 else 1.0
        times.append(step, 2, [now + 1.0, now + slow], now + slow)
        now += slow
    np.testing.assert_allclose(times.estimate(), [1.0, 5.0], rtol=0.15)


def test_all_times_count_the_same_by_the_paper_and_older_ones_less_otherwise() -> None:
    found = {}
    for kind in ("estimated", "paper"):
        rule, now = GainPerSecond(2, kind), 0.0
        rule.rate = 0.01
        for step in range(1, 102):  # the first one's beginning is not known: 50 of a second, and 50 of five
            took_s = 1.0 if step <= 51 else 5.0
            now = feed(rule, step, 2, 10.0 - 0.03 * step, now, [took_s, took_s])
            rule.note_gradients(2, 9.0, 0.0)
        rule.quorum()
        found[kind] = rule.numbers()["time_of_all_s"]
    assert found["paper"] == pytest.approx(3.0)
    assert found["estimated"] > 3.5


def test_the_gain_is_the_papers_formula_of_the_last_means() -> None:
    (gain, bounded), rate, n = (GainEstimate(is_bounded=False), GainEstimate()), 0.1, 8
    losses, squares, variances = [3.0, 2.5, 2.2, 2.0, 1.9, 1.8, 1.7], [9.0, 8, 7, 6, 5, 4, 3], [2.0, 3, 4, 3, 2, 1, 2]
    for F, mean_square, V in zip(losses, squares, variances, strict=True):
        for one in (gain, bounded):
            one.note_loss(F)
            one.note_gradients(4, mean_square, V, rate)
    N = [max(square - V / 4, 0.0) for square, V in zip(squares, variances, strict=True)]
    L = [
        2 * (rate * N[t] - (losses[t] - losses[t + 1])) / (rate**2 * (N[t] + variances[t] / 4))
        for t in range(len(losses) - 1)
    ]
    assert RECENT < len(L) < RECENT_BOUNDED
    N_, V_, L_ = (float(np.mean(values[-RECENT:])) for values in (N, variances, L))
    expected = [(rate - L_ * rate**2 / 2) * N_ - L_ * rate**2 / 2 * V_ / k for k in range(1, n + 1)]
    np.testing.assert_allclose(gain.estimate(n, rate), expected)
    assert L_ > 0
    # Of two rates the larger one is above the bound's, so L is taken to be the bound there.
    N_, V_, L_ = (float(np.mean(values)) for values in (N, variances, L))
    for other in (0.5 / L_, 4 / L_):
        bound = min(L_, MOST_SMOOTHNESS / other)
        expected = [(other - bound * other**2 / 2) * N_ - bound * other**2 / 2 * V_ / k for k in range(1, n + 1)]
        np.testing.assert_allclose(bounded.estimate(n, other), expected)


@pytest.mark.parametrize(("n", "first"), [(1, 1), (2, 2), (3, 2), (16, 8)])
def test_the_first_steps_wait_for_half_of_the_workers_until_their_times_are_known(n: int, first: int) -> None:
    assert DBW().first_quorum(n) == first
    assert DBW(gain="paper").first_quorum(n) == DBW(gain="blind").first_quorum(n) == n
    rule = GainPerSecond(n)
    rule.rate = 0.1
    feed(rule, 1, first, 1.0, 0.0, [1.0] * n)
    assert rule.quorum() == first  # when the first step began is not known
    feed(rule, 2, first, 1.0, 1.0, [1.0] * n)
    assert rule.quorum() == n


def test_a_single_gradient_keeps_the_last_variance() -> None:
    gain = GainEstimate()
    gain.note_gradients(4, 5.0, 2.0, 0.1)
    gain.note_gradients(1, 5.0, None, 0.1)
    assert list(gain.variance) == [2.0, 2.0]
    assert list(gain.gradient_square) == [4.5, 3.0]


def feed(rule: QuorumRule, step: int, k: int, loss: float, begun_s: float, arrivals: list[float]) -> float:
    """One step whose workers arrive ``arrivals`` seconds after its begin; returns its end."""
    at = [begun_s + one for one in arrivals]
    rule.note_step(step, k, loss, at[:k], at[k - 1])
    for rank, late in enumerate(at[k:], k + 1):
        rule.note_late(step, rank, late)
    return at[k - 1]


def test_before_gains_are_known_updates_per_second_count_and_by_the_paper_all_workers() -> None:
    for kind, expected in (("estimated", 3), ("paper", 4)):
        rule = GainPerSecond(4, kind)
        rule.rate = 0.1
        assert rule.quorum() == 4
        now = feed(rule, 1, 4, 1.0, 0.0, [1.0, 1.2, 1.5, 6.0])
        now = feed(rule, 2, 4, 1.0, now, [1.0, 1.2, 1.5, 6.0])
        assert rule.quorum() == expected  # 1/1, 2/1.2, 3/1.5, 4/6
        for step in range(3, 10):  # gradients that are nothing but noise, and a loss that stays
            rule.note_gradients(4, 1.0, 4.0)
            now = feed(rule, step, 4, 1.0, now, [1.0, 1.2, 1.5, 6.0])
        assert rule.quorum() == expected


def test_a_straggler_is_not_waited_for_and_noise_is_paid_with_workers() -> None:
    for variance, expected in ((0.0, 1), (1e4, 3)):
        rule, now = GainPerSecond(4), 0.0
        rule.rate = 0.01
        assert rule.quorum() == 4
        for step in range(1, 30):
            now = feed(rule, step, rule.quorum(), 10.0 - 0.03 * step, now, [1.0, 1.05, 1.1, 9.0])
            # |g|^2 of a gradient of norm 3 with that variance, from as many gradients as are asked for.
            k = rule.quorum()
            rule.note_gradients(k, 9.0 + variance / k, variance if k > 1 else None)
        assert rule.quorum() == expected, variance


def test_blind_takes_the_most_updates_per_second() -> None:
    rule, now = GainPerSecond(4, "blind"), 0.0
    for step in range(1, 20):
        now = feed(rule, step, rule.quorum(), 1.0, now, [1.0, 1.2, 1.5, 6.0])
    assert rule.quorum() == 3  # 1/1, 2/1.2, 3/1.5, 4/6


def test_a_loss_that_rises_asks_for_one_more() -> None:
    rule, now = GainPerSecond(8, "blind"), 0.0
    arrivals = [1.0 * (rank + 1) ** 2 for rank in range(8)]  # one update is the cheapest
    for step in range(1, 20):
        now = feed(rule, step, rule.quorum(), 1.0, now, arrivals)
    assert rule.quorum() == 1
    now = feed(rule, 20, 1, 1.02, now, arrivals)
    assert rule.quorum() == 2
    now = feed(rule, 21, 2, 1.04, now, arrivals)
    assert rule.quorum() == 3
    feed(rule, 22, 3, 1.04, now, arrivals)
    assert rule.quorum() == 1


def test_a_rise_within_its_noise_is_none_but_for_the_paper() -> None:
    tested, printed = LossRise(is_tested=True), LossRise(is_tested=False)
    # Mean losses of 4 minibatches, then of 1; a single one differs by 0.1 from their mean, so that two errors are 0.22.
    for newest, *expected in (
        (1.0, False, False),
        (1.1, False, True),
        (1.3, True, True),
        (math.nan, True, True),
    ):
        found = []
        for rise in (tested, printed):
            rise.note(1.0, 4, 0.01)
            rise.note(newest, 1, None)
            found.append(rise.has_risen)
        assert found == expected, newest
    new = LossRise(is_tested=True)  # nothing is known of the noise yet
    new.note(1.0, 1, None)
    assert not new.has_risen
    new.note(1.02, 1, None)
    assert new.has_risen


@given(st.integers(1, 40), st.integers(1, 40), st.lists(st.floats(0.01, 10), min_size=2, max_size=8))
def test_adasync_waits_for_more_as_the_loss_falls(n: int, first: int, losses: list[float]) -> None:
    rule = FallingLoss(n, first)
    found = []
    for step, one in enumerate(sorted(losses, reverse=True), 1):
        feed(rule, step, rule.quorum(), one, float(step), [0.5] * n)
        found.append(rule.quorum())
    assert found[0] == min(first, n)
    assert found == sorted(found)
    assert all(1 <= k <= n for k in found)


def test_rules_of_protocols() -> None:
    assert rule_of({"kind": "bsp"}, 4) is None
    assert rule_of({"kind": "backup-workers", "k": 2}, 4) is None
    assert isinstance(rule_of({"kind": "dbw", "gain": "blind"}, 4), GainPerSecond)
    assert isinstance(rule_of({"kind": "adasync", "first": 2}, 4), FallingLoss)


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_the_spread_of_gradients_is_measured_from_their_updates(k: int, seed: int) -> None:
    rng, rate, shape = np.random.default_rng(seed), 0.25, (20, 3)
    gradients, frames = np.zeros((k, *shape)), []
    for number in range(k):
        rows = np.sort(rng.choice(shape[0], rng.integers(1, 8), replace=False)).astype(np.int32)
        gradients[number, rows] = rng.normal(size=(len(rows), shape[1]))
        update = np.ascontiguousarray(-rate / k * gradients[number, rows], dtype=np.float32)
        frames.append(encode_update(rows, update, 1, number, shape[0], NO_STATS))
    meter = SpreadMeter(shape[0] * shape[1])
    for _ in range(2):  # the second time as the first: nothing is left behind
        found = meter.measure(frames, rate)
        assert found.mean_square == pytest.approx(np.sum(gradients.mean(axis=0) ** 2), rel=1e-4, abs=1e-9)
        expected = np.sum(gradients.var(axis=0, ddof=1)) if k > 1 else -1.0
        assert found.variance == pytest.approx(expected, rel=1e-4, abs=1e-6)
        assert found.learning_rate == rate
    assert math.isnan(GainPerSecond(2).rate)
