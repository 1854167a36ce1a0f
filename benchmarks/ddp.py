"""The peer of a distributed step: PyTorch DistributedDataParallel over gloo, one thread a process, data in RAM.

With dense gradients, DDP's usual ones, PMF is two embeddings with SGD's fused Nesterov; logistic regression is a
product with the minibatch's CSR matrix (and its transpose, prebuilt, in the backward pass) with fused Adam. With sparse
ones, which gloo reduces as well, the embeddings, or a bag of them, are trained by SparseAdam.
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
from ddp_models import model_of
from report import NOT_INSTALLED, version
from sets import Split

#: Seconds after which a peer that does not end is given up.
GIVE_UP_S = 900.0
#: A peer one of whose processes crashes, as PyTorch with sparse gradients rarely does, is run so many times at most.
TRIES = 3
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
        ``minibatch``, ``learning_rate``, ``sparse`` (gradients; no by default); for PMF ``rank`` (of the factors),
        ``l2``, and of SGD ``momentum``. Either ``windows`` and ``steps``: so many measurements of so many steps each;
        or ``epochs`` and ``eval_every``: a curve of (seconds of training, mean training loss of the last steps,
        held-out loss), evaluations not counted.

    Returns
    -------
    list of dict or str
        By rank: ``step_ms`` and ``cpu_ms`` (one a window) or ``curve``; ``import_s``, of PyTorch; ``ready_s``, from the
        launch until the first step begins; ``startup_s``, until it is done; ``peak_kib``.
    """
    if version("torch") is None:
        return NOT_INSTALLED
    with tempfile.TemporaryDirectory(prefix="mlless-ddp-") as folder:
        np.savez(f"{folder}/data.npz", **arrays_of(split))
        task.update(workers=workers, folder=folder)
        for _ in range(TRIES):
            statuses = _run({**task, "launched_at": time.time()})
            if statuses is None:
                return f"gave up after {GIVE_UP_S:g} s"
            if min(statuses) >= 0:
                break
        if any(statuses):
            return f"failed with status {max(statuses, key=abs)}"
        return [json.loads(Path(folder, f"{rank}.json").read_text()) for rank in range(workers)]


def _run(task: dict[str, Any]) -> list[int] | None:
    """Run the processes of ``task``; the statuses with which they ended, None if they did not."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    processes = [
        # PyTorch warns that its CSR tensors are in beta, once a process.
        subprocess.Popen(
            [sys.executable, "-W", "ignore", __file__, json.dumps({**task, "process": rank})], env=environment
        )
        for rank in range(task["workers"])
    ]
    try:
        return [process.wait(GIVE_UP_S) for process in processes]
    except subprocess.TimeoutExpired:
        return None
    finally:
        for process in processes:
            process.kill()
            process.wait()


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


def _process(task: dict[str, Any]) -> dict[str, Any]:
    """One process of the peer."""
    began = time.perf_counter()
    import torch
    import torch.distributed as dist

    result: dict[str, Any] = {"import_s": time.perf_counter() - began}
    torch.set_num_threads(1)
    rank, workers = task["process"], task["workers"]
    dist.init_process_group("gloo", init_method=f"file://{task['folder']}/meet", rank=rank, world_size=workers)
    data = dict(np.load(f"{task['folder']}/data.npz"))
    model, plain = model_of(data, task)
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

    result["ready_s"] = time.time() - task["launched_at"]
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
