"""What a job brings that names nothing but its model: held-out loss beside the best of a search.

python benchmarks/defaults.py [--data ml1m a9a ...] [--runs 5] [--settings 50] [--quick]

The search draws settings at random (optimiser, rate, penalty, minibatch, schedule), trains each by itself for a few
epochs, the best quarter of them until their validation loss falls no more, and keeps the one with the best validation
loss of the first seed. It and the default, which goes through `mlless_nb.train`, are then judged on test rows that
neither has seen, each with the same seeds: a seed decides the split into training and validation rows, their order, and
the start.
"""

from __future__ import annotations

import functools
import math
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from libraries import THREADS, log_loss, rmse
from report import Report, median, parser, runs_of
from search_sets import SETS
from sets import Split

import mlless_nb
from mlless_nb import FTRL, PMF, SGD, AdaGrad, Adam, LogisticRegression, TrainingJob
from mlless_nb.job.rate_schedule import Schedule
from mlless_nb.job.units import units_of
from mlless_nb.kernels import apply_rows, pmf_sgd_pass

#: The constants of `mlless_nb.job.defaults` were chosen on seeds 0 and 1: these are others.
FIRST_SEED = 10
VALIDATION = 0.1
#: Epochs of a setting, at most, and evaluations without a better validation loss after which it ends.
EPOCHS, PATIENCE = 80, 8
#: Epochs after which only the best quarter of the settings goes on.
SCREENED_EPOCHS = 6
#: The longest that one setting trains, seconds of the processor.
SETTING_S = 8.0


@dataclass(frozen=True)
class Setting:
    """One point of the search."""

    model: Any
    optimizer: Any
    minibatch: int
    schedule: str

    def __str__(self) -> str:
        return f"{self.optimizer}, l2 {self.model.l2:.2g}, {self.minibatch} rows, {self.schedule}"


def draw(kind: str, n: int, rng: np.random.Generator) -> Setting:
    """A setting for ``n`` training rows: magnitudes are drawn by their logarithms."""

    def between(low: float, high: float) -> float:
        return float(f"{math.exp(rng.uniform(math.log(low), math.log(high))):.3g}")

    schedule = str(rng.choice(["auto", "constant"]))
    lazy = bool(rng.integers(2))
    if kind == "ratings":
        rows = int(between(n / 400, n / 12))
        optimizers = [
            SGD(between(1e-3, 5e-3) * rows, 0.9, nesterov=True, lazy=lazy),
            SGD(between(0.005, 0.1), per_sample=True),
            Adam(between(0.001, 0.05), lazy=lazy),
            AdaGrad(between(0.02, 0.5)),
        ]
        model: Any = PMF(l2=between(0.02, 0.3))
    else:
        rows = max(min(int(between(max(n / 1000, 4), n / 8)), 6250), 1)
        optimizers = [
            SGD(between(0.003, 1.0), 0.9, nesterov=True, lazy=lazy),
            Adam(between(0.001, 0.1), lazy=lazy),
            AdaGrad(between(0.01, 1.0), lazy=lazy),
            FTRL(between(0.03, 3.0)),
        ]
        model = LogisticRegression(l2=float(rng.choice([0.0, between(0.01 / n, 10 / n)])))
    return Setting(model, optimizers[rng.integers(len(optimizers))], rows, schedule)


def train_alone(
    setting: Setting, train: Any, validation: Any, seed: int, most_epochs: int = EPOCHS
) -> tuple[float, Any]:
    """The best validation loss of one setting, trained by one worker in this process, and the fitted model."""
    model, optimizer = setting.model, setting.optimizer
    units = units_of(model, train)
    train, validation = units.apply(train), units.apply(validation)
    minibatches = list(train.minibatches(setting.minibatch, seed))
    judged = list(validation.minibatches(20_000, None))
    params = model.init(train.shape, train.mean, seed)
    state, is_dense = optimizer.init(*params.shape), optimizer.moves_untouched(model.dense_l2)
    penalty, schedule = (model.dense_l2, model.dense_l2_rows(train.shape)), Schedule(setting.schedule)
    best, best_params, n_since, step, began = math.inf, params.copy(), 0, 0, time.process_time()
    divisor = float(min(setting.minibatch, train.n))
    while step < most_epochs * len(minibatches) and n_since < PATIENCE and time.process_time() - began < SETTING_S:
        batch = minibatches[step % len(minibatches)]
        rows = model.rows(batch, train.shape)
        step += 1
        if isinstance(optimizer, SGD) and optimizer.per_sample:
            rate = schedule.factor * optimizer.rate(step)
            ratings = batch.user, batch.item, batch.rating
            pmf_sgd_pass(params, rows, *ratings, train.mean, model.penalty, rate, model.biases)
        else:
            grad = np.empty((len(rows), params.shape[1]), np.float32)
            model.gradient(params, batch, train.mean, divisor, grad)
            out = np.empty_like(params) if is_dense else grad
            optimizer.update(params, rows, grad, state, step, schedule.factor, *penalty, out)
            apply_rows(params, None if is_dense else rows, out)
        if step % len(minibatches):
            continue
        total = sum(model.evaluate(params, each, train.mean) for each in judged)
        loss = model.metric_value(total * train.deviation**2, float(validation.n))
        if not math.isfinite(loss):
            break
        schedule.observe(step, step / len(minibatches), loss)
        if loss < best:
            best, best_params, n_since = loss, params.copy(), 0
        else:
            n_since += 1
    return best, units.restore(model.fitted(best_params, train.shape, train.mean))


def judge(model: Any, test: Any) -> float:
    """Loss of a fitted model on ``test``, in the data's own units."""
    if test.kind == "csr":
        return log_loss(model.predict_proba(test.X)[:, 1], test.y)
    return rmse(model.predict(test.users, test.items), test.ratings)


@functools.cache
def split_of(name: str) -> Split:
    """A set, read once a process."""
    return SETS[name]()


def loss_of(name: str, setting: Setting, seed: int, most_epochs: int) -> float:
    """The best validation loss of a setting; data is named, so that another process can read it."""
    return train_alone(setting, *split_of(name).train.split(VALIDATION, seed), seed, most_epochs)[0]


def test_loss(name: str, setting: Setting, seed: int) -> float:
    """The test loss of a setting."""
    split = split_of(name)
    return judge(train_alone(setting, *split.train.split(VALIDATION, seed), seed)[1], split.held_out)


def searched(name: str, split: Split, n_settings: int, seeds: list[int]) -> tuple[Setting, list[float]]:
    """The setting with the best validation loss of ``n_settings``, and its test losses by seed."""
    rng, n = np.random.default_rng(0), split.train.split(VALIDATION, seeds[0])[0].n
    settings = [draw(split.train.kind, n, rng) for _ in range(n_settings)]
    with ProcessPoolExecutor(THREADS) as pool:
        for most_epochs, n_kept in ((SCREENED_EPOCHS, -(-n_settings // 4)), (EPOCHS, 1)):
            asked = [(name, one, seeds[0], most_epochs) for one in settings]
            losses = list(pool.map(loss_of, *zip(*asked, strict=True)))
            settings = [settings[place] for place in np.argsort(losses, kind="stable")[:n_kept]]
        best = settings[0]
        return best, list(pool.map(test_loss, *zip(*((name, best, seed) for seed in seeds), strict=True)))


def default(split: Split, seed: int) -> tuple[Any, float]:
    """The run of a job with nothing but its model and data, and its loss on the test rows."""
    model = PMF() if split.train.kind == "ratings" else LogisticRegression()
    run = mlless_nb.train(TrainingJob(model, data=split.train, seed=seed))
    run.wait()
    if run.status != "finished":
        raise SystemExit(f"{run.job!r} ended as {run.status}: {run.reason}")
    return run, judge(run.model, split.held_out)


def main() -> None:
    """Measure and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--data", choices=list(SETS), nargs="+", default=None)
    arguments.add_argument("--settings", type=int, default=None, help="of the search; 50, or 8 with --quick")
    options = arguments.parse_args()
    names = options.data or (["ml100k", "a9a", "cancer", "iris"] if options.quick else list(SETS))
    n_settings = options.settings or (8 if options.quick else 50)
    seeds = [FIRST_SEED + number for number in range(runs_of(options))]
    report = Report("defaults", "What does a job bring that names nothing but its model, beside the best of a search?")
    rows, figures = [], {}
    for name in names:
        split = split_of(name)
        runs = [default(split, seed) for seed in seeds]
        losses = [loss for _, loss in runs]
        best, found = searched(name, split, n_settings, seeds)
        ratio = median(losses) / median(found)
        job, history = runs[0][0].job, runs[0][0].history
        chosen = f"{job.optimizer}, l2 {job.model.l2:.2g}, {job.workers} x {job.minibatch} rows"
        epochs = float(history["epoch"][-1])
        rows.append(
            [
                split.label,
                f"{median(losses):.4f}",
                f"{median(found):.4f}",
                f"{(ratio - 1) * 100:+.1f} %",
                epochs,
                chosen,
                str(best),
            ]
        )
        figures[name] = {"default": losses, "search": found, "ratio": ratio, "epochs": epochs, "best": str(best)}
    report.table(
        f"Test loss (RMSE of ratings, log loss of labels), medians of {len(seeds)} seeds, {n_settings} settings",
        ["data", "default", "search", "more", "epochs", "what was chosen", "what the search found"],
        rows,
    )
    report.remark(
        "The default goes through the public API, with as many workers as it chooses; the settings of the search are "
        "trained by one worker each, without the engine. Rows to validate are a tenth of the training rows for both."
    )
    report.end(sets=figures)


if __name__ == "__main__":
    main()
