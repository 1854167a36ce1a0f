"""Fitted models for other libraries: scikit-learn, PyTorch, ONNX and Parquet, each imported when it is asked for."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ServiceError
from .storage import for_writing

Float32 = NDArray[np.float32]


def imported(module: str, package: str, extra: str) -> Any:
    """An optional module; ServiceError that says how to install it if it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ServiceError(f"{package} is missing: pip install 'mlless_nb[{extra}]'") from None


def sklearn_linear(kind: str, weights: Float32, intercept: Float32, classes: NDArray[Any] | None) -> Any:
    """A fitted linear model of scikit-learn.

    Parameters
    ----------
    kind : {"LogisticRegression", "LinearSVC", "LinearRegression"}
    weights : (n_features,) or (n_classes, n_features)
    intercept : (1,) or (n_classes,)
    classes : (n_classes,), optional
        Labels of a classifier, in the order of the weights.
    """
    linear = imported("sklearn.linear_model" if kind != "LinearSVC" else "sklearn.svm", "scikit-learn", "sklearn")
    made = getattr(linear, kind)()
    coef = np.atleast_2d(weights).astype(np.float64)
    intercept = intercept.astype(np.float64)
    if classes is not None and len(classes) == 2 and len(coef) == 2:  # scikit-learn has one score for two classes
        coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
    made.coef_, made.intercept_, made.n_features_in_ = coef, intercept, coef.shape[1]
    if classes is None:
        made.coef_, made.intercept_ = coef[0], float(intercept[0])
    else:
        made.classes_ = classes
    return made


def sklearn_kmeans(centers: Float32) -> Any:
    """A fitted ``sklearn.cluster.KMeans`` with these centroids, (k, n_features), float64; it takes such rows only."""
    cluster = imported("sklearn.cluster", "scikit-learn", "sklearn")
    made = cluster.KMeans(n_clusters=len(centers), n_init=1)
    made.cluster_centers_ = np.ascontiguousarray(centers, np.float64)
    made.n_features_in_, made._n_threads, made._n_features_out = centers.shape[1], 1, len(centers)
    return made


def torch_linear(weights: Float32, intercept: Float32) -> Any:
    """A ``torch.nn.Linear`` that maps rows to scores."""
    torch = imported("torch", "PyTorch", "torch")
    rows = np.atleast_2d(weights)
    module = torch.nn.Linear(rows.shape[1], rows.shape[0])
    with torch.no_grad():
        module.weight.copy_(torch.from_numpy(rows.copy()))
        module.bias.copy_(torch.from_numpy(intercept.copy()))
    return module


def onnx_linear(path: str | Path, weights: Float32, intercept: Float32, then: str) -> None:
    """Write an ONNX model with input "X", float32 (n, n_features), and output "Y", float32 (n, n_scores).

    Parameters
    ----------
    then : {"Sigmoid", "Softmax", ""}
        What is done with the scores.
    """
    onnx = imported("onnx", "onnx", "onnx")
    helper, real = onnx.helper, onnx.TensorProto.FLOAT
    rows = np.atleast_2d(weights).astype(np.float32)
    nodes = [helper.make_node("Gemm", ["X", "weights", "intercept"], ["scores" if then else "Y"], transB=1)]
    if then:
        options = {"axis": 1} if then == "Softmax" else {}
        nodes.append(helper.make_node(then, ["scores"], ["Y"], **options))
    tensors = [
        onnx.numpy_helper.from_array(rows, "weights"),
        onnx.numpy_helper.from_array(intercept.astype(np.float32), "intercept"),
    ]
    graph = helper.make_graph(
        nodes,
        "mlless_nb",
        [helper.make_tensor_value_info("X", real, ["n", rows.shape[1]])],
        [helper.make_tensor_value_info("Y", real, ["n", rows.shape[0]])],
        tensors,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], producer_name="mlless_nb")
    model.ir_version = 8  # as old as what is used: older runtimes read it, too
    onnx.checker.check_model(model)
    with for_writing(path) as file:
        file.write(model.SerializeToString())


def parquet_factors(path: Path, ids: NDArray[Any], factors: Float32, bias: Float32, mean: float) -> None:
    """Write one row for each id: "id", "bias" (float32), "factors" (a list of float32), "mean" (float32)."""
    pyarrow = imported("pyarrow", "pyarrow", "parquet")
    parquet = imported("pyarrow.parquet", "pyarrow", "parquet")
    listed = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(factors.reshape(-1)), factors.shape[1])
    values = ids if ids.dtype.kind == "i" else [str(each) for each in ids.tolist()]
    columns = {"id": pyarrow.array(values), "bias": bias, "factors": listed}
    parquet.write_table(pyarrow.table({**columns, "mean": np.full(len(bias), mean, np.float32)}), path)
