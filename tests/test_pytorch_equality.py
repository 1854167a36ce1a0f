"""A worker's loop equals PyTorch step by step; P workers that average equal one with P times the minibatch."""

from __future__ import annotations

import functools
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine.threads import OBJECTS, Job, Outcome, train

from mlless_nb import BSP, ISP, PMF, SGD, AdaGrad, Adam, LogisticRegression, datasets
from mlless_nb.data.prepare import Manifest, pack
from mlless_nb.job.optimizers import Optimizer
from mlless_nb.job.sync import Sync
from mlless_nb.storage.checkpoint import Progress

_spec = importlib.util.spec_from_file_location("record_trajectories", Path(__file__).parent / "record_trajectories.py")
assert _spec is not None
assert _spec.loader is not None
recording = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(recording)

DATA = recording.problem()
OPTIMIZERS: dict[str, Any] = {"SGD": SGD, "Adam": Adam, "Adagrad": AdaGrad}


@functools.cache
def packed(kind: str, size: int, order: tuple[int, ...] = ()) -> Manifest:
    """The problem's rows as workers get them: as they are, or in this order."""
    rows = np.array(order) if order else np.arange(recording.N)
    if kind == "pmf":
        shape = recording.N_USERS, recording.N_ITEMS
        data = datasets.ratings(DATA.user[rows], DATA.item[rows], DATA.rating[rows], *shape)
    else:
        data = datasets.csr(DATA.X[rows], DATA.y[rows])
    return pack(data, size, None, OBJECTS)


def run(
    kind: str,
    l2: float,
    optimizer: Optimizer,
    manifest: Manifest,
    steps: int,
    n_workers: int = 1,
    sync: Sync | None = None,
) -> Outcome:
    """Workers that begin where PyTorch does, after so many steps."""
    key = f"start-{kind}"
    OBJECTS.put(key, Progress(DATA.factors if kind == "pmf" else DATA.weights).encode())
    model = PMF(rank=recording.RANK, l2=l2) if kind == "pmf" else LogisticRegression(l2=l2)
    return train(Job(model, optimizer, sync or BSP(), n_workers, steps, "mean", {}, packed_as=manifest, start_key=key))


def losses(outcome: Outcome) -> list[float]:
    """Per step: the sum of all workers' losses before it."""
    return [sum(report.loss_sum for report in entry.reports.values()) for entry in outcome.hub.steps]


@functools.cache
def trajectory(name: str, is_lazy: bool) -> tuple[list[float], dict[int, np.ndarray]]:
    """The sum of losses before each step, and the parameters after those that are recorded, by one worker."""
    case = recording.CASES[name]
    fields = {"learning_rate" if key == "lr" else key: value for key, value in case.arguments.items()}
    optimizer = OPTIMIZERS[case.optimizer](**fields, lazy=is_lazy)
    manifest, ends = packed(case.model, case.size), {}
    for step in recording.RECORDED_STEPS:
        outcome = run(case.model, case.l2, optimizer, manifest, step)
        ends[step] = outcome.workers[0].params
    return losses(outcome), ends


def assert_close(got: np.ndarray, expected: np.ndarray) -> None:
    """Equal to 1e-4, relative to the value, and to the table's spread where a value is next to 0."""
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * float(np.std(expected)) + 1e-9)


@pytest.mark.parametrize("name", recording.CASES)
def test_one_worker_equals_recorded_pytorch(name: str) -> None:
    recorded = json.loads(recording.RECORDED.read_text(encoding="utf-8"))["cases"][name]
    told, tables = trajectory(name, recording.CASES[name].is_lazy)
    assert len(told) == recording.N_STEPS
    np.testing.assert_allclose(told, recorded["losses"], rtol=1e-4)
    assert [str(step) for step in tables] == list(recorded["params"])
    for step, params in tables.items():
        assert_close(params.ravel(), np.array(recorded["params"][str(step)]))


@pytest.mark.torch
@pytest.mark.parametrize("name", recording.CASES)
def test_one_worker_equals_pytorch(name: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
    torch_losses, torch_tables = recording.torch_trajectory(name)
    told, tables = trajectory(name, recording.CASES[name].is_lazy)
    np.testing.assert_allclose(told, torch_losses, rtol=1e-4)
    for step, params in tables.items():
        assert_close(params, torch_tables[step - 1])


@pytest.mark.parametrize("name", [name for name, case in recording.CASES.items() if case.is_lazy])
def test_what_is_lazy_and_what_is_exact_are_told_apart(name: str) -> None:
    """Else a lazy optimiser that is not would equal the recorded one too."""
    lazy, exact = (trajectory(name, is_lazy)[1][recording.N_STEPS] for is_lazy in (True, False))
    assert np.abs(lazy - exact).max() > 0.02 * np.std(exact)


@pytest.mark.parametrize("kind", ["pmf", "logistic"])
@pytest.mark.parametrize(
    "optimizer",
    [SGD(0.4), SGD(0.4, momentum=0.8), SGD(0.4, momentum=0.8, nesterov=True), SGD(0.4, decay=0.5)],
    ids=str,
)
@pytest.mark.parametrize("n_workers", [2, 4])
def test_averaging_workers_equal_one_with_a_larger_minibatch(kind: str, optimizer: Optimizer, n_workers: int) -> None:
    l2, size, steps = (0.1 if kind == "pmf" else 0.05), 19, 30
    n_epoch = recording.N // (n_workers * size)
    # Each of several has minibatches that lie side by side; the one takes, step by step, what they all do.
    order = np.arange(recording.N).reshape(n_workers, n_epoch, size).transpose(1, 0, 2).ravel()
    together = run(kind, l2, optimizer, packed(kind, size), steps, n_workers)
    alone = run(kind, l2, optimizer, packed(kind, n_workers * size, tuple(order)), steps)
    np.testing.assert_allclose(losses(together), losses(alone), rtol=1e-4)
    for worker in together.workers:
        assert_close(worker.params, alone.workers[0].params)


@pytest.mark.parametrize("lazy", [False, True])
def test_no_filter_and_a_threshold_of_0_are_the_same_to_the_bit(lazy: bool) -> None:
    optimizer = SGD(0.4, momentum=0.8, nesterov=True, lazy=lazy)
    bsp, isp = (run("pmf", 0.1, optimizer, packed("pmf", recording.SIZE), 30, 2, sync) for sync in (BSP(), ISP(0.0)))
    for one, two in zip(bsp.workers, isp.workers, strict=True):
        assert one.params.tobytes() == two.params.tobytes()
