"""What the worker loop needs of a model."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import JobError

Float32 = NDArray[np.float32]


class Model(Protocol):
    """A loss over one float32 table of parameters, and its gradient in the rows that a minibatch touches.

    ``shape`` is the dataset's: (n_users, n_items) or (n_features,); ``mean`` is its mean rating (0.0 where it has
    none). What is minimised is the sum of the minibatch's losses, divided by ``divisor``, the nominal minibatch size.
    """

    kind: ClassVar[str]
    metric: ClassVar[str]

    @property
    def l2(self) -> float | None:
        """The penalty; None where it is chosen when a run starts."""

    def check_data(self, dataset: Any) -> None:
        """Raise JobError unless the model can be trained on ``dataset``."""

    def table_shape(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """(n_rows, width) of the parameters."""

    def init(self, shape: tuple[int, ...], mean: float, seed: int) -> Float32:
        """The parameters before the first step: a pure function of its arguments."""

    def gradient(self, params: Float32, minibatch: Any, mean: float, divisor: float, grad: Float32) -> float:
        """Overwrite ``grad`` (m, width) with the gradient in the minibatch's rows; returns the sum of losses."""

    def evaluate(self, params: Float32, minibatch: Any, mean: float) -> float:
        """Sum of losses of the minibatch's rows."""

    def interaction(self, params: Float32, minibatch: Any) -> float:
        """Mean square of what products of parameters make of the predictions; 0.0 where none do.

        At a random start it is next to nothing, however far the rest of the model has come: until it has grown, the
        main descent of the loss is still to come.
        """

    def has_emerged(self, params: Float32, shape: tuple[int, ...]) -> bool:
        """Whether products of parameters have outgrown their random start; True where there are none."""

    def metric_value(self, loss_sum: float, count: float) -> float:
        """The metric of ``count`` rows whose losses sum to ``loss_sum``."""

    @property
    def dense_l2(self) -> float:
        """Strength of a penalty on rows that the minibatch need not touch; 0.0 for none."""

    def dense_l2_rows(self, shape: tuple[int, ...]) -> int:
        """The rows below this one are penalised."""

    def fitted(self, params: Float32, shape: tuple[int, ...], mean: float) -> Any:
        """The trained model a person uses."""

    def table_of(self, model: Any) -> Float32:
        """The parameters of a fitted model: undoes `fitted`, but for the mean."""

    def to_json(self) -> dict[str, Any]:
        """The model as plain JSON."""


def check_table(field: str, value: object, table: tuple[int, int]) -> None:
    """Raise JobError unless positions in a table of this shape fit 32 bits."""
    if table[0] * table[1] >= 2**32:
        raise JobError(field, value, f"so small that {table[0]} rows x {table[1]} is below 2**32 parameters")
