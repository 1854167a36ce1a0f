"""Python's own numbers in place of NumPy's: what a person computes is as good as what they type, and goes to JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """``value``, or the Python scalar that a NumPy scalar stands for."""
    return value.item() if isinstance(value, np.generic) else value


def make_plain(spec: Any) -> None:
    """Replace the NumPy scalars among the fields of a frozen dataclass; for the first line of ``__post_init__``."""
    for field in dataclasses.fields(spec):
        object.__setattr__(spec, field.name, plain(getattr(spec, field.name)))
