"""A model that is written in the notebook: its source is found in a cell, and in the %%mlless cell itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

from mlless_nb import SGD, NumpyModel, datasets

LINE = """class Line:
    def parameters(self, n_features, seed):
        return {"w": np.zeros(n_features), "b": np.zeros(())}
    def loss(self, params, X, y):
        return float(np.mean((X @ params["w"] + params["b"] - y) ** 2) / 2)
    def gradients(self, params, X, y):
        e = (X @ params["w"] + params["b"] - y) / len(y)
        return {"w": X.T @ e, "b": e.sum()}
"""
FIELDS = "model = NumpyModel(Line)\ndata = rows\noptimizer = SGD(0.1)\n"


@pytest.fixture
def notebook(shell: InteractiveShell) -> InteractiveShell:
    """A notebook with some rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    rows = datasets.csr(X, X @ [1.0, -2.0, 0.5] + 1.0)
    shell.push({"NumpyModel": NumpyModel, "SGD": SGD, "rows": rows, "np": np})
    return shell


@pytest.mark.parametrize("is_inside", [True, False])
def test_the_source_is_found(notebook: InteractiveShell, stage: Any, is_inside: bool) -> None:
    if not is_inside:
        notebook.run_cell(LINE, store_history=True)
    notebook.run_cell_magic("mlless", "--workers 2 --name line", (LINE if is_inside else "") + FIELDS)
    definition = stage.runs[-1].job.model.definition
    assert (definition.name, definition.source) == ("Line", LINE)


def test_the_line_of_a_model_that_cannot_run_is_named(notebook: InteractiveShell) -> None:
    wrong = LINE.replace("float(np.mean", "rows.mean(np.mean")
    with pytest.raises(
        UsageError, match=r"line 10 of the cell: model='Line': must be .* NameError: name 'rows' is not"
    ):
        notebook.run_cell_magic("mlless", "", wrong + FIELDS)
