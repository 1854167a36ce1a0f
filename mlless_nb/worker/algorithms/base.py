"""The interface of an algorithm in a worker. Each implementation is one file beside this one."""

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
NO_RESIDUALS = (-1.0, -1.0)


@dataclass(frozen=True)
class Setting:
    """The tables and the job that an algorithm works on.

    Attributes
    ----------
    params : float32 (n_rows, width)
        The replica's parameters.
    state : dict of str to float32 (n_rows, width)
        The tables that `Algorithm.state_names` names, zero at the start.
    spec : Algorithm
        The specification, with the algorithm's own settings.
    model, optimizer, manifest
        Those of the job.
    ownership : Ownership
        Which rows only this worker updates.
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

        They are cached as long as the minibatch exists.
        """
        rows = self._rows_of.get(minibatch)
        if rows is None:
            rows = self._rows_of[minibatch] = self.model.rows(minibatch, self.manifest.shape)
        return rows


class Fusion(NamedTuple):
    """Lets an algorithm split its values in the pass that computes them, which saves a second pass.

    ``published`` splits off the significant part; None if everything is published. ``owned`` receives the update of the
    first ``count_owned(rows)`` rows, which no other worker touches.
    """

    published: SignificanceSplit | None
    owned: SignificanceSplit | None
    ownership: Ownership

    def count_owned(self, rows: Int32) -> int:
        """How many of ``rows`` belong to this worker; these come first."""
        return self.ownership.count_own(rows) if self.owned is not None else 0


class Share(NamedTuple):
    """This worker's share of a step.

    Attributes
    ----------
    step : int
        Number of the step in this run, 1-based.
    n_updates_before : int
        Steps of the optimiser in the earlier runs that this run continues.
    weight : float
        Factor of the contribution: 1 / n for the mean of n contributions.
    n_shards : int
        Number of shards of the data whose minibatches this worker takes.
    rate_factor : float
        Factor of the learning rate.
    fusion : Fusion or None
        None if the contribution is filtered after it is made.
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
        Added to the accumulator of every worker.
    loss : float
        Sum of the losses of the minibatches.
    n_owned : int
        Number of first rows whose values went to `Fusion.owned`.
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
        The ``kind`` of its specification.
    merges : bool
        Whether a step merges the minibatches of all shards that this worker holds; else it gets one of each shard.
    residuals : tuple of float
        Of the last step: this worker's part of the squared primal residual, and the dual residual; negative without.
    """

    kind: ClassVar[str]
    merges: bool = True
    residuals: tuple[float, float] = NO_RESIDUALS

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def fuses(self, n_shards: int) -> bool:
        """Whether `contribute` uses `Share.fusion` for the minibatches of ``n_shards`` shards."""
        return False

    @abstractmethod
    def contribute(self, minibatches: Sequence[Minibatch], share: Share) -> Contribution:
        """This worker's contribution, from one minibatch for each local step (or for each shard if not merged).

        It leaves the parameters unchanged, except for values that the fusion added.
        """

    @property
    def accumulator(self) -> Float32:
        """The table to which contributions are added in slot order, float32 (n_rows, width); here the parameters."""
        return self.setting.params

    def finish(self, step: int, n_active: int) -> None:  # noqa: B027 - nothing to do if sums are the parameters
        """Compute the parameters from the accumulator, which has all contributions of ``step``."""

    def state(self) -> dict[str, Float32]:
        """The tables that, with the parameters, continue a run bit-identically: float32 (n_rows, width) by name."""
        return self.setting.state

    def resume(self, state: Sequence[Float32]) -> None:
        """Start from the ``state`` of another run, tables in the order of `state_names`."""
        for table, before in zip(self.setting.state.values(), state, strict=False):
            table[...] = before

    def tables(self) -> dict[str, Float32]:
        """All tables of this worker that change, but for the parameters: float32 (n_rows, width) by name."""
        return self.setting.state

    def hold(self, n_shards: int) -> None:  # noqa: B027
        """From now on each step takes the minibatches of ``n_shards`` shards."""

    def lose_rows(self) -> None:  # noqa: B027
        """Rows now belong to other workers: `Ownership.others`."""


_implemented: dict[str, type[WorkerAlgorithm]] = {}


def implements(spec: type[Algorithm]) -> Callable[[_Kind], _Kind]:
    """Class decorator: register a `WorkerAlgorithm` as the implementation of ``spec``."""

    def register(kind: _Kind) -> _Kind:
        kind.kind = spec.kind
        _implemented[spec.kind] = kind
        return kind

    return register


def implementation(spec: dict[str, Any]) -> tuple[Algorithm, type[WorkerAlgorithm]]:
    """The specification of an `Invocation`'s algorithm, and the class that implements it."""
    algorithm = algorithm_from_json(spec)
    return algorithm, _implemented[algorithm.kind]
