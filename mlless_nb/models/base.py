"""The interface of a model, and the registry. Each model is one file beside this one, and registers itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError, JobError
from .fitted import FittedModel

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]
Kind = TypeVar("Kind", bound="type[Model]")

#: Description, for error messages, of the data that a model needs: by `Dataset.kind`.
DATA_KINDS = {
    "ratings": "ratings for {}, e.g. datasets.ratings(frame, user='...', item='...', rating='...')",
    "csr": "feature rows with labels for {}, e.g. datasets.table(frame, label='...') or datasets.csr(X, y)",
}
#: Most parameters in a row of a table: frames have 16 bits for the number.
MOST_WIDTH = 2**16 - 1
_registered: dict[str, type[Model]] = {}


class Model(ABC):
    """A loss over one float32 table of parameters, and its gradient in the rows that a minibatch touches.

    ``shape`` is the dataset's: (n_users, n_items) or (n_features,); ``mean`` is its mean rating (0.0 without ratings).
    The gradient is that of the sum of the minibatch's losses, divided by ``divisor``, the nominal minibatch size.
    A model is a frozen dataclass, decorated with `register_model` and `mlless_nb.validation.specification`.

    Attributes
    ----------
    kind, metric : str
        The model's name in JSON, and the name of its loss.
    data_kind : str
        The `Dataset.kind` that it is trained on.
    fitted_type : type
        The class of the trained model.
    l2 : float, optional
        The penalty; None if it is chosen when a run starts.
    is_convex : bool
        Whether the loss is convex in the parameters.
    has_squared_loss : bool
        Whether the loss is the squared error of a number, so that default learning rates depend on the labels' spread.
    algorithm : str or None
        The ``kind`` of the only algorithm that trains it; None for a model with gradients.
    needs_labels : bool
    modules : tuple of str
        Modules that its computations import, beside those of the package; slow to import, perhaps.
    """

    kind: ClassVar[str]
    metric: ClassVar[str]
    data_kind: ClassVar[str]
    fitted_type: ClassVar[type[FittedModel]]
    is_convex: ClassVar[bool] = False
    has_squared_loss: ClassVar[bool] = False
    l2: float | None
    algorithm: ClassVar[str | None] = None
    needs_labels: ClassVar[bool] = True
    modules: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def table_shape(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """(n_rows, width) of the parameters."""

    def rows(self, minibatch: Any, shape: tuple[int, ...]) -> Int32:
        """The rows of the table that a minibatch touches, int32 (m,), sorted and unique; by default, its ids."""
        ids: Int32 = minibatch.ids
        return ids

    def n_touched(self, n_ids: int) -> int:
        """Number of `rows` of a minibatch with ``n_ids`` ids."""
        return n_ids

    @abstractmethod
    def init(self, shape: tuple[int, ...], mean: float, seed: int) -> Float32:
        """The parameters before the first step: a pure function of its arguments."""

    def first(self, shape: tuple[int, ...], mean: float, seed: int) -> Float32:
        """`init`; a model whose parameter is called so overrides this method instead."""
        return self.init(shape, mean, seed)

    def start_of(self, dataset: Any, seed: int) -> Float32 | None:
        """Parameters before the first step that depend on the training rows; None if `first` is used.

        The driver computes them once and stores them for the workers. ``dataset`` is in the units of training.
        """
        return None

    def kept_of(self, dataset: Any) -> dict[str, NDArray[Any]]:
        """Arrays, by name, that the fitted model gets beside the parameters; ``dataset`` has the training rows."""
        return {}

    def nothing_to_learn(self, dataset: Any) -> str:
        """Why no model can be better than a constant on ``dataset``; "" if no reason is known."""
        why: str = dataset.nothing_to_learn
        return why

    @abstractmethod
    def gradient(self, params: Float32, minibatch: Any, mean: float, divisor: float, grad: Float32) -> float:
        """Overwrite ``grad`` (m, width) with the gradient in the minibatch's `rows`; returns the sum of losses."""

    @abstractmethod
    def evaluate(self, params: Float32, minibatch: Any, mean: float) -> float:
        """Sum of losses of the minibatch's rows."""

    def evaluate_common(self, params: Float32, minibatch: Any, mean: float) -> tuple[float, float]:
        """Loss sum and count of rows of the minibatch, predicted without the parameters of users.

        It compares replicas that have current values of some users only. Zeros: the model cannot be evaluated so.
        """
        return 0.0, 0.0

    @abstractmethod
    def fitted(self, params: Float32, shape: tuple[int, ...], mean: float) -> Any:
        """The trained model for the user; its arrays are copies."""

    @abstractmethod
    def table_of(self, model: Any) -> Float32:
        """The parameters of a fitted model: the inverse of `fitted`, without the mean."""

    def check_kind(self, dataset: Any, field: str = "data") -> None:
        """Raise JobError for ``field`` unless ``dataset`` is of the kind that the model is trained on."""
        if dataset.kind != self.data_kind:
            raise JobError(field, dataset, DATA_KINDS[self.data_kind].format(type(self).__name__))

    def check_data(self, dataset: Any, field: str = "data") -> None:
        """Raise JobError for ``field`` unless the model can be trained on ``dataset``: its kind, shape and labels."""
        self.check_kind(dataset, field)
        if self.needs_labels and not getattr(dataset, "has_labels", True):
            raise JobError(f"{field}.y", None, f"labels for {type(self).__name__}, as by datasets.csr(X, y)")
        check_table(field, dataset, self.table_shape(dataset.shape))

    def baseline_loss(self, train: Any, held_out: Any) -> float | None:
        """The metric on ``held_out`` of the best constant prediction from ``train``; None if it is not defined.

        Both are datasets in their original units that passed `check_data`.
        """
        return None

    def interaction(self, params: Float32, minibatch: Any) -> float:
        """Mean square of the part of the predictions that comes from products of parameters; 0.0 without products.

        At a random start it is close to zero, however well the rest of the model is trained. The main decrease of the
        loss comes only after it has grown.
        """
        return 0.0

    def has_emerged(self, params: Float32, shape: tuple[int, ...]) -> bool:
        """Whether products of parameters have grown beyond their random start; True without products."""
        return True

    def metric_value(self, loss_sum: float, count: float) -> float:
        """The metric of ``count`` rows whose losses sum to ``loss_sum``: their mean."""
        return loss_sum / count

    @property
    def dense_l2(self) -> float:
        """Strength of a penalty on all rows, touched by the minibatch or not; 0.0 for none."""
        return self.l2 or 0.0

    def dense_l2_rows(self, shape: tuple[int, ...]) -> int:
        """The penalty is on the rows below this one; here on all rows."""
        return self.table_shape(shape)[0]

    def to_json(self) -> dict[str, Any]:
        """The model as plain JSON."""
        return {"kind": self.kind, **asdict(self)}  # type: ignore[call-overload]


def check_classes(field: str, dataset: Any, most: int, valid: str) -> None:
    """Raise DataError for ``field`` if labels that are no numbers are of more than ``most`` kinds."""
    classes = getattr(getattr(dataset, "names", None), "classes", None)
    if classes is not None and len(classes) > most:
        more = ", ..." if len(classes) > 2 else ""
        raise DataError(field, f"labels of {len(classes)} kinds, {classes.example}{more}", valid)


def register_model(kind: Kind) -> Kind:
    """Class decorator: register a `Model`, so that jobs, functions and `load_model` know it."""
    _registered[kind.kind] = kind
    return kind


def registered_models() -> dict[str, type[Model]]:
    """The registered models, by kind."""
    return dict(_registered)


def check_table(field: str, value: object, table: tuple[int, int]) -> None:
    """Raise JobError unless positions in a table of this shape fit 32 bits, and its width 16 bits."""
    check_width(field, value, table[1])
    if table[0] * table[1] >= 2**32:
        raise JobError(field, value, f"so small that {table[0]} rows x {table[1]} is below 2**32 parameters")


def check_width(field: str, value: object, width: int) -> None:
    """Raise JobError unless frames can have rows of ``width`` parameters."""
    if width > MOST_WIDTH:
        raise JobError(field, value, f"so small that a row of the table has at most {MOST_WIDTH} parameters")
