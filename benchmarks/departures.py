"""Workers that leave under ISP: is it better to average in their replicas, or to publish what they held back?

    python benchmarks/departures.py [--workers 8] [--runs 5] [--quick]

The protocol is written out here, over replicas in one process: what is asked is which loss a rule leads to, not how
long it takes, and a run is the same whatever else the machine does. Rows are sharded, so that everything is
exchanged. A replica is ``shared + own``, what all have applied and what this one has beside it. The rules, for a worker
``p`` that leaves and each ``q`` that stays, ``r`` being what a worker has not published:

- its residual is published: ``shared += r_p``;
- and its replica averaged in after that, which is `ISP(averages=True)`: ``r_q /= 2`` as well;
- the paper's formula alone, ``x_q <- (x_p + x_q) / 2`` (MLLess, the eviction policy of the scale-in scheduler): nothing
  is published, ``own_q = (own_p + own_q) / 2``. The paper does not say what becomes of ``r_q``, the sum that is
  compared with the threshold and published later. Either it stays, or it is what ``q`` has beside the others:
  ``r_q = own_q``.
"""

from __future__ import annotations

import math
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np
from libraries import THREADS
from numpy.typing import NDArray
from report import Report, median, parser, runs_of
from sets import Split, ml1m

import mlless_nb
from mlless_nb import ISP, PMF, SGD, ScaleIn, Stop, TrainingJob
from mlless_nb.job.units import units_of

STEPS, QUICK_STEPS = 260, 60
MINIBATCH = 6250
#: Shares of the run after which a worker leaves.
SCHEDULES = {
    "nobody leaves": (),
    "four leave": (0.23, 0.38, 0.54, 0.69),
    "five leave early": (0.08, 0.12, 0.15, 0.19, 0.23),
}
PUBLISHED, AVERAGED, PAPER, PAPER_KEPT = (
    "its residual is published",
    "published, and averaged in",
    "the paper's formula, residuals follow",
    "the paper's formula, residuals stay",
)
RULES = (PUBLISHED, AVERAGED, PAPER, PAPER_KEPT)
ENGINE = "nobody leaves, by the engine"
MODEL, OPTIMIZER, SYNC = PMF(rank=20, l2=0.05), SGD(30.0, 0.9, nesterov=True), ISP(0.7)
EVERY = 5

Table = NDArray[np.float32]


class Case(NamedTuple):
    """One run: who leaves when, by which rule, and the seed."""

    schedule: str
    rule: str
    seed: int
    steps: int
    workers: int


class Workers:
    """Replicas under ISP in one process.

    Attributes
    ----------
    shared : float32 (n_rows, width)
        The start and all that was published.
    own, held : list of float32 (n_rows, width)
        By worker: what its replica is beside that, and what it has not published, of its own updates.
    """

    def __init__(self, start: Table, count: int) -> None:
        self.shared = start
        self.own = [np.zeros_like(start) for _ in range(count)]
        self.held = [np.zeros_like(start) for _ in range(count)]

    def publish(self, worker: int, is_significant: NDArray[np.bool_] | bool) -> Table:
        """What ``worker`` publishes of what it holds; the caller adds it to what is shared."""
        sent = np.where(is_significant, self.held[worker], np.float32(0.0))
        self.held[worker] -= sent
        self.own[worker] -= sent
        return sent

    def leave(self, rule: str) -> None:
        """The last worker leaves."""
        last = len(self.own) - 1
        if rule in (PUBLISHED, AVERAGED):
            self.shared += self.publish(last, True)
        own, _ = self.own.pop(), self.held.pop()
        for worker in range(last):
            if rule != PUBLISHED:
                self.own[worker] = (own + self.own[worker]) / np.float32(2.0)
            if rule == AVERAGED:
                self.held[worker] /= np.float32(2.0)
            elif rule == PAPER:
                self.held[worker] = self.own[worker].copy()

    def flush(self) -> Table:
        """The replica that all have when everything was published, as at the end of a run."""
        return self.shared + sum(self.held)


def train(split: Split, case: Case) -> list[float]:
    """Held-out losses of a run, one an evaluation."""
    units = units_of(MODEL, split.train)
    rows, held_out = units.apply(split.train), units.apply(split.held_out)
    minibatches = list(rows.minibatches(MINIBATCH, case.seed))
    judged = list(held_out.minibatches(20_000, None))
    start = MODEL.init(rows.shape, rows.mean, case.seed)
    team = Workers(np.array(start), case.workers)
    states = [OPTIMIZER.init(*start.shape) for _ in range(case.workers)]
    out, grad = np.empty_like(start), np.empty_like(start)
    penalty = (MODEL.dense_l2, MODEL.dense_l2_rows(rows.shape))
    leaves = [round(share * case.steps) for share in SCHEDULES[case.schedule]]
    losses = []
    for step in range(1, case.steps + 1):
        sent = np.zeros_like(start)
        for worker in range(len(team.own)):
            # Each goes through minibatches of its own; those of who left are not taken over.
            batch = minibatches[((step - 1) * case.workers + worker) % len(minibatches)]
            replica = team.shared + team.own[worker]
            touched = MODEL.rows(batch, rows.shape)
            MODEL.gradient(replica, batch, rows.mean, float(MINIBATCH), grad[: len(touched)])
            update = (grad[: len(touched)], states[worker], step, 1.0 / len(team.own), *penalty, out)
            OPTIMIZER.update(replica, touched, *update)
            for table in (replica, team.own[worker], team.held[worker]):
                table += out
            sent += team.publish(worker, np.abs(team.held[worker]) > SYNC.threshold_at(step) * np.abs(replica))
        team.shared += sent
        for _ in range(leaves.count(step)):
            team.leave(case.rule)
        if step % EVERY == 0:
            params = team.flush() if step == case.steps else team.shared + team.own[0]
            total = sum(MODEL.evaluate(params, batch, rows.mean) for batch in judged)
            losses.append(math.sqrt(total * rows.deviation**2 / held_out.n))
    return losses


def by_engine(split: Split, case: Case) -> list[float]:
    """The same of the engine's own workers, when nobody leaves."""
    job = TrainingJob(
        MODEL,
        OPTIMIZER,
        split.train,
        sync=SYNC,
        validation=split.held_out,
        workers=case.workers,
        minibatch=MINIBATCH,
        stop=Stop(steps=case.steps),
        eval_every=EVERY,
        pattern="broadcast",
        partition="rows",
        scale_in=ScaleIn.off(),
        schedule="constant",
        seed=case.seed,
    )
    run = mlless_nb.train(job)
    run.wait()
    if run.status != "finished":
        raise SystemExit(f"{job!r} ended as {run.status}: {run.reason}")
    held_out = run.history["validation_loss"]
    return [float(loss) for loss in held_out[np.isfinite(held_out)]]


def main() -> None:
    """Measure and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--workers", type=int, default=8)
    options = arguments.parse_args()
    report = Report("departures", "Is a leaving worker's replica better averaged in under ISP?")
    split, steps, seeds = ml1m(), QUICK_STEPS if options.quick else STEPS, range(runs_of(options))
    cases = [
        Case(schedule, rule, seed, steps, options.workers)
        for schedule, leaves in SCHEDULES.items()
        for rule in (RULES if leaves else (PUBLISHED,))
        for seed in seeds
    ]
    found: dict[str, list[list[float]]] = {
        ENGINE: [by_engine(split, Case("nobody leaves", PUBLISHED, seed, steps, options.workers)) for seed in seeds]
    }
    with ProcessPoolExecutor(THREADS) as pool:
        for case, losses in zip(cases, pool.map(train, [split] * len(cases), cases), strict=True):
            label = f"{case.schedule}: {case.rule}" if SCHEDULES[case.schedule] else case.schedule
            found.setdefault(label, []).append(losses)
    moments = [round(share * steps / EVERY) - 1 for share in (0.25, 0.5, 0.75, 1.0)]
    base, rows, figures = median(losses[-1] for losses in found["nobody leaves"]), [], {}
    for label, runs in found.items():
        middle = {(moment + 1) * EVERY: median(losses[moment] for losses in runs) for moment in moments}
        ends = [losses[-1] for losses in runs]
        figures[label] = {"losses": middle, "ends": ends}
        rows.append([label, *(f"{loss:.4f}" for loss in middle.values()), f"{min(ends):.4f} to {max(ends):.4f}"])
        rows[-1].append(f"{100 * (middle[steps] / base - 1):+.2f} %")
    report.table(
        f"{split.label}, P={options.workers} at first, partition='rows', {SYNC}, {OPTIMIZER}, minibatches of "
        f"{MINIBATCH:,}: held-out RMSE after so many steps, medians of {len(seeds)} seeds",
        ["departures", *map(str, figures[ENGINE]["losses"]), f"range after {steps}", "against nobody leaving"],
        rows,
    )
    report.remark(
        "All but the first row are of replicas in one process, so that workers leave at the same steps in every run; "
        "the first is of the engine's workers, to show that these do the same. A mean over the workers is of fewer "
        "rows once some have left, and each keeps to its own rows, as in the paper."
    )
    report.end(steps=steps, workers=options.workers, cases=figures)


if __name__ == "__main__":
    main()
