"""What is known from before: how many epochs an earlier run took, and how quick a deployment's link to Redis is."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import mlless_nb
from mlless_nb import PMF, SGD, CommandError, JobError, LogisticRegression, Stop, TrainingJob, datasets
from mlless_nb.adviser import foresight, probe
from mlless_nb.adviser.constants import constants
from mlless_nb.adviser.earlier_run import epochs_of_run
from mlless_nb.driver.backends import deployed
from mlless_nb.telemetry.live import Row, RunState
from mlless_nb.telemetry.record import Record

RATINGS = datasets.synthetic_ratings(200, 150, 20_000, rank=3, seed=0)
JOB = TrainingJob(PMF(rank=4), SGD(4.0), RATINGS, workers=2, minibatch=500, stop=Stop(epochs=3))
REDIS = "redis://cache.example:6379/0"


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records and deployments of this test alone; and it measures briefly."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(probe, "STEPS_S", 0.01)


def recorded(name: str, losses: Sequence[float | None], *, validated: bool = True, **state: Any) -> None:
    """The record of a run with a step each half epoch, and these losses after them."""
    kept = Record(f"id-{name}")
    for step, loss in enumerate(losses, 1):
        row = dict.fromkeys(Row._fields, 0.0) | {"step": float(step), "epoch": step / 2, "loss": 0.5}
        row |= {"validation_loss": loss} if validated else {"validation_loss": None, "loss": loss}
        kept.append([list(row.values())])
    known = {"run_id": f"id-{name}", "name": name, "status": "finished", "metric": "RMSE", **state}
    kept.end({"state": RunState(**known).to_json(), "cost": {}, "job": {}, "resume": {}})


def to_target(target: float) -> TrainingJob:
    """The job, until a loss."""
    return dataclasses.replace(JOB, stop=Stop(target=target, epochs=50))


def test_a_job_takes_the_epochs_of_an_earlier_run() -> None:
    recorded("earlier", [0.9, 0.8, 0.7, 0.6])
    for run in ("earlier", "id-earlier", mlless_nb.attach("earlier")):
        advice = mlless_nb.advise(JOB, epochs=run, workers=[1, 2])
        assert advice.sizes.epochs == 2.0
        assert "2 epochs (those of the run earlier)" in repr(advice)


def test_with_a_target_it_takes_those_until_the_run_was_there() -> None:
    recorded("earlier", [0.9, None, 0.7, 0.75, 0.6])
    assert epochs_of_run(to_target(0.7), "earlier") == (1.5, "the run earlier reached the target 0.7 in these")
    assert epochs_of_run(to_target(0.69), "earlier")[0] == 2.5
    recorded("alone", [0.9, 0.7], validated=False)
    assert epochs_of_run(to_target(0.8), "alone")[0] == 1.0


@pytest.mark.parametrize(
    ("losses", "state", "says"),
    [
        ([0.9, None, 0.8], {}, "epochs='earlier': must be a run that reached the target 0.7: its lowest loss is 0.8"),
        ([0.6], {"metric": "log loss"}, "a run whose loss is RMSE as the target is, not log loss"),
        ([0.6], {"resumed_from": "another"}, "a run that began anew, not one that goes on from another"),
        ([], {}, "a run that has taken a step"),
    ],
)
def test_a_run_that_does_not_tell_is_refused(losses: list[float | None], state: dict[str, Any], says: str) -> None:
    recorded("earlier", losses, **state)
    with pytest.raises(JobError, match=says):
        mlless_nb.advise(to_target(0.7), epochs="earlier")


def test_a_run_that_is_live_or_unknown_is_refused() -> None:
    recorded("earlier", [0.9])
    live = mlless_nb.attach("earlier")
    live.telemetry.update(status="running")
    with pytest.raises(JobError, match="epochs='earlier': must be a run that has ended"):
        mlless_nb.advise(JOB, epochs=live)
    with pytest.raises(CommandError, match="no ended run is called 'second'"):
        mlless_nb.advise(JOB, epochs="second")


def test_the_measured_link_of_a_deployment_is_used() -> None:
    texts = ("region", "account", "user", "bucket", "role", "layer", "namespace", "runtime")
    about = dict.fromkeys((*texts, "python", "lithops", "sources", "wrapper"), "x")
    links = {"1024": [0.04, 2e6]}
    deployed.Profile(**about, memory_mb=[1024], concurrency=100, redis=REDIS, links=links).write()  # type: ignore[arg-type]
    there = dataclasses.replace(JOB, backend="aws_lambda", memory_mb=1024)
    measured = mlless_nb.advise(there, workers=[2])
    other = mlless_nb.advise(dataclasses.replace(there, memory_mb=2048), workers=[2])
    assert "Redis 40 ms and 2 MB/s as measured" in repr(measured)
    assert "as measured" not in repr(other)
    sizes = measured.sizes
    exchanged = {}
    for name, advice in (("measured", measured), ("other", other)):
        (redis,) = [option for option in advice.options if option.place == "Redis"]
        exchanged[name] = redis.exchange_s / sizes.n_rounds(2)
    # two workers' updates arrive and are sent, to each other, and each waits for two answers
    known = constants().channels["redis"]
    for name, link in (("measured", [0.04, 2e6]), ("other", [known.latency_s, known.bytes_s])):
        assert exchanged[name] == pytest.approx(2 * link[0] + 4 * sizes.update_bytes / link[1], rel=0.1, abs=2e-4)
    own = foresight.estimates_of(there, sizes)[2]
    assert own.epoch_s > foresight.estimates_of(dataclasses.replace(there, memory_mb=2048), sizes)[2].epoch_s
    named = dataclasses.replace(there, redis="redis://another.example:6379/0")
    assert "as measured" not in repr(mlless_nb.advise(named, workers=[2]))


def test_other_models_have_other_losses() -> None:
    recorded("earlier", [0.5, 0.4])
    clicks = datasets.synthetic_clicks(2000, n_features=50, seed=2)
    job = TrainingJob(LogisticRegression(), SGD(0.5), clicks, workers=2, minibatch=100)
    assert epochs_of_run(job, "earlier")[0] == 1.0
    with pytest.raises(JobError, match="a run whose loss is log loss"):
        epochs_of_run(dataclasses.replace(job, stop=Stop(target=0.45)), "earlier")
