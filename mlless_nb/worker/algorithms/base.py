"""What carries out an algorithm in a worker: one interface, each algorithm one file beside this one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ...data.minibatches import Minibatch
from ...data.prepare import Manifest
from ...job.algorithm import Algorithm, algorithm_from_json
from ...job.optimizers import Optimizer
from ...kernels import SignificanceSplit
from ...models import Model
from ..row_ownership import Ownership

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]
_Kind = TypeVar("_Kind", bound="type[WorkerAlgorithm]")


@dataclass(frozen=True)
class Setting:
    """What an algorithm works on: a worker's tables and the definition of its job.

    Attributes
    ----------
    params : float32 (n_rows, width)
        The replica's parameters.
    state : dict of str to float32 (n_rows, width)
        Tables of the names that `Algorithm.state_names` gives, zero at the start.
    spec : Algorithm
        The algorithm's own parameters.
    model, optimizer, manifest
        The job's.
    ownership : Ownership
        Which rows are this worker's own.
    local_steps : int
    """

    params: Float32
    state: dict[str, Float32]
    spec: Algorithm
    model: Model
    optimizer: Optimizer
    manifest: Manifest
    ownership: Ownership
    local_steps: int
    _rows_of: WeakKeyDictionary[Minibatch, Int32] = field(default_factory=WeakKeyDictionary, init=False, repr=False)

    def rows(self, minibatch: Minibatch) -> Int32:
        """The rows of the table that a minibatch touches, int32 (m,), strictly ascending.

        They are remembered as long as the minibatch is kept.
        """
        rows = self._rows_of.get(minibatch)
        if rows is None:
            rows = self._rows_of[minibatch] = self.model.rows(minibatch, self.manifest.shape)
        return rows


class Fusion(NamedTuple):
    """Where an algorithm may put values in the pass that computes them, which saves a pass over them.

    ``published`` splits the significant part off, None where all of it is published; ``owned`` takes the update of the
    first ``count_owned(rows)`` rows, which no other worker touches.
    """

    published: SignificanceSplit | None
    owned: SignificanceSplit | None
    ownership: Ownership

    def count_owned(self, rows: Int32) -> int:
        """How many of ``rows``, the first ones, are this worker's own."""
        return self.ownership.count_own(rows) if self.owned is not None else 0


class Share(NamedTuple):
    """This worker's share of a step.

    Attributes
    ----------
    step : int
        1-based, of this run.
    n_updates_before : int
        Steps that the optimiser took in the runs before this one.
    weight : float
        Factor of what it contributes: 1 / n for the mean of n contributions.
    n_shards : int
        Shards of the data whose minibatches it takes.
    rate_factor : float
        Of the learning rate.
    fusion : Fusion or None
        None where the contribution is filtered only after it is made.
    """

    step: int
    n_updates_before: int
    weight: float
    n_shards: int
    rate_factor: float
    fusion: Fusion | None


class Contribution(NamedTuple):
    """What one worker contributes to a step; the arrays are valid until the next one.

    Attributes
    ----------
    rows : int32 (m,) or None
        Strictly ascending; None stands for all rows.
    values : float32 (m, width)
        To be added to the accumulator of every worker.
    loss : float
        Sum of the losses of the minibatches.
    n_owned : int
        The first rows, of which `Fusion.owned` has the values.
    """

    rows: Int32 | None
    values: Float32
    loss: float
    n_owned: int = 0


class WorkerAlgorithm(ABC):
    """An algorithm in one worker.

    Attributes
    ----------
    kind : str
        That of the specification that it carries out.
    merges : bool
        Whether a step takes the minibatches of all shards that are held as one; else it is given one of each shard.
    """

    kind: ClassVar[str]
    merges: bool = True

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def fuses(self, n_shards: int) -> bool:
        """Whether `contribute` uses `Share.fusion` for minibatches of so many shards."""
        return False

    @abstractmethod
    def contribute(self, minibatches: Sequence[Minibatch], share: Share) -> Contribution:
        """This worker's contribution, from one minibatch for each local step (or shard, where these are not merged).

        The parameters are as they were when it returns, but for what was fused.
        """

    @property
    def accumulator(self) -> Float32:
        """Where contributions are added, in slot order, float32 (n_rows, width): the parameters themselves here."""
        return self.setting.params

    def finish(self, step: int, n_active: int) -> None:  # noqa: B027 - where sums are the parameters, nothing
        """All contributions of ``step`` are in the accumulator: make the parameters of them."""

    def state(self) -> dict[str, Float32]:
        """What a checkpoint needs, with the parameters, to go on bit-identically: float32 (n_rows, width) by name."""
        return self.setting.state

    def resume(self, state: Sequence[Float32]) -> None:
        """Begin with the ``state`` of another run, in the order of `state_names`."""
        for table, before in zip(self.setting.state.values(), state, strict=False):
            table[...] = before

    def hold(self, n_shards: int) -> None:  # noqa: B027
        """From now on minibatches have those of ``n_shards`` shards."""

    def lose_rows(self) -> None:  # noqa: B027
        """Rows have become other workers' own: `Ownership.others`."""


_implemented: dict[str, type[WorkerAlgorithm]] = {}


def implements(spec: type[Algorithm]) -> Callable[[_Kind], _Kind]:
    """Make a `WorkerAlgorithm` what carries out ``spec``: for the line above it."""

    def register(kind: _Kind) -> _Kind:
        kind.kind = spec.kind
        _implemented[spec.kind] = kind
        return kind

    return register


def implementation(spec: dict[str, Any]) -> tuple[Algorithm, type[WorkerAlgorithm]]:
    """The algorithm of an `Invocation`, and what carries it out."""
    algorithm = algorithm_from_json(spec)
    return algorithm, _implemented[algorithm.kind]
