"""Which replica is the worst: judged on the same rows by every worker, also where users are sharded across workers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from engine.threads import Job, Observed, train

from mlless_nb import BSP, ISP, PMF, SGD, Stop
from mlless_nb.exchange.step_report import Report
from mlless_nb.supervisor.policy.victim import worst_worker
from mlless_nb.worker.evaluation import HeldOut
from mlless_nb.worker.replica import Replica

JOB = Job(PMF(rank=2), SGD(0.5), ISP(0.7), 3, 16, "mean", {}, by_user=True)


def reports(job: Job) -> list[dict[int, Report]]:
    """The reports of each step, by slot."""
    return [dict(entry.reports) for entry in train(job).hub.steps]


def test_where_users_are_sharded_replicas_are_judged_by_what_all_of_them_have() -> None:
    rows = reports(JOB)
    qualities = [[row[slot][4:6] for slot in range(3)] for row in rows]
    assert qualities[:3] == [[(0.0, 0.0)] * 3] * 3  # the first evaluation is after step 3
    for row in qualities[3:]:
        assert len({count for _, count in row}) == 1
        assert row[0][1] > 0
        assert len(set(row)) == 3  # replicas differ
    assert len({row[0] for row in qualities[3:]}) == 5  # one for each evaluation
    # The worst one leaves, and not the slowest.
    last = rows[-1]
    losses = {slot: report.quality_sum for slot, report in last.items()}
    assert worst_worker(last, [0, 1, 2]) == max(losses, key=lambda slot: losses[slot])


@pytest.mark.parametrize("sync", [BSP(), ISP(0.0)], ids=str)
def test_replicas_that_cannot_differ_are_not_compared(sync: BSP | ISP) -> None:
    for row in reports(dataclasses.replace(JOB, sync=sync)):
        assert {report[4:6] for report in row.values()} == {(0.0, 0.0)}


def test_equal_replicas_are_equally_good() -> None:
    """Nearly all is published, so the items are equal up to rounding, and the users of each worker still differ."""
    rows = reports(dataclasses.replace(JOB, sync=ISP(1e-9)))
    for row in rows[3:]:
        losses = [report.quality_sum / report.quality_count for report in row.values()]
        np.testing.assert_allclose(losses, losses[0], rtol=1e-6)
    slow = {slot: report._replace(compute_s=float(slot == 1), exchange_s=0.0) for slot, report in rows[-1].items()}
    assert worst_worker(slow, [0, 1, 2]) == 1


@pytest.mark.parametrize("slot", [0, 1, 2])
def test_the_worker_whose_items_are_spoilt_leaves(slot: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it owns the users of the common rows, whose parameters it alone has learnt."""
    compare, n_compared = HeldOut.compare, []

    def spoilt(held_out: HeldOut) -> tuple[float, float]:
        replica = held_out._replica
        n_compared.extend([1] * (held_out._slot == slot))
        if held_out._slot == slot and len(n_compared) == 11:
            draws = np.random.default_rng(4)
            replica.params[40:] += draws.normal(scale=0.3, size=replica.params[40:].shape).astype(np.float32)
        return compare(held_out)

    monkeypatch.setattr(HeldOut, "compare", spoilt)
    monkeypatch.setattr(Observed, "_check_conservation", lambda worker: None)  # nobody published the spoiling
    *_, last = reports(dataclasses.replace(JOB, steps=40, stop=Stop(steps=40)))
    assert len(n_compared) == 13
    assert worst_worker(last, [0, 1, 2]) == slot


def test_to_compare_costs_no_more_requests_than_where_rows_are_sharded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One held-out minibatch, of which every worker reads a bounded number of ratings, and no exchange."""
    n_compared: list[int] = []
    compare = Replica.compare

    def counted(replica: Replica, minibatch: object) -> tuple[float, float]:
        sums = compare(replica, minibatch)  # type: ignore[arg-type]
        n_compared.append(int(sums[1]))
        assert sums[1] <= minibatch.n  # type: ignore[attr-defined]
        return sums

    monkeypatch.setattr(Replica, "compare", counted)
    rounds, requests = [], []
    for by_user in (True, False):
        outcome = train(dataclasses.replace(JOB, by_user=by_user))
        rounds.append(len(n_compared))
        n_compared.clear()
        requests.append([worker._held_out._feed.n_gets({0}) for worker in outcome.workers])  # type: ignore[union-attr]
    assert rounds == [15, 15]  # five evaluations of three workers
    assert requests[0] == requests[1] == [0, 0, 0]  # it is in memory
