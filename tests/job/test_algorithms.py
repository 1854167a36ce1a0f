"""What jobs with model averaging and ADMM decide, and what they refuse."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from mlless_nb import (
    ADMM,
    BSP,
    FTRL,
    ISP,
    PMF,
    SGD,
    SSP,
    GradientAveraging,
    JobError,
    LogisticRegression,
    ModelAveraging,
    ScaleIn,
    Stop,
    TrainingJob,
    datasets,
)
from mlless_nb.job.algorithm import algorithm_from_json

EPOCH, CONSENSUS = ModelAveraging(), ADMM(0.1)


def job(**changes: Any) -> TrainingJob:
    """600 rows in 12 minibatches, three workers."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4)).astype(np.float32)
    fields: dict[str, Any] = {
        "model": LogisticRegression(),
        "optimizer": SGD(0.2),
        "data": datasets.csr(X, (X[:, 0] > 0.2).astype(np.float32)),
        "workers": 3,
        "minibatch": 50,
        "validation": None,
    }
    return TrainingJob(**(fields | changes))


@pytest.mark.parametrize(
    ("algorithm", "steps"), [(EPOCH, 4), (ModelAveraging(3), 3), (ModelAveraging(1), 1), (CONSENSUS, 4)]
)
def test_the_algorithm_decides_the_local_steps_again_for_each_changed_job(algorithm: Any, steps: int) -> None:
    made = job(algorithm=algorithm)
    assert made.local_steps == steps
    assert dataclasses.replace(made) == made
    assert dataclasses.replace(made, stop=Stop(steps=3)).local_steps == steps
    is_shard = steps == 4
    assert dataclasses.replace(made, workers=2).local_steps == (6 if is_shard else steps)
    assert dataclasses.replace(made, workers=None, minibatch=None).workers == 1
    assert dataclasses.replace(made, algorithm=GradientAveraging()).local_steps == 1


def test_the_users_local_steps_stay_with_gradient_averaging() -> None:
    made = job(local_steps=2)
    assert dataclasses.replace(made, stop=Stop(steps=3)).local_steps == 2
    with pytest.raises(JobError, match=r"local_steps=2: must be left out with ModelAveraging"):
        dataclasses.replace(made, algorithm=EPOCH)


def test_limits_count_passes_over_the_data() -> None:
    without, averaging, consensus = job(), job(algorithm=EPOCH), job(algorithm=CONSENSUS)
    assert without.stop_rules.epochs == averaging.stop_rules.epochs
    assert consensus.stop_rules.epochs == 10 * averaging.stop_rules.epochs  # type: ignore[operator]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": EPOCH, "local_steps": 4}, r"local_steps=4: must be left out with ModelAveraging"),
        ({"algorithm": CONSENSUS, "local_steps": 4}, r"local_steps=4: must be left out with ADMM"),
        ({"algorithm": EPOCH, "sync": SSP(2)}, r"sync=.*: must be BSP\(\) or ISP"),
        ({"algorithm": EPOCH, "sync": ISP(0.7, staleness=2)}, r"sync=.*: must be BSP\(\) or ISP"),
        ({"algorithm": EPOCH, "aggregate": "sum"}, r"aggregate='sum': must be 'mean'"),
        ({"algorithm": ModelAveraging(9)}, r"workers=3: must be at most 1"),
        ({"algorithm": CONSENSUS, "sync": ISP(0.7)}, r"sync=.*: must be BSP\(\) with ADMM"),
        ({"algorithm": CONSENSUS, "sync": SSP(2)}, r"sync=.*: must be BSP\(\) with ADMM"),
        ({"algorithm": CONSENSUS, "codec": "bf16"}, r"codec='bf16': must be 'float32'"),
        ({"algorithm": CONSENSUS, "aggregate": "sum"}, r"aggregate='sum': must be 'mean'"),
        ({"algorithm": CONSENSUS, "optimizer": FTRL(0.1)}, r"optimizer=.*: must be SGD"),
        ({"algorithm": CONSENSUS, "scale_in": ScaleIn(global_minibatch="shrink")}, r"'shrink': must be 'keep'"),
        (
            {
                "algorithm": CONSENSUS,
                "model": PMF(rank=2),
                "data": datasets.synthetic_ratings(40, 30, 600, rank=2, seed=1),
            },
            r"algorithm=.*: must be GradientAveraging\(\) or ModelAveraging\(\) with .*: not convex",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(JobError, match=message) as refused:
        job(**changes)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ModelAveraging("hour"), r"ModelAveraging\.every='hour'"),
        (lambda: ModelAveraging(0), r"ModelAveraging\.every=0"),
        (lambda: ModelAveraging(True), r"ModelAveraging\.every=True"),
        (lambda: ADMM(0.0), r"ADMM\.rho=0\.0"),
        (lambda: ADMM(float("nan")), r"ADMM\.rho=nan"),
        (lambda: ADMM(1.0, scans=0), r"ADMM\.scans=0"),
        (lambda: ADMM(l1=-0.1), r"ADMM\.l1=-0\.1"),
    ],
)
def test_wrong_settings_are_refused(make: Any, message: str) -> None:
    with pytest.raises(JobError, match=message):
        make()


@pytest.mark.parametrize("algorithm", [EPOCH, ModelAveraging(7), CONSENSUS, ADMM(2.0, 3, 0.1)])
def test_they_are_known_to_functions(algorithm: Any) -> None:
    assert algorithm_from_json(algorithm.to_json()) == algorithm
    assert job(sync=BSP(), algorithm=ADMM(1)).algorithm.to_json() == {"kind": "admm", "rho": 1, "scans": 10, "l1": 0.0}


def test_the_description_names_the_algorithm() -> None:
    assert job(algorithm=ADMM()).describe().endswith("BSP · ADMM, rho 0.003, 10 scans")
    assert job(algorithm=ModelAveraging(8), minibatch=20).describe().endswith("model averaging every 8 minibatches")
    assert job().describe().endswith("BSP")
