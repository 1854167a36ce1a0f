"""The peer of a distributed step: PyTorch DistributedDataParallel over gloo, one thread a process, data in RAM.

Gradients are dense, as DDP reduces them. PMF is two embeddings with SGD's fused Nesterov; logistic regression is a
product with the minibatch's CSR matrix (and its transpose, prebuilt, in the backward pass) with fused Adam.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from report import NOT_INSTALLED, version
from sets import Split

#: Seconds after which a peer that does not end is given up.
GIVE_UP_S = 900.0
#: Steps at the beginning that are not counted.
WARM_UP = 10
#: The training loss is judged by its mean over so many steps, as our stop rules do.
SMOOTHED_STEPS = 10


def train(split: Split, workers: int, **task: Any) -> list[dict[str, Any]] | str:
    """Train with ``workers`` processes; returns what each of them measured, or why there is nothing.

    Parameters
    ----------
    split : Split
    workers : int
    **task
        ``minibatch``, ``learning_rate``; for PMF ``momentum``, ``rank`` (of the factors), ``l2``. Either ``windows``
        and ``steps``: so many measurements of so many steps each; or ``epochs`` and ``eval_every``: a curve of (seconds
        of training, mean training loss of the last steps, held-out loss), evaluations not counted.

    Returns
    -------
    list of dict or str
        By rank: ``step_ms`` and ``cpu_ms`` (one a window) or ``curve``, ``startup_s``, ``peak_kib``.
    """
    if version("torch") is None:
        return NOT_INSTALLED
    with tempfile.TemporaryDirectory(prefix="mlless-ddp-") as folder:
        np.savez(f"{folder}/data.npz", **arrays_of(split))
        task.update(workers=workers, folder=folder, launched_at=time.time())
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        processes = [
            # PyTorch warns that its CSR tensors are in beta, once a process.
            subprocess.Popen(
                [sys.executable, "-W", "ignore", __file__, json.dumps({**task, "process": rank})], env=environment
            )
            for rank in range(workers)
        ]
        try:
            statuses = [process.wait(GIVE_UP_S) for process in processes]
        except subprocess.TimeoutExpired:
            return f"gave up after {GIVE_UP_S:g} s"
        finally:
            for process in processes:
                process.kill()
                process.wait()
        if any(statuses):
            return f"failed with status {max(statuses, key=abs)}"
        return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(workers)]


def arrays_of(split: Split) -> dict[str, Any]:
    """The rows as plain arrays."""
    if split.train.kind == "csr":
        return {
            f"{prefix}{name}": value
            for prefix, part in (("", split.train), ("t", split.held_out))
            for name, value in (
                ("indptr", part.X.indptr),
                ("indices", part.X.indices),
                ("data", part.X.data),
                ("y", part.y),
                ("shape", part.shape),
            )
        }
    return {
        f"{prefix}{name}": value
        for prefix, part in (("", split.train), ("t", split.held_out))
        for name, value in (("u", part.users), ("i", part.items), ("y", part.ratings), ("shape", part.shape))
    }


class Factorization:
    """PMF in PyTorch: the loss of a minibatch, and the held-out RMSE."""

    def __init__(self, data: Any, task: dict[str, Any]) -> None:
        import torch

        torch.manual_seed(0)
        (n_users, n_items), width = data["shape"], task["rank"] + 1
        self.l2, self.mean = task["l2"], float(data["y"].mean())
        self.module = torch.nn.ModuleList(
            [torch.nn.Embedding(int(n), width, sparse=task.get("sparse", False)) for n in (n_users, n_items)]
        )
        for table in self.module:
            torch.nn.init.normal_(table.weight, std=0.1)
            table.weight.data[:, -1] = 0.0
        self.optimizer = lambda parameters: torch.optim.SGD(
            parameters,
            lr=task["learning_rate"],
            momentum=task["momentum"],
            nesterov=task["momentum"] > 0,
            fused=not task.get("sparse", False),
        )
        tensors = {name: torch.from_numpy(data[name]) for name in ("u", "i", "y", "tu", "ti", "ty")}
        order = torch.from_numpy(np.random.default_rng(1).permutation(len(data["y"])))
        self.minibatches = [
            tuple(tensors[name][rows] for name in ("u", "i", "y")) for rows in order.split(task["minibatch"])
        ][task["process"] :: task["workers"]]
        self._held_out = tuple(tensors[name] for name in ("tu", "ti", "ty"))

    def predict(self, module: Any, users: Any, items: Any) -> tuple[Any, Any]:
        """(predictions, what the penalty is on)."""
        left, right = module(users, items)
        return self.mean + left[:, -1] + right[:, -1] + (left[:, :-1] * right[:, :-1]).sum(1), (left, right)

    def loss(self, module: Any, minibatch: Any) -> tuple[Any, float]:
        """(what is minimised, the mean squared error)."""
        users, items, stars = minibatch
        predicted, (left, right) = self.predict(module, users, items)
        squared = (predicted - stars).square().mean()
        penalty = (left.square().sum() + right.square().sum()) / len(stars)
        return 0.5 * squared + 0.5 * self.l2 * penalty, squared.item()

    def held_out(self, module: Any) -> float:
        """RMSE."""
        users, items, stars = self._held_out
        return float((self.predict(module, users, items)[0] - stars).square().mean().sqrt())


class Pair:
    """Both embeddings as one module, as DDP wants it."""

    @staticmethod
    def of(tables: Any) -> Any:
        """A module that looks both up."""
        import torch

        class Both(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.tables = tables

            def forward(self, users: Any, items: Any) -> tuple[Any, Any]:
                return self.tables[0](users), self.tables[1](items)

        return Both()


class Logistic:
    """Logistic regression in PyTorch: the loss of a minibatch, and the held-out log loss."""

    def __init__(self, data: Any, task: dict[str, Any]) -> None:
        import scipy.sparse
        import torch

        class Product(torch.autograd.Function):
            """X @ w, whose gradient is a product with the prebuilt transpose."""

            @staticmethod
            def forward(context: Any, weights: Any, X: Any, transposed: Any) -> Any:
                context.transposed = transposed
                return X @ weights

            @staticmethod
            def backward(context: Any, gradient: Any) -> Any:
                return context.transposed @ gradient, None, None

        class Linear(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weights = torch.nn.Parameter(torch.zeros(int(data["shape"][0])))
                self.intercept = torch.nn.Parameter(torch.zeros(1))

            def forward(self, X: Any, transposed: Any) -> Any:
                return Product.apply(self.weights, X, transposed) + self.intercept

        def tensor(X: Any) -> Any:
            X = X.tocsr()
            return torch.sparse_csr_tensor(
                torch.from_numpy(X.indptr.astype(np.int32)),
                torch.from_numpy(X.indices.astype(np.int32)),
                X.data,
                X.shape,
            )

        def parts(prefix: str) -> tuple[Any, Any]:
            X = scipy.sparse.csr_array(
                (data[prefix + "data"], data[prefix + "indices"], data[prefix + "indptr"]),
                shape=(len(data[prefix + "y"]), int(data["shape"][0])),
            )
            return X, data[prefix + "y"]

        self.module = Linear()
        self.optimizer = lambda parameters: torch.optim.Adam(parameters, lr=task["learning_rate"], fused=True)
        self._loss = torch.nn.functional.binary_cross_entropy_with_logits
        X, y = parts("")
        order, size = np.random.default_rng(1).permutation(len(y)), task["minibatch"]
        self.minibatches = []
        for start in range(task["process"] * size, len(y), size * task["workers"]):
            rows = order[start : start + size]
            self.minibatches.append((tensor(X[rows]), tensor(X[rows].T), torch.from_numpy(y[rows])))
        X, y = parts("t")
        self._held_out = (tensor(X), tensor(X.T), torch.from_numpy(y))

    def loss(self, module: Any, minibatch: Any) -> tuple[Any, float]:
        """(what is minimised, the same as a number)."""
        X, transposed, y = minibatch
        value = self._loss(module(X, transposed), y)
        return value, value.item()

    def held_out(self, module: Any) -> float:
        """Mean log loss."""
        return self.loss(module, self._held_out)[1]


def _process(task: dict[str, Any]) -> dict[str, Any]:
    """One process of the peer."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    rank, workers = task["process"], task["workers"]
    dist.init_process_group("gloo", init_method=f"file://{task['folder']}/meet", rank=rank, world_size=workers)
    data = dict(np.load(f"{task['folder']}/data.npz"))
    model = Factorization(data, task) if "u" in data else Logistic(data, task)
    plain = Pair.of(model.module) if "u" in data else model.module
    module = torch.nn.parallel.DistributedDataParallel(plain) if workers > 1 else plain
    optimizer = model.optimizer(module.parameters())
    # Every process takes as many: a minibatch more on one of them would leave it waiting for the others.
    n_minibatches = torch.tensor(len(model.minibatches))
    dist.all_reduce(n_minibatches, dist.ReduceOp.MIN)
    taken = 0

    def step() -> float:
        nonlocal taken
        optimizer.zero_grad(set_to_none=True)
        objective, loss = model.loss(module, model.minibatches[taken % int(n_minibatches)])
        objective.backward()
        optimizer.step()
        taken += 1
        return loss

    result: dict[str, Any] = {}
    if "windows" in task:
        step()
        result["startup_s"] = time.time() - task["launched_at"]
        for _ in range(WARM_UP):
            step()
        result.update(step_ms=[], cpu_ms=[])
        for _ in range(task["windows"]):
            dist.barrier()
            began, cpu = time.perf_counter(), time.process_time()
            for _ in range(task["steps"]):
                step()
            result["cpu_ms"].append((time.process_time() - cpu) / task["steps"] * 1e3)
            dist.barrier()
            result["step_ms"].append((time.perf_counter() - began) / task["steps"] * 1e3)
    else:
        result["curve"] = curve = []
        trained_s, losses = 0.0, []
        while taken < task["epochs"] * int(n_minibatches):
            dist.barrier()
            began = time.perf_counter()
            losses += [step() for _ in range(task["eval_every"])]
            trained_s += time.perf_counter() - began
            result.setdefault("startup_s", time.time() - task["launched_at"])
            with torch.no_grad():
                held_out = model.held_out(plain) if rank == 0 else float("nan")
            curve.append((trained_s, float(np.mean(losses[-SMOOTHED_STEPS:])), held_out))
    result["peak_kib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    dist.barrier()
    dist.destroy_process_group()
    return result


if __name__ == "__main__":
    the_task = json.loads(sys.argv[1])
    Path(the_task["folder"], f"{the_task['process']}.json").write_text(json.dumps(_process(the_task)))
