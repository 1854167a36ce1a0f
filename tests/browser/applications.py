"""In which programs a test of the dashboard runs."""

from __future__ import annotations

import pytest
from lab import JUPYTERLAB, NOTEBOOK_7

#: Mark of a test that runs in either: of what depends on the program around the dashboard.
IN_BOTH = pytest.mark.parametrize(
    "lab",
    [pytest.param(JUPYTERLAB, id="lab"), pytest.param(NOTEBOOK_7, id="notebook7", marks=pytest.mark.long)],
    indirect=True,
)
