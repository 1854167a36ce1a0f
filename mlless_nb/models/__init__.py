"""Models: what is trained, its loss and its sparse gradient.

``base`` is the interface and the registry, ``fitted`` what trained models share, ``fitted_factors`` the fitted
factorisation. ``factorization``, ``implicit``, ``logistic``, ``svm``, ``linear_regression``, ``softmax`` and ``kmeans``
are one model each. ``factors`` and ``linear`` are what factorisations and linear models share, ``tables`` what models
of several columns do, ``kmeans_start`` the first centroids, ``metrics`` the measures of predictions. ``numpy_model``
and ``torch_model`` are models that a user wrote (``written``), which travel as a ``definition``. ``storage`` is the
file of a fitted model. Optimisers are in `mlless_nb.job`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import DecodeError, JobError
from ..frames.names import PREFIX, names_of
from .base import Model, register_model, registered_models
from .factorization import PMF
from .fitted import FittedModel
from .fitted_factors import PMFModel
from .implicit import ImplicitMF, ImplicitModel
from .kmeans import KMeans, KMeansModel
from .linear import FittedLinearModel, LinearModel
from .linear_regression import LinearRegression, LinearRegressionModel
from .logistic import LogisticModel, LogisticRegression
from .numpy_model import NumpyModel
from .softmax import SoftmaxModel, SoftmaxRegression
from .storage import read_arrays
from .svm import LinearSVM, LinearSVMModel
from .torch_model import FittedTorch, TorchModel
from .written import FittedArrays

__all__ = [
    "PMF",
    "FittedArrays",
    "FittedLinearModel",
    "FittedModel",
    "FittedTorch",
    "ImplicitMF",
    "ImplicitModel",
    "KMeans",
    "KMeansModel",
    "LinearModel",
    "LinearRegression",
    "LinearRegressionModel",
    "LinearSVM",
    "LinearSVMModel",
    "LogisticModel",
    "LogisticRegression",
    "Model",
    "NumpyModel",
    "PMFModel",
    "SoftmaxModel",
    "SoftmaxRegression",
    "TorchModel",
    "load_model",
    "model_from_json",
    "register_model",
    "registered_models",
]


def model_from_json(spec: dict[str, Any]) -> Model:
    """The model that ``to_json`` wrote.

    Raises
    ------
    JobError
        When its kind is unknown or a field is wrong.
    """
    kinds, fields = registered_models(), dict(spec)
    kind = fields.pop("kind", None)
    if kind not in kinds:
        raise JobError("model.kind", kind, f"one of {', '.join(kinds)}")
    return kinds[kind](**fields)


def load_model(path: str | Path) -> FittedModel:
    """The fitted model that ``save`` wrote.

    Raises
    ------
    DecodeError
        When the file is not a model's file, or its arrays do not match.
    """
    kind, arrays = read_arrays(path)
    names = {name: array for name, array in arrays.items() if name.startswith(PREFIX)}
    params = {name: array for name, array in arrays.items() if name not in names}
    kinds = registered_models()
    if kind not in kinds:
        raise DecodeError(f"{path}: holds a model of kind {kind!r}, must be one of {', '.join(kinds)}")
    try:
        return kinds[kind].fitted_type(params).with_names(names_of(names))
    except (KeyError, ValueError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise DecodeError(f"{path}: must be a whole {kind} model; {why}") from None
