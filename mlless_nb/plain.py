"""Python's own numbers in place of NumPy's: what a person computes is as good as what they type, and goes to JSON."""

from __future__ import annotations

from typing import Any

import numpy as np


def plain(value: Any) -> Any:
    """``value``, or the Python scalar that a NumPy scalar stands for."""
    return value.item() if isinstance(value, np.generic) else value
