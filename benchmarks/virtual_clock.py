"""Training with backup workers on a virtual clock: real gradients and the run's own policy, drawn round-trip times.

Each worker draws the time of its round trip, and the times decide which gradients of a step count. A late worker
finishes, tells when, and goes on at the newest step (PsW of the DBW paper), or is interrupted (PsI).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlless_nb.exchange import LateArrival, StepEntry
from mlless_nb.exchange.step_report import Report
from mlless_nb.supervisor.quorum import QuorumControl

Float32 = NDArray[np.float32]
#: Seconds of a round trip, from the random generator, the worker and the time.
RoundTrip = Callable[[np.random.Generator, int, float], float]
#: Training rows on which the loss is judged. The mean loss of a step's minibatches is the noisier the fewer they are:
#: by it small k would reach any target by luck.
JUDGED = 2000


class Network:
    """A network of one hidden layer of ReLUs with the cross-entropy loss; all parameters are one float32 vector."""

    def __init__(self, n_features: int, n_hidden: int, n_classes: int) -> None:
        shapes = [(n_features, n_hidden), (n_hidden,), (n_hidden, n_classes), (n_classes,)]
        self._ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
        self._shapes = shapes

    def first(self, rng: np.random.Generator) -> Float32:
        """Parameters drawn as PyTorch's ``Linear`` draws them."""
        bounds = [shape[0] for shape in self._shapes]
        fans = [bounds[0], bounds[0], bounds[2], bounds[2]]
        parts = [rng.uniform(-1, 1, shape) / np.sqrt(fan) for shape, fan in zip(self._shapes, fans, strict=True)]
        return np.concatenate([part.ravel() for part in parts]).astype(np.float32)

    def _split(self, params: Float32) -> list[Float32]:
        return [
            part.reshape(shape) for part, shape in zip(np.split(params, self._ends[:-1]), self._shapes, strict=True)
        ]

    def loss(self, params: Float32, X: Float32, y: NDArray[np.int64]) -> float:
        """The mean loss."""
        W1, b1, W2, b2 = self._split(params)
        scores = np.maximum(X @ W1 + b1, 0.0) @ W2 + b2
        scores -= scores.max(axis=1, keepdims=True)
        return float(np.mean(np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(len(y)), y]))

    def gradients(self, params: Float32, X: Float32, y: NDArray[np.int64], out: Float32) -> NDArray[np.float64]:
        """Write the gradients of the mean losses of several minibatches into ``out``; returns these losses.

        Parameters
        ----------
        X : float32 (k, B, n_features)
        y : int64 (k, B)
        out : float32 (k, n_params)

        Returns
        -------
        float64 (k,)
        """
        W1, b1, W2, b2 = self._split(params)
        k, size = y.shape
        hidden = np.maximum(X @ W1 + b1, 0.0)
        scores = hidden @ W2 + b2
        scores -= scores.max(axis=2, keepdims=True)
        p = np.exp(scores)
        p /= p.sum(axis=2, keepdims=True)
        of_label = np.arange(k)[:, None], np.arange(size), y
        losses: NDArray[np.float64] = -np.log(np.maximum(p[of_label], 1e-30)).mean(axis=1, dtype=np.float64)
        p[of_label] -= 1.0
        p /= size
        back = (p @ W2.T) * (hidden > 0)
        ends = [0, *self._ends]
        dW1, db1, dW2, db2 = (out[:, first:end] for first, end in itertools.pairwise(ends))
        dW1[...] = np.matmul(X.transpose(0, 2, 1), back).reshape(k, -1)
        dW2[...] = np.matmul(hidden.transpose(0, 2, 1), p).reshape(k, -1)
        db1[...], db2[...] = back.sum(axis=1), p.sum(axis=1)
        return losses


class Course(NamedTuple):
    """How a run went: seconds to the target (infinite if never), and the quorum and the end of each step."""

    seconds: float
    quorums: list[int]
    ends_s: list[float]


@dataclass(frozen=True)
class Setting:
    """What all runs of a comparison share.

    Parameters
    ----------
    X : float32 (n, n_features)
    y : int64 (n,)
    n_workers, minibatch : int
    target : float
        Training loss, of `JUDGED` rows, at which a run ends.
    most_steps : int
    interrupts : bool
        Whether a late worker is interrupted (PsI).
    """

    X: Float32
    y: NDArray[np.int64]
    n_workers: int = 16
    minibatch: int = 500
    target: float = 0.2
    most_steps: int = 2000
    most_s: float = np.inf
    n_hidden: int = 32
    interrupts: bool = False

    def run(self, sync: Any, rate: float, round_trip: RoundTrip, seed: int, steps: float = 0) -> Course:
        """Train with a protocol of `mlless_nb.job.sync.backup_workers` at a learning rate.

        With a fixed k the round trips decide when a step ends, and not what it computes. ``steps`` are those to the
        target, known from other round trips (0: unknown, infinite: too many): then only the clock is run.
        """
        data, times = np.random.default_rng((seed, 0)), np.random.default_rng((seed, 1))
        chosen = np.random.default_rng(JUDGED).choice(len(self.y), min(JUDGED, len(self.y)), replace=False)
        judged = self.X[chosen], self.y[chosen]
        network = Network(self.X.shape[1], self.n_hidden, int(self.y.max()) + 1)
        params = network.first(data)
        gradients = np.empty((self.n_workers, len(params)), np.float32)
        control, quorum = QuorumControl(sync.to_json(), self.n_workers), sync.first_quorum(self.n_workers)
        course, number = Course(np.inf, [], []), itertools.count()
        # (time, tie-breaker, worker, step): when a worker's round trip ends
        arriving: list[tuple[float, int, int, int]] = []
        arrived: dict[int, list[float]] = {}
        late: list[LateArrival] = []
        measured: dict[str, float] = {}

        def begin(worker: int, step: int, now: float) -> None:
            heapq.heappush(arriving, (now + round_trip(times, worker, now), next(number), worker, step))

        def is_last(step: int, now: float) -> bool:
            """Take the step's gradients and tell the control what they measured; whether the run ends with it."""
            chosen = data.integers(len(self.y), size=(quorum, self.minibatch))
            losses = network.gradients(params, self.X[chosen], self.y[chosen], gradients[:quorum])
            reports = {slot: Report(float(one), 1.0, **measured) for slot, one in enumerate(losses)}
            control.note([StepEntry(step, now, reports, self.n_workers, tuple(arrived[step]))], late)
            mean = gradients[:quorum].mean(axis=0)
            np.subtract(params, np.float32(rate) * mean, out=params)
            spread = float(np.sum((gradients[:quorum] - mean) ** 2)) / (quorum - 1) if quorum > 1 else -1.0
            measured.update(mean_square=float(mean @ mean), variance=spread, learning_rate=rate)
            return not network.loss(params, *judged) >= self.target  # NaN ends it, too

        step, idle = 1, list(range(self.n_workers))
        for worker in idle:
            begin(worker, step, 0.0)
        idle = []
        while step <= self.most_steps:
            now, _, worker, of_step = heapq.heappop(arriving)
            arrived.setdefault(of_step, []).append(now)
            if of_step < step:
                late.append(LateArrival(of_step, len(arrived[of_step]), now))
                begin(worker, step, now)
                continue
            idle.append(worker)
            if len(idle) < quorum:
                continue
            course.quorums.append(quorum)
            course.ends_s.append(now)
            if (step >= steps if steps else is_last(step, now)) or now > self.most_s:
                return course._replace(seconds=now if np.isfinite(params).all() else np.inf)
            late.clear()
            changed = control.decide(now)
            quorum = changed[0] if changed is not None else quorum
            step += 1
            if self.interrupts:
                idle, arriving = list(range(self.n_workers)), []
            for waiting in idle:
                begin(waiting, step, now)
            idle = []
        return course
