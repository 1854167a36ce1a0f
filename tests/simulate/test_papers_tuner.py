"""The papers' scale-in tuner in a whole run: at the knee of the loss curve, and once an interval from then on."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("greenlet")

from simulate.test_simulate import free

from mlless_nb import ScaleIn, Stop
from mlless_nb.simulate import PowerCurve, Workload, simulate


def test_the_papers_tuner_removes_a_worker_at_the_knee_and_one_an_interval() -> None:
    curve = PowerCurve(start=2.0, floor=1.0, speed=0.2, noise=0.001, full_workers=12, noise_workers=0.1)
    paper = ScaleIn(policy="paper", interval_s=1.0, horizon_s=0.5)
    workload = Workload(workers=12, curve=curve, stop=Stop(steps=400), n=6250 * 400, scale_in=paper)

    run = simulate(workload, free(costs={"step_s": 0.02}))

    assert run.status == "finished", run.reason
    assert run.history["step"][-1] == 400
    acted = [decision for decision in run.decisions if decision["kind"] != "keep"]
    assert [decision["kind"] for decision in acted] == ["knee"] + ["remove"] * len(run.departures)
    assert acted[0]["step"] == acted[1]["step"]
    assert len(run.departures) >= 3
    assert np.diff([decision["time_s"] for decision in acted[1:]]).min() >= paper.interval_s
    n_workers = run.history["n_workers"]
    assert set(np.diff(n_workers)) == {0.0, -1.0}
    assert n_workers[0] - n_workers[-1] == len(run.departures)
    # No shard is taken over: an epoch gets longer with every worker that goes.
    epochs = np.diff(run.history["epoch"])
    np.testing.assert_allclose(epochs / epochs[0], n_workers[1:] / 12)
    told = [event.text for event in run.events if event.text.startswith("Removed worker")]
    assert "(12 -> 11) at the knee of the loss curve, as the paper does" in told[0]
    assert len(told) == len(run.departures)
