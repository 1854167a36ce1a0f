"""LambdaML's algorithms, gradient averaging, model averaging and ADMM, to a loss; part of `designs.py`."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from design_jobs import COMMON, finished
from report import Report, least_in_bold, median, span
from runs import lazy, packing_s
from search_sets import a9a, imdb

import mlless_nb
from mlless_nb import ADMM, SGD, LinearSVM, LogisticRegression, ModelAveraging, NumpyModel, Stop, TrainingJob, datasets
from mlless_nb.data.download import data_home

#: Seeds of the runs that choose a learning rate; those that are reported have others.
PILOT_SEEDS = (97, 98, 99)


class Network:
    """A network of one hidden layer on MNIST, as a user writes it."""

    def parameters(self, n_features: int, seed: int) -> dict[str, Any]:
        rng = np.random.default_rng(seed)
        return {
            "W1": rng.normal(0.0, n_features**-0.5, (n_features, 32)),
            "b1": np.zeros(32),
            "W2": rng.normal(0.0, 32**-0.5, (32, 10)),
            "b2": np.zeros(10),
        }

    def _forward(self, params: dict[str, Any], X: Any, y: Any) -> Any:
        hidden = np.maximum(X @ params["W1"] + params["b1"], 0.0)
        scores = hidden @ params["W2"] + params["b2"]
        scores = scores - scores.max(axis=1, keepdims=True)
        return hidden, scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))

    def loss(self, params: dict[str, Any], X: Any, y: Any) -> Any:
        _, log_p = self._forward(params, X, y)
        return -np.mean(log_p[np.arange(len(y)), y.astype(int)])

    def gradients(self, params: dict[str, Any], X: Any, y: Any) -> dict[str, Any]:
        hidden, log_p = self._forward(params, X, y)
        error = np.exp(log_p)
        error[np.arange(len(y)), y.astype(int)] -= 1.0
        error /= len(y)
        back = (error @ params["W2"].T) * (hidden > 0)
        return {"W1": X.T @ back, "b1": back.sum(axis=0), "W2": hidden.T @ error, "b2": error.sum(axis=0)}


def algorithms(report: Report, runs: int, quick: bool) -> list[dict[str, Any]]:
    """LambdaML, figure 7: rounds and seconds of gradient averaging, model averaging and ADMM to a loss."""
    rows, cases = [], []
    sets = {"a9a": a9a()} if quick else {"a9a": a9a(), "imdb": imdb()}
    for set_name, split in sets.items():
        for model in (LogisticRegression(l2=1e-4), LinearSVM(l2=1e-4)):
            common = {**COMMON, "workers": 4, "minibatch": 500, "validation": split.held_out}
            tries: dict[str, list[TrainingJob]] = {"GA": [], "MA": [], "ADMM": []}
            for rate in (0.1, 0.3, 1.0, 3.0):
                tries["GA"].append(
                    TrainingJob(model, SGD(rate), split.train, eval_every=2, stop=Stop(epochs=40), **common)
                )
                tries["MA"].append(
                    TrainingJob(
                        model,
                        SGD(rate),
                        split.train,
                        algorithm=ModelAveraging(every="epoch"),
                        eval_every=1,
                        stop=Stop(epochs=20),
                        **common,
                    )
                )
                tries["ADMM"].append(
                    TrainingJob(
                        model, SGD(rate), split.train, algorithm=ADMM(), eval_every=1, stop=Stop(epochs=60), **common
                    )
                )
            pilots = {
                name: [[finished(dataclasses.replace(job, seed=seed)) for seed in PILOT_SEEDS] for job in jobs]
                for name, jobs in tries.items()
            }
            # A rate counts by its worst seed: one that is too large reaches a low loss now and then, by luck.
            lowest = [min(max(map(lowest_loss, each)) for each in found) for found in pilots.values()]
            target = 1.02 * max(lowest)
            case: dict[str, Any] = {"set": set_name, "model": str(model), "target": target}
            of_case = []
            for name, jobs in tries.items():
                reached = [max(rounds_to(run, target) for run in each) for each in pilots[name]]
                job = jobs[min(range(len(jobs)), key=lambda one: reached[one])]
                found = [finished(dataclasses.replace(job, seed=seed)) for seed in range(runs)]
                rounds = [rounds_to(run, target) for run in found]
                seconds = [seconds_to(run, target) for run in found]
                first_s = median(run.history["time_s"][0] for run in found)
                case[name] = {"rounds": median(rounds), "seconds": median(seconds)}
                rate = job.optimizer.learning_rate
                told = f"{set_name}, {model}, {lazy(found[0])}"
                whole_s = median(seconds) + (packed_s := packing_s(job))
                shown = told, name, f"{rate:g}", f"{target:.4f}", span(rounds), span(seconds)
                of_case.append([*shown, first_s, packed_s, whole_s])
            rows += least_in_bold(of_case, 8)
            cases.append(case)
    report.table(
        "Exchanges and seconds to a held-out loss within 2 % of the best that all three reach, by their worst of "
        f"{len(PILOT_SEEDS)} runs at the best of four rates; 4 workers, that rate, other seeds",
        [
            "data, model",
            "algorithm",
            "rate",
            "loss",
            "exchanges",
            "s, start-up included",
            "of these, to the first step",
            "packing, s",
            "with both, s",
        ],
        rows,
    )
    ordered, by_seconds = (
        sum(case["ADMM"][unit] <= case["MA"][unit] <= case["GA"][unit] for case in cases)
        for unit in ("rounds", "seconds")
    )
    report.remark(
        f"The paper's order by exchanges, ADMM < MA < GA, holds in {ordered} of {len(cases)} cases, by "
        f"seconds in {by_seconds}: an exchange takes less than a millisecond, so that the ten scans of an ADMM round "
        "are not paid back. Over S3 an exchange takes hundreds of milliseconds, and few rounds win. The "
        "paper (figure 7) runs both models on Higgs with 300 workers over Memcached; its text has that order, also by "
        "seconds, and no numbers."
    )
    return cases


def lowest_loss(run: Any) -> float:
    """The lowest held-out loss of a run."""
    return float(np.nanmin(run.history["validation_loss"]))


def rounds_to(run: Any, target: float) -> float:
    """Steps until the held-out loss is at the target, infinite if never."""
    at = np.flatnonzero(run.history["validation_loss"] <= target)
    return float(run.history["step"][at[0]]) if len(at) else math.inf


def seconds_to(run: Any, target: float) -> float:
    """Seconds until then."""
    at = np.flatnonzero(run.history["validation_loss"] <= target)
    return float(run.history["time_s"][at[0]]) if len(at) else math.inf


def on_networks(report: Report, runs: int, quick: bool) -> list[dict[str, Any]]:
    """Model averaging on a network."""
    n = 8_000 if quick else 20_000
    with np.load(data_home() / "mnist" / "mnist.npz") as file:
        X, y = file["x_train"][:n].reshape(n, -1) / 255.0, file["y_train"][:n]
    train, held_out = datasets.csr(X.astype(np.float32), y.astype(float)).split(0.1, seed=1)
    rows, cases = [], []
    for name, changes in {
        "GA": {},
        "MA, every 10 steps": {"algorithm": ModelAveraging(every=10)},
        "MA, every epoch": {"algorithm": ModelAveraging(every="epoch")},
    }.items():
        for rate in (0.05, 0.2, 0.8):
            losses = []
            for seed in range(max(runs, 2)):
                job = TrainingJob(
                    NumpyModel(Network),
                    SGD(rate, momentum=0.9),
                    train,
                    **{**COMMON, "validation": held_out},
                    workers=4,
                    minibatch=100,
                    stop=Stop(epochs=2 if quick else 6),
                    seed=seed,
                    **changes,
                )
                run = mlless_nb.train(job)
                run.wait()
                told = run.history["validation_loss"]
                losses.append(float(told[np.isfinite(told)][-1]) if run.status == "finished" else math.inf)
            cases.append({"algorithm": name, "rate": rate, "losses": losses})
            rows.append([f"{name}, {lazy(run)}", f"{rate:g}", median(losses), max(losses)])
    report.table(
        "A network of one hidden layer on MNIST: held-out loss after the same epochs, over seeds",
        ["algorithm", "rate", "median loss", "worst"],
        rows,
    )
    best = {
        name: min(median(case["losses"]) for case in cases if case["algorithm"] == name)
        for name in dict.fromkeys(case["algorithm"] for case in cases)
    }
    told = ", ".join(f"{name} {loss:.3f}" for name, loss in best.items())
    largest = max(case["rate"] for case in cases)
    worst = {case["algorithm"]: max(case["losses"]) for case in cases if case["rate"] == largest}
    shows = "shows" if max(worst.values()) > worst["GA"] else "does not show even"
    worst_told = ", ".join(f"{name} {loss:.3g}" for name, loss in worst.items())
    report.remark(
        f"Best losses: {told}. The paper finds model averaging unstable on MobileNet. "
        f"Here that {shows} at the largest rate, {largest:g}, where the worst losses are {worst_told}. This network is "
        "small, and every shard is a random sample of all digits, so that the workers' models stay near each other "
        "between exchanges at smaller rates."
    )
    return cases
