"""Models: what is trained, its loss and its sparse gradient.

::

    base.py           the interface and the registry
    factorization.py implicit.py   matrix factorisations; factors.py has their common part
    logistic.py svm.py linear_regression.py   linear models; linear.py has their common part
    softmax.py kmeans.py   models with several columns; tables.py has their common part;
                      kmeans_start.py: the first centroids
    numpy_model.py torch_model.py   models that a user wrote; written.py has their common part
    definition.py     the source text of a user's model, which functions get

Trained models::

    fitted.py         what all trained models share; fitted_factors.py: matrix factorisations
    storage.py        the file of a trained model
    exports.py        conversion to scikit-learn, PyTorch, ONNX and Parquet
    metrics.py        measures of predictions; rankings.py: of recommended items
    leave_one_out.py  the error on users whose parameters are not known, to compare replicas
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
    MissingFileError
        When there is no file; a FileNotFoundError, too.
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
