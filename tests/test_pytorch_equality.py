"""One worker equals PyTorch step by step; P workers that average equal one with P times the minibatch."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from mlless_nb import kernels
from mlless_nb.data.cutter import MinibatchCutter
from mlless_nb.job.optimizers import SGD, AdaGrad, Adam, Optimizer
from mlless_nb.models import PMF, LogisticRegression

_spec = importlib.util.spec_from_file_location("record_trajectories", Path(__file__).parent / "record_trajectories.py")
assert _spec is not None
assert _spec.loader is not None
recording = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(recording)

DATA = recording.problem()


def minibatch(kind: str, chosen: np.ndarray) -> Any:
    """The chosen rows as a worker gets them."""
    if kind == "pmf":
        order = np.lexsort((DATA.item[chosen], DATA.user[chosen]))
        chosen = chosen[order]
        both = np.concatenate([DATA.user[chosen], recording.N_USERS + DATA.item[chosen]])
        rows, local = np.unique(both, return_inverse=True)
        local = local.astype(np.int32)
        return SimpleNamespace(
            ids=rows.astype(np.int32),
            user=local[: len(chosen)],
            item=local[len(chosen) :],
            rating=DATA.rating[chosen],
        )
    return MinibatchCutter(recording.N_FEATURES)(scipy.sparse.csr_array(DATA.X[chosen]), DATA.y[chosen])


def the_model(kind: str, l2: float) -> PMF | LogisticRegression:
    """The model of a case."""
    return PMF(rank=recording.RANK, l2=l2) if kind == "pmf" else LogisticRegression(l2=l2)


def start(kind: str) -> np.ndarray:
    """Where training starts."""
    return (DATA.factors if kind == "pmf" else DATA.weights).copy()


def the_optimizer(name: str, arguments: dict[str, Any]) -> Optimizer:
    """The optimiser that PyTorch calls ``name``."""
    fields = {"learning_rate" if key == "lr" else key: value for key, value in arguments.items()}
    return {"SGD": SGD, "Adam": Adam, "Adagrad": AdaGrad}[name](**fields)


class OneWorker:
    """A worker without its loop: gradient, optimiser, nothing else."""

    def __init__(self, kind: str, l2: float, optimizer: Optimizer, size: int, scale: float = 1.0) -> None:
        self.kind, self.model, self.optimizer = kind, the_model(kind, l2), optimizer
        self.size, self.scale = size, scale
        self.state = optimizer.init(*start(kind).shape)
        self.l2_rows = self.model.dense_l2_rows((recording.N_FEATURES,))

    def update(self, params: np.ndarray, chosen: np.ndarray, step: int) -> tuple[float, np.ndarray | None, np.ndarray]:
        """(sum of losses, rows or None, update) of a minibatch."""
        batch = minibatch(self.kind, chosen)
        rows = self.model.rows(batch, (len(params) - 1,))
        grad = np.empty((len(rows), params.shape[1]), np.float32)
        loss = self.model.gradient(params, batch, DATA.mean, self.size, grad)
        dense = self.optimizer.moves_untouched(self.model.dense_l2)
        out = np.empty_like(params if dense else grad)
        self.optimizer.update(params, rows, grad, self.state, step, self.scale, self.model.dense_l2, self.l2_rows, out)
        return loss, None if dense else rows, out


def trajectory(name: str) -> Iterator[tuple[float, np.ndarray]]:
    """Per step: the sum of losses before it, the parameters after it, by one worker."""
    kind, l2, optimizer_name, arguments = recording.CASES[name]
    worker = OneWorker(kind, l2, the_optimizer(optimizer_name, arguments), recording.SIZE)
    params = start(kind)
    for step in range(1, recording.N_STEPS + 1):
        loss, rows, update = worker.update(params, recording.rows_at(step), step)
        kernels.apply_rows(params, rows, update)
        yield loss, params.copy()


def assert_close(got: np.ndarray, expected: np.ndarray) -> None:
    """Equal to 1e-4, relative to the value, and to the table's spread where a value is next to 0."""
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * float(np.std(expected)) + 1e-9)


@pytest.mark.parametrize("name", recording.CASES)
def test_one_worker_equals_recorded_pytorch(name: str) -> None:
    recorded = json.loads(recording.RECORDED.read_text(encoding="utf-8"))["cases"][name]
    for step, (loss, params) in enumerate(trajectory(name), 1):
        assert loss == pytest.approx(recorded["losses"][step - 1], rel=1e-4)
        if str(step) in recorded["params"]:
            assert_close(params.ravel(), np.array(recorded["params"][str(step)]))
    assert step == recording.N_STEPS


@pytest.mark.torch
@pytest.mark.parametrize("name", recording.CASES)
def test_one_worker_equals_pytorch(name: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: pip install torch")
    losses, tables = recording.torch_trajectory(name)
    for (loss, params), torch_loss, torch_params in zip(trajectory(name), losses, tables, strict=True):
        assert loss == pytest.approx(torch_loss, rel=1e-4)
        assert_close(params, torch_params)


@pytest.mark.parametrize("kind", ["pmf", "logistic"])
@pytest.mark.parametrize(
    "optimizer",
    [SGD(0.4), SGD(0.4, momentum=0.8), SGD(0.4, momentum=0.8, nesterov=True), SGD(0.4, decay=0.5)],
    ids=str,
)
@pytest.mark.parametrize("n_workers", [2, 4])
def test_averaging_workers_equal_one_with_a_larger_minibatch(kind: str, optimizer: Optimizer, n_workers: int) -> None:
    l2, size = (0.1, 20) if kind == "pmf" else (0.05, 20)
    one = OneWorker(kind, l2, optimizer, n_workers * size)
    several = [OneWorker(kind, l2, optimizer, size, 1.0 / n_workers) for _ in range(n_workers)]
    alone, together = start(kind), start(kind)
    for step in range(1, 31):
        first = (step - 1) * size * n_workers % (recording.N - n_workers * size)
        chosen = np.arange(first, first + n_workers * size)
        _, rows, update = one.update(alone, chosen, step)
        kernels.apply_rows(alone, rows, update)
        updates = [
            worker.update(together, chosen[slot * size : (slot + 1) * size], step)
            for slot, worker in enumerate(several)
        ]
        for _, rows, update in updates:
            kernels.apply_rows(together, rows, update)
        assert_close(together, alone)


def test_no_filter_and_a_threshold_of_0_are_the_same_to_the_bit() -> None:
    optimizer = SGD(0.4, momentum=0.8, nesterov=True)
    tables = []
    for filters in (False, True):
        worker, params = OneWorker("pmf", 0.1, optimizer, recording.SIZE), start("pmf")
        split = kernels.SignificanceSplit(*params.shape)
        for step in range(1, 31):
            _, rows, update = worker.update(params, recording.rows_at(step), step)
            if filters:
                kernels.split_significant(params, rows, update, split)
                positions, values = split.sent_positions, split.sent_values
                frame = kernels.encode_sparse(positions, values, step, 0, *params.shape, (0.0, 0.0, 0.0, 0.0))
            else:
                frame = kernels.encode_update(rows, update, step, 0, len(params), (0.0, 0.0, 0.0, 0.0))
            kernels.apply_frame(frame, params)
        tables.append(params.tobytes())
    assert tables[0] == tables[1]
