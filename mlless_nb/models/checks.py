"""Checks that the models' fields share."""

from __future__ import annotations

import sys

from ..errors import JobError


def check_number(field: str, value: object, least: float, *, or_none: bool = False) -> None:
    """Raise JobError unless ``value`` is a finite number of at least ``least``, or None where ``or_none``."""
    if or_none and value is None:
        return
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not least <= value <= sys.float_info.max:  # type: ignore[operator]
        raise JobError(field, value, f"a finite number >= {least:g}" + (" or None" if or_none else ""))


def check_flag(field: str, value: object) -> None:
    """Raise JobError unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise JobError(field, value, "True or False")


def check_table(field: str, value: object, table: tuple[int, int]) -> None:
    """Raise JobError unless positions in a table of this shape fit 32 bits."""
    if table[0] * table[1] >= 2**32:
        raise JobError(field, value, f"so small that {table[0]} rows x {table[1]} is below 2**32 parameters")
