"""Synchronisation protocols: the threshold of a step, and what a worker does with it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from engine.threads import Job, Observed, train

from mlless_nb import ASP, BSP, DBW, ISP, PMF, SGD, SSP, AdaSync, BackupWorkers
from mlless_nb.job.sync import Sync, sync_from_json


@pytest.mark.parametrize(
    ("step", "expected"), [(1, 0.7), (2, 0.7 / math.sqrt(2)), (4, 0.35), (49, 0.1), (10_000, 0.007)]
)
def test_the_threshold_falls_with_the_root_of_the_step(step: int, expected: float) -> None:
    assert ISP(0.7).threshold_at(step) == pytest.approx(expected, rel=1e-12)
    assert ISP(1.4, staleness=2, averages=True).threshold_at(step) == pytest.approx(2 * expected, rel=1e-12)


@pytest.mark.parametrize("sync", [BSP(), SSP(0), SSP(3), ISP(0.0)], ids=str)
def test_where_all_is_published_the_threshold_is_0_at_every_step(sync: Sync) -> None:
    assert [sync.threshold_at(step) for step in (1, 2, 100, 10**6)] == [0.0] * 4


@pytest.mark.parametrize("sync", [BSP(), SSP(5), ISP(0.3, 2, True)], ids=str)
def test_a_protocol_survives_its_json(sync: Sync) -> None:
    assert sync_from_json(sync.to_json()) == sync


@pytest.mark.parametrize("sync", [BSP(), SSP(5), ISP(0.3), ASP(), ASP(shared=True)], ids=str)
def test_the_slowest_worker_holds_up_the_others_where_no_late_update_is_dropped(sync: Sync) -> None:
    assert sync.waits_for_slowest


@pytest.mark.parametrize("sync", [BackupWorkers(2), DBW(), AdaSync(1)], ids=str)
def test_the_slowest_worker_holds_up_nobody_where_late_updates_are_dropped(sync: Sync) -> None:
    assert not sync.waits_for_slowest


def test_a_worker_holds_back_what_is_below_the_threshold_of_its_step_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Momentum moves the whole table, so that all of it is judged in every step, by the parameters before it."""
    held: list[float] = []
    published: list[float] = []
    make = Observed._make

    def made(worker: Observed, *arguments: Any) -> Any:
        params, produced = worker.params.ravel().astype(np.float64), worker.produced.copy()
        before = np.array(worker.held_back, np.float64)
        stats = make(worker, *arguments)
        delta, residual = before + worker.produced - produced, np.asarray(worker.held_back)
        is_held = residual != 0
        share = np.abs(delta) / np.abs(params) / ISP(0.7).threshold_at(worker._step)
        held.append(share[is_held].max(initial=0.0))
        published.append(share[~is_held & (delta != 0)].min(initial=np.inf))
        np.testing.assert_allclose(residual[is_held], delta[is_held], atol=1e-6)
        return stats

    monkeypatch.setattr(Observed, "_make", made)
    train(Job(PMF(rank=3, biases=False), SGD(0.5, momentum=0.5), ISP(0.7), 2, 25, "mean", {}))
    assert len(held) == 2 * 25
    assert 0.95 < max(held) <= 1 + 1e-4
    assert 1 - 1e-4 <= min(published) < 1.05
