"""Seconds to a held-out quality: ours against PyTorch DDP and the libraries one would pick on one machine.

    python benchmarks/accuracy.py [--data ml1m criteo] [--runs 5] [--sets FOLDER] [--quick]

Every run is a new interpreter with an empty temporary folder. Its clock starts when the arrays of the data are in
memory: what it imports, how it brings the data into its own form (ours packs them into minibatches), and how long it
takes to start are counted beside the training, and in the seconds from nothing with it.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import ddp
import libraries
import numpy as np
from contenders import DDP_KINDS, DDP_WORKERS, OURS, TARGETS, TRAINING_MSE, ddp_label, ddp_tasks, settings_of
from report import Report, first_in_bold, median, number, parser, runs_of
from runs import measure, packing_s
from sets import Split, folder_of_sets, named

from mlless_nb import Stop

QUICK_EPOCHS = 2
#: Runs of DDP at most, which take two thirds of the time of this benchmark.
DDP_RUNS = 2
#: What our runs import, in an interpreter that has NumPy and SciPy already, as the peers' has.
IMPORTED = """
import time, numpy, scipy.sparse
began = time.perf_counter()
import mlless_nb
from mlless_nb import PMF, SGD, LogisticRegression, AdaGrad, Adam, ISP, Stop, TrainingJob, datasets
print(time.perf_counter() - began)
"""

#: Of our contenders, as far as they are told.
SETTINGS = ("model", "optimizer", "schedule", "sync", "minibatch", "local_steps", "aggregate", "partition", "epochs")

#: A curve: rows of (seconds of training, training loss, held-out loss); NaN where it was not measured.
Curve = np.ndarray


def ours(split: Split, job: dict[str, Any]) -> dict[str, Any]:
    """A run's own history as a curve, and what else came of it; the model is judged here, on the held-out rows."""
    fields = dict(job)
    epochs, workers = fields.pop("epochs"), fields.pop("workers")
    rows_a_step = fields["minibatch"] * fields.get("local_steps", 1) * workers
    steps = math.ceil(epochs * split.train.n / rows_a_step)
    # -P: run beside the checkout's own folders, the package would be taken from there.
    answer = subprocess.run([sys.executable, "-P", "-c", IMPORTED], stdout=subprocess.PIPE, check=True, text=True)
    called = time.perf_counter()
    done = measure(split, steps, workers, **{**fields, "stop": Stop(epochs=epochs)})
    history, model = done.run.history, done.run.model
    whole_s = time.perf_counter() - called
    if split.train.kind == "csr":
        final = libraries.log_loss(model.predict_proba(split.held_out.X)[:, 1], split.held_out.y)
        loss = history["loss"]
    else:
        final = libraries.rmse(model.predict(split.held_out.users, split.held_out.items), split.held_out.ratings)
        loss = history["loss"] ** 2
    window = np.ones(min(ddp.SMOOTHED_STEPS, len(loss)))
    smoothed = np.convolve(loss, window / window.size)[: len(loss)]
    smoothed[: window.size - 1] = np.nan
    # The first step began a step before it ended.
    first_s = done.step_ms / 1e3
    trained_s = history["time_s"] - history["time_s"][0] + first_s
    import_s = float(answer.stdout)
    return {
        "curve": np.column_stack([trained_s, smoothed, history["validation_loss"]]).tolist(),
        "import_s": import_s,
        "form_s": packing_s(done.run.job),
        "startup_s": done.startup_s,
        "before_s": import_s + done.startup_s - first_s,
        "whole_s": import_s + whole_s,
        "returned": final,
    }


def peer(split: Split, tasks: list[dict[str, Any]]) -> dict[str, Any] | str:
    """PyTorch DDP's curve and what came before it, or why there is none; evaluations are not in its seconds.

    Of several tasks, which differ by their learning rates and epochs, the others are told under "others".
    """
    found: list[dict[str, Any]] = []
    for task in tasks:
        ranks = ddp.train(split, **task)
        if isinstance(ranks, str):
            return ranks
        curves, first = np.array([rank["curve"] for rank in ranks]), ranks[0]
        curve = np.column_stack([curves[0, :, 0], curves[:, :, 1].mean(0), curves[0, :, 2]])
        found.append(
            {
                "curve": curve.tolist(),
                "import_s": first["import_s"],
                "startup_s": first["ready_s"],  # the import, and making tensors of the data, are part of it
                "before_s": first["ready_s"],
                "whole_s": first["ready_s"] + float(curve[-1, 0]),
            }
        )
    return found[0] | {"others": found[1:]}


def library(split: Split, fit: Any, quick: bool) -> dict[str, Any] | str:
    """A library's curve and what came before it."""
    fitted = fit(split, quick)
    if isinstance(fitted, str):
        return fitted
    before_s = fitted.import_s + fitted.form_s
    return {
        "curve": fitted.curve.tolist(),
        "import_s": fitted.import_s,
        "form_s": fitted.form_s,
        "before_s": before_s,
        "whole_s": before_s + float(fitted.curve[-1, 0]),
    }


def contenders(name: str, kind: str) -> dict[str, int]:
    """Names of all, and how often each is run at most: the slow ones less often."""
    found = dict.fromkeys(OURS[name], 99)
    found |= {ddp_label(name, gradients, workers): DDP_RUNS for gradients in DDP_KINDS for workers in DDP_WORKERS}
    return found | {label: most for label, _, most in libraries.FITS[kind]}


def run(name: str, label: str, options: Any) -> dict[str, Any] | str:
    """One run of contender ``label`` in this interpreter, which has done nothing else."""
    split, quick = named(name, folder_of_sets(options.sets)), options.quick
    if label in OURS[name]:
        return ours(split, OURS[name][label] | ({"epochs": QUICK_EPOCHS} if quick else {}))
    for gradients in DDP_KINDS:
        for workers in DDP_WORKERS:
            if label == ddp_label(name, gradients, workers):
                tasks = ddp_tasks(name, gradients, workers)
                return peer(split, [tasks[0] | {"epochs": QUICK_EPOCHS}] if quick else tasks)
    fit = next(fit for one, fit, _ in libraries.FITS[split.train.kind] if one == label)
    return library(split, fit, quick)


def in_fresh_interpreter(name: str, label: str, options: Any, cold: str) -> dict[str, Any] | str:
    """`run` in a new interpreter with a new temporary folder in ``cold``: nothing is packed there."""
    command = [sys.executable, __file__, "--child", label, "--data", name, *["--quick"] * options.quick]
    answer = subprocess.run(
        [*command, *(["--sets", options.sets] if options.sets else [])],
        env={**os.environ, "TMPDIR": tempfile.mkdtemp(dir=cold)},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(answer.stdout.strip().splitlines()[-1])


def reached_s(curve: Curve, column: int, target: float) -> float:
    """Seconds of training until ``column`` was at ``target``; NaN where it never was."""
    there = np.flatnonzero(curve[:, column] <= target)
    return float(curve[there[0], 0]) if there.size else float("nan")


def figures_of(found: list[dict[str, Any]], targets: tuple[float, ...]) -> dict[str, Any]:
    """What the runs of one contender took: of each to the targets, NaN where it did not reach one; and medians."""
    curves = [np.array(one["curve"], float) for one in found]

    def reached(column: int, target: float) -> tuple[list[float], list[float]]:
        # Where there are several learning rates, each target is that of the best.
        seconds = []
        for run in found:
            ways = (run, *run.get("others", ()))
            taken = [(reached_s(np.array(one["curve"], float), column, target), one["before_s"]) for one in ways]
            seconds.append(min((one for one in taken if one[0] == one[0]), default=(float("nan"), 0.0)))
        return [s for s, _ in seconds], [s + before_s for s, before_s in seconds]

    held_out = [curve[~np.isnan(curve[:, 2])] for curve in curves]
    both = {f"{target:g}": reached(2, target) for target in targets}
    return {
        "trained_s": {target: seconds[0] for target, seconds in both.items()},
        "from_nothing_s": {target: seconds[1] for target, seconds in both.items()},
        "training_mse_s": reached(1, TRAINING_MSE)[0],
        "best": [float(curve[:, 2].min()) for curve in held_out],
        "end_s": median(curve[-1, 0] for curve in held_out),
        "runs": len(found),
        **{
            part: median(one.get(part, float("nan")) for one in found)
            for part in ("import_s", "form_s", "startup_s", "whole_s", "returned")
        },
    }


def compare(report: Report, name: str, options: Any, cold: str) -> dict[str, Any]:
    """Measure all contenders on a data set and print its tables."""
    split, targets = named(name, folder_of_sets(options.sets)), TARGETS[name]
    is_csr, figures = split.train.kind == "csr", {}
    metric = "log loss" if is_csr else "RMSE"
    every = contenders(name, split.train.kind)
    found: dict[str, list[Any]] = {label: [] for label in every}
    # They take turns, so that other load meets all alike.
    for turn in range(runs_of(options)):
        for label, most in every.items():
            if turn < most and not any(isinstance(one, str) for one in found[label]):
                found[label].append(in_fresh_interpreter(name, label, options, cold))
    trained, from_nothing = [], []
    for label, runs in found.items():
        missing = next((one for one in runs if isinstance(one, str)), None)
        if missing is not None:
            figures[label] = missing
            trained.append([label, missing, *[None] * (len(targets) + 6 + (not is_csr))])
            from_nothing.append([label, missing, *[None] * len(targets)])
            continue
        one = figures[label] = figures_of(runs, targets)
        reached = [*one["trained_s"].values(), *([] if is_csr else [one["training_mse_s"]])]
        trained.append([label, *map(cell, reached), losses(one["best"]), one["end_s"], four(one["returned"])])
        trained[-1] += [one["runs"], one["import_s"], one["form_s"], one["startup_s"]]
        from_nothing.append([label, *map(cell, one["from_nothing_s"].values()), cell([one["whole_s"]])])
    heads = [f"{target:g}" for target in targets]
    mse = [] if is_csr else [f"training MSE {TRAINING_MSE:g}"]
    rest = (
        f"best {metric} (range)",
        "training, s",
        "returned model",
        "runs",
        "import, s",
        "packing or own form, s",
        "start-up, s",
    )
    report.table(
        f"{split.label}: seconds of training to a held-out {metric}", ["contender", *heads, *mse, *rest], trained
    )
    report.table(
        f"{split.label}: seconds from nothing to a held-out {metric}; the first is in bold",
        ["contender", *heads, "whole run, model at hand"],
        first_in_bold(from_nothing, len(heads)),
    )
    return figures


def cell(seconds: list[float]) -> str:
    """Seconds to a target as a cell: the median and the range of the runs, all of which must have reached it."""
    if any(one != one for one in seconds):
        return "not reached"
    middle = f"{number(median(seconds))} s"
    return f"{middle} ({number(min(seconds))} to {number(max(seconds))})" if len(seconds) > 1 else middle


def losses(values: list[float]) -> str:
    """The median and the range of losses, as a cell."""
    return four(median(values)) + (f" ({four(min(values))} to {four(max(values))})" if len(values) > 1 else "")


def four(value: float) -> str:
    """A loss as a cell."""
    return f"{value:.4f}" if value == value else "-"


def main() -> None:
    """Measure and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--data", choices=list(TARGETS), nargs="+", default=list(TARGETS))
    arguments.add_argument("--child", metavar="CONTENDER", help="(used by the benchmark itself)")
    options = arguments.parse_args()
    if options.child:
        print(json.dumps(run(options.data[0], options.child, options)))
        return
    report = Report("accuracy", "How many seconds does a held-out quality take, here and elsewhere?")
    report.table(
        "The settings of ours; what is not said is the default",
        ["contender", *SETTINGS],
        [
            [label, *(str(settings_of(job).get(setting, "-")) for setting in SETTINGS)]
            for name in options.data
            for label, job in OURS[name].items()
        ],
    )
    with tempfile.TemporaryDirectory(prefix="mlless-cold-") as cold:
        figures = {name: compare(report, name, options, cold) for name in options.data}
    n_ours, n_ddp = runs_of(options), runs_of(options, DDP_RUNS)
    report.remark(
        "Every run is a new interpreter for which nothing is packed. From nothing is from the moment at which the "
        "arrays of the data are in memory: import, the library's own form of the data, start-up, training. Our "
        "packing is measured by itself after the run, and is part of the start-up too, from the call of `train` to "
        "the end of the first step. DDP's start-up is from the launch of its processes to the first step, with the "
        "import and the making of tensors in it; it has as many epochs as our minibatches, and for each target the "
        "best of the rates that were tried (`rates.py`); its best loss and its whole run are those at the rate for "
        f"the hardest target. Ranges are of all runs: {n_ours} of ours, {n_ddp} of DDP, which takes longer; the column "
        "says it of each. A library that fits anew is given the number of iterations that will do. Ours: held-out "
        "figures along the way are the run's own validation history, whose evaluations are in its seconds; the "
        "returned model's is computed here, on the held-out rows. The others' are computed here, and are not in their "
        "seconds. Training MSE is a mean over 10 steps for ours and DDP, over all rows for libraries."
    )
    report.end(sets=figures)


if __name__ == "__main__":
    main()
