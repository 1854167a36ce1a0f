"""One minibatch through the kernels, without any exchange: ours against PyTorch, scikit-learn and scipy, one thread.

python benchmarks/kernels.py [--minibatch 6250] [--runs 5] [--sets FOLDER] [--quick]
"""

from __future__ import annotations

import dataclasses
import itertools
import time
import warnings
from collections.abc import Callable
from typing import Any

import ddp
import numpy as np
import scipy.sparse
from ddp_models import model_of
from report import NOT_INSTALLED, Report, median, parser, runs_of, span, times, version
from sets import Split, folder_of_sets, named

from mlless_nb import ISP, PMF, SGD, Adam, LogisticRegression
from mlless_nb.kernels import SignificanceSplit, apply_rows
from mlless_nb.worker.table_layout import allocate_tables

RANK, L2, RATE, MOMENTUM, ADAM_RATE = 20, 0.02, 8.0, 0.8, 0.01
#: Minibatches that are gone through; at MovieLens-1M's size they are an epoch.
N_MINIBATCHES = 144
#: The step whose ISP(0.7) threshold is taken: early, when much is still published.
ISP_STEP = 100

Steps = Callable[[int], None]


def ours(split: Split, minibatches: list[Any], model: Any, optimizer: Any, sync: ISP | None = None) -> Steps:
    """Gradient, optimiser, filter where there is one, and the update applied, on tables laid out as a worker's."""
    shape, mean = split.train.shape, split.train.mean
    n_rows, width = model.table_shape(shape)
    state = optimizer.init(n_rows, width)
    is_dense = optimizer.moves_untouched(model.dense_l2)
    tables = allocate_tables(n_rows, width, 1 + len(state) + (sync is not None), is_dense)
    params = tables[0]
    params[:] = model.init(shape, mean, 0)
    state = dict(zip(state, tables[1:], strict=False))
    filtered = SignificanceSplit(n_rows, width, tables[-1]) if sync is not None else None
    if filtered is not None and sync is not None:
        filtered.threshold = sync.threshold_at(ISP_STEP)
    most = max(len(model.rows(minibatch, shape)) for minibatch in minibatches)
    grad, update = (np.empty((n, width), np.float32) for n in (most, n_rows if is_dense else most))
    rest, count = itertools.cycle(minibatches), itertools.count(1)

    def steps(n: int) -> None:
        for minibatch in itertools.islice(rest, n):
            touched = model.rows(minibatch, shape)
            m = len(touched)
            rows, out = (None, update) if is_dense else (touched, update[:m])
            model.gradient(params, minibatch, mean, minibatch.n, grad[:m])
            optimizer.update(params, touched, grad[:m], state, next(count), 1.0, model.dense_l2, 0, out, filtered)
            apply_rows(params, rows, out)

    return steps


def pytorch(split: Split, minibatch: int, **task: Any) -> Steps | str:
    """The same with PyTorch, dense gradients, or sparse ones."""
    if version("torch") is None:
        return NOT_INSTALLED
    import torch

    warnings.filterwarnings("ignore", category=UserWarning, module="torch")
    warnings.filterwarnings("ignore", message="Sparse")
    torch.set_num_threads(1)
    task.update(process=0, workers=1, minibatch=minibatch, rank=RANK, l2=L2)
    data = {name: np.array(value) for name, value in ddp.arrays_of(split).items()}
    model, module = model_of(data, task)
    optimizer = model.optimizer(module.parameters())
    rest = itertools.cycle(model.minibatches)

    def steps(n: int) -> None:
        for minibatch in itertools.islice(rest, n):
            optimizer.zero_grad(set_to_none=True)
            model.loss(module, minibatch)[0].backward()
            optimizer.step()

    return steps


def scikit_learn(split: Split, minibatch: int) -> Steps | str:
    """``SGDClassifier.partial_fit``: per-sample SGD over a minibatch."""
    if version("scikit-learn") is None:
        return NOT_INSTALLED
    from sklearn.linear_model import SGDClassifier

    model = SGDClassifier(loss="log_loss", alpha=1e-6, learning_rate="constant", eta0=0.01)
    rest = itertools.cycle(_csr_minibatches(split, minibatch))

    def steps(n: int) -> None:
        for X, y in itertools.islice(rest, n):
            model.partial_fit(X, y, classes=[0, 1])

    return steps


def two_products(split: Split, minibatch: int) -> Steps:
    """scipy's X @ w and X.T @ g, the transpose prebuilt: what any gradient over CSR has to read."""
    parts = [(X, X.T.tocsr()) for X, _ in _csr_minibatches(split, minibatch)]
    weights, residuals = np.zeros(split.train.shape[0], np.float32), np.ones(minibatch, np.float32)
    rest = itertools.cycle(parts)

    def steps(n: int) -> None:
        for X, transposed in itertools.islice(rest, n):
            X @ weights
            transposed @ residuals[: X.shape[0]]

    return steps


def _csr_minibatches(split: Split, minibatch: int) -> list[tuple[Any, Any]]:
    X, y = split.train.X, split.train.y
    whole = scipy.sparse.csr_matrix((X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), shape=X.shape)
    return [
        (whole[at : at + minibatch], y[at : at + minibatch]) for at in range(0, X.shape[0] - minibatch + 1, minibatch)
    ]


def timed(contenders: dict[str, Steps | str], runs: int, steps: int) -> dict[str, list[tuple[float, float]]]:
    """(ms, CPU-ms) per step of every contender, once a run; they take turns, so that other load meets all alike."""
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    for run in range(runs + 1):
        for name, contender in contenders.items():
            if isinstance(contender, str):
                continue
            began, cpu = time.perf_counter(), time.process_time()
            contender(steps)
            if run:  # the first warms up
                seen[name].append(
                    ((time.perf_counter() - began) / steps * 1e3, (time.process_time() - cpu) / steps * 1e3)
                )
    return seen


def fewer(split: Split, minibatch: int) -> Split:
    """As many random training rows as are gone through, in random order, alike for all."""
    train = split.train
    chosen = np.random.default_rng(0).permutation(train.n)[: N_MINIBATCHES * minibatch]
    if train.kind == "csr":
        part: Any = type(train)(train.X[chosen], train.y[chosen], train.name, is_synthetic=train.is_synthetic)
    else:
        part = type(train)(
            train.users[chosen], train.items[chosen], train.ratings[chosen], train.shape, train.name,
            is_synthetic=train.is_synthetic,
        )  # fmt: skip
    return Split(part, split.held_out, split.label)


def main() -> None:
    """Measure and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--minibatch", type=int, default=6250)
    arguments.add_argument(
        "--data", choices=["ml1m", "syn10m", "criteo"], nargs="+", default=["ml1m", "syn10m", "criteo"]
    )
    options = arguments.parse_args()
    runs, size = 2 * runs_of(options) + 1, options.minibatch
    report = Report(
        "kernels",
        "How long does one minibatch take on one core, without any exchange, here and in the usual libraries?",
    )
    figures: dict[str, Any] = {}
    for name in options.data:
        split = fewer(named(name, folder_of_sets(options.sets)), size)
        minibatches = list(split.train.minibatches(size, None))
        is_csr = split.train.kind == "csr"
        model: Any = LogisticRegression() if is_csr else PMF(rank=RANK, l2=L2)
        exact: Any = Adam(ADAM_RATE) if is_csr else SGD(RATE, MOMENTUM, nesterov=True)
        lazy = dataclasses.replace(exact, lazy=True)
        name_of = {exact: "every row", lazy: "touched rows"}
        # What people take: exact Adam is as quick as the lazy one, exact momentum is not.
        first, second = (exact, lazy) if is_csr else (lazy, exact)
        base, other = (
            f"ours: {'LR + Adam' if is_csr else 'PMF + Nesterov'}, {name_of[one]}" for one in (first, second)
        )
        with_filter = f"{base}, ISP(0.7) filter"
        contenders: dict[str, Steps | str] = {
            base: ours(split, minibatches, model, first),
            with_filter: ours(split, minibatches, model, first, ISP(0.7)),
            other: ours(split, minibatches, model, second),
        }
        if is_csr:
            best = "PyTorch: CSR products, fused Adam"
            contenders[best] = pytorch(split, size, learning_rate=ADAM_RATE)
            contenders["scikit-learn: SGDClassifier.partial_fit"] = scikit_learn(split, size)
            contenders["scipy: X @ w and X.T @ g alone"] = two_products(split, size)
        else:
            best = "PyTorch: dense gradients, fused Nesterov"
            contenders[best] = pytorch(split, size, learning_rate=RATE, momentum=MOMENTUM)
            contenders["PyTorch: sparse gradients, no momentum"] = pytorch(
                split, size, learning_rate=RATE, momentum=0.0, sparse=True
            )
        seen = timed(contenders, runs, 30 if options.quick else N_MINIBATCHES)
        ms = {key: median(wall for wall, _ in values) for key, values in seen.items()}
        # One thread each: what other load takes away is not in the processor's time.
        cpu_ms = {key: median(cpu for _, cpu in values) for key, values in seen.items()}
        n_rows, width = model.table_shape(split.train.shape)
        n_touched = median(len(model.rows(minibatch, split.train.shape)) for minibatch in minibatches)
        n_touched = width * (n_rows if first is exact else n_touched)
        n_terms = median(minibatch.n_terms if is_csr else minibatch.n for minibatch in minibatches)
        filter_ns = (cpu_ms[with_filter] - cpu_ms[base]) * 1e6 / n_touched
        report.table(
            f"{split.label}, minibatches of {size:,}",
            ["contender", "ms (range)", "CPU-ms", f"CPU-ns a {'non-zero' if is_csr else 'rating'}", "CPU / ours"],
            [
                [
                    key,
                    span(wall for wall, _ in values) if values else contenders[key],
                    cpu_ms[key],
                    cpu_ms[key] * 1e6 / n_terms,
                    times(cpu_ms[key], cpu_ms[base]),
                ]
                for key, values in seen.items()
            ],
        )
        report.remark(
            f"The filter takes {filter_ns:.2f} ns per parameter that it looks at ({n_touched:,.0f} in a minibatch): "
            "the difference of CPU-ms between the first two rows."
        )
        figures[name] = {
            "ms": ms,
            "cpu_ms": cpu_ms,
            "filter_ns": filter_ns,
            "n_touched": n_touched,
            "torch_over_ours": cpu_ms[best] / cpu_ms[base],
        }
    report.remark(
        "Ours is gradient, optimiser and the update applied. PyTorch's is forward, backward and the optimiser's step, "
        "of the same objective; its momentum and Adam move all rows. scikit-learn takes one step a "
        "row. scipy's two products are what must be read at least, no optimiser in it."
    )
    report.end(runs=runs, minibatch=size, sets=figures)


if __name__ == "__main__":
    main()
