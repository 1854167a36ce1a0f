"""Designs in more ways than the contract of each (`test_contract.py`): resumed, with other patterns and functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from engine.designs import STORES, Design, address_of, allowed, check
from engine.jobs import PATIENCE_S, finish
from engine.models import MODELS

import mlless_nb
from mlless_nb import BSP, EM, ISP, GradientAveraging, JobError, Stop, TrainingJob

pytestmark = pytest.mark.long

LOCKSTEP = [design for design in allowed() if design.sync == BSP()]
#: One for each kind of data and of algorithm.
FEW = ("pmf", "logistic", "k-means")


def design_of(model: str, store: str = "redis", workers: int = 3) -> Design:
    """A design whose algorithm is the default, under BSP."""
    return Design(model, EM() if model == "k-means" else GradientAveraging(), BSP(), store, workers)


def check_two_runs_are_one(fields: dict[str, Any]) -> None:
    """Check that eight steps are the bits of three and then five that go on from a stored state."""
    fields = fields | {"schedule": "constant", "partition": "rows"}
    whole, half = (finish(TrainingJob(**fields | {"stop": Stop(steps=steps)})) for steps in (8, 3))
    rest = mlless_nb.train(TrainingJob(**fields | {"stop": Stop(steps=5)}), resume=half)
    assert rest.wait(PATIENCE_S) == "finished", rest.reason
    for name in ("loss", "validation_loss"):
        both = np.concatenate([run.history[name] for run in (half, rest)])
        np.testing.assert_array_equal(both, whole.history[name])
    for name, array in whole.last_model.params.items():
        np.testing.assert_array_equal(rest.last_model.params[name], array)


@pytest.mark.parametrize("design", [design for design in LOCKSTEP if design.store == "redis"], ids=str)
def test_two_runs_of_models_and_algorithms_are_one_bit_for_bit(design: Design) -> None:
    check_two_runs_are_one(design.job_fields())


@pytest.mark.parametrize("store", [store for store in STORES if store != "redis"])
@pytest.mark.parametrize("model", FEW)
def test_two_runs_over_a_store_are_one_bit_for_bit(model: str, store: str, request: pytest.FixtureRequest) -> None:
    check_two_runs_are_one(design_of(model).job_fields(address_of(store, request)))


@pytest.mark.parametrize("pattern", ["scatter-reduce", "allreduce"])
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("model", FEW)
def test_stores_under_every_pattern(model: str, store: str, pattern: str, request: pytest.FixtureRequest) -> None:
    job = TrainingJob(**design_of(model).job_fields(address_of(store, request), pattern=pattern))
    check(finish(job), job)


@pytest.mark.parametrize("execution", ["map-reduce", "events"])
@pytest.mark.parametrize("model", [model for model in MODELS if model != "k-means"])
def test_stateless_runs_of_every_model(model: str, execution: str) -> None:
    for workers in (3, 1):
        fields = design_of(model, workers=workers).job_fields(execution=execution, stop=Stop(steps=3))
        job = TrainingJob(**fields)
        check(finish(job), job)
        with pytest.raises(JobError):
            TrainingJob(**fields | {"sync": ISP(0.7)})
