"""A workload: a job described by its sizes and its loss curve, without data or arithmetic."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..data.prepare import BUNDLE_BYTES, Manifest
from ..errors import JobError
from ..job.algorithm import Algorithm, GradientAveraging
from ..job.limits import Budget, Stop
from ..job.optimizers import SGD, Optimizer
from ..job.scale_in import ScaleIn
from ..job.sync import BSP, Sync
from ..models import PMF, Model
from .curves import Curve, PowerCurve, SentFraction

#: Size of a frame without its values, and of a single value with its position, bytes.
HEADER_BYTES, SPARSE_VALUE_BYTES = 64, 5


@dataclass(frozen=True)
class Workload:
    """The sizes and the loss curve of a job that is simulated without training.

    Parameters
    ----------
    workers : int
    curve : Curve
        The loss over the steps.
    model, optimizer, sync, stop, minibatch, seed, eval_every, checkpoint_every, prices, memory_mb
        As in a `TrainingJob`; model and optimiser only give sizes and the metric.
    scale_in : ScaleIn
        The auto-tuner; off by default.
    pattern : {"broadcast", "scatter-reduce"}
        Must be "broadcast" with bounded staleness.
    budget : float or None
        US dollars.
    shape : tuple of int
        Shape of the data: (n_users, n_items), or (n_features,).
    n, n_held_out : int
        Numbers of training and held-out rows.
    n_touched : int
        Number of rows of the parameter table that a minibatch touches.
    kernel_s : float or None
        Seconds of one minibatch's gradient and optimiser; None: ``minibatch`` times the machine's ``row_s``.
    minibatch_bytes : int
        Size of a minibatch in the object storage.
    sent : SentFraction
        The share of updates that ISP publishes.
    """

    workers: int
    curve: Curve = field(default_factory=PowerCurve)
    model: Model = field(default_factory=lambda: PMF(rank=20))
    optimizer: Optimizer = field(default_factory=lambda: SGD(8.0, 0.8, nesterov=True, lazy=True))
    sync: Sync = field(default_factory=BSP)
    algorithm: Algorithm = field(default_factory=GradientAveraging)
    store: str = "redis"
    stop: Stop = field(default_factory=lambda: Stop(steps=100))
    minibatch: int = 6250
    seed: int = 0
    eval_every: int = 10
    checkpoint_every: int = 100
    prices: str = "aws-lambda-x86"
    memory_mb: int = 2048
    scale_in: ScaleIn = field(default_factory=ScaleIn.off)
    pattern: str = "broadcast"
    budget: float | None = None
    shape: tuple[int, ...] = (6040, 3706)
    n: int = 900_000
    n_held_out: int = 100_203
    n_touched: int = 4900
    kernel_s: float | None = None
    minibatch_bytes: int = 95_000
    sent: SentFraction = field(default_factory=SentFraction)
    aggregate: str = "mean"
    local_steps: int = 1
    codec: str = "float32"

    def __post_init__(self) -> None:
        if not self.sync.is_complete and self.pattern == "scatter-reduce":
            raise JobError("pattern", self.pattern, f"'broadcast' with {self.sync}")

    @property
    def stop_rules(self) -> Stop:
        """As of a `TrainingJob`."""
        return self.stop

    @property
    def cap_usd(self) -> float | None:
        """As of a `TrainingJob`."""
        return Budget(self.budget).usd if self.budget is not None else None

    @property
    def table_shape(self) -> tuple[int, int]:
        """(n_rows, width) of the parameters."""
        return self.model.table_shape(self.shape)

    @property
    def n_values(self) -> int:
        """Number of values in one worker's update."""
        return self.n_touched * self.table_shape[1]

    def update_bytes(self, share: float = 1.0) -> int:
        """Size of a frame that publishes ``share`` of an update, bytes."""
        if self.sync.filters:
            return HEADER_BYTES + int(SPARSE_VALUE_BYTES * share * self.n_values)
        return HEADER_BYTES + 4 * self.n_values + 2 * self.n_touched

    def sum_bytes(self, n_workers: int, share: float = 1.0) -> int:
        """Size of the frame with the sum of ``n_workers`` updates, if each publishes ``share`` of its values, bytes."""
        n_rows, width = self.table_shape
        touched = share * self.n_touched / n_rows
        n_values = n_rows * width * (1.0 - (1.0 - touched) ** n_workers)
        per_value = SPARSE_VALUE_BYTES if self.sync.filters else 4
        return HEADER_BYTES + int(min(per_value * n_values, 4 * n_rows * width))

    def manifest(self, n: int, name: str) -> Manifest:
        """A manifest of ``n`` rows."""
        size = min(self.minibatch, n)
        count = -(-n // size)
        kind = "ratings" if len(self.shape) == 2 else "csr"
        n_bytes = self.minibatch_bytes
        bundles = (*range(0, count, max(BUNDLE_BYTES // n_bytes, 1)), count)
        shards = (0, count)
        return Manifest(
            name, kind, name, True, n, size, count, self.shape, 0.0, shards, bundles, n_bytes, self.n_touched
        )
