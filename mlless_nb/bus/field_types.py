"""Whether a value that was read from JSON has the type that a field of a message declares."""

from __future__ import annotations

import functools
import types
import typing
from typing import Any


@functools.cache
def _scalars(hint: Any) -> frozenset[type]:
    """The types allowed by ``hint`` if it is a plain type or a union of plain types, else an empty set."""
    parts = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if not all(part in (str, int, float, bool, types.NoneType) for part in parts):
        return frozenset()
    return frozenset((*parts, int) if float in parts else parts)


def fits(value: object, hint: Any) -> bool:
    """Whether ``value``, read from JSON, has the type ``hint``, including all items in it."""
    if hint is Any:
        return True
    inner = typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        return any(fits(value, one) for one in inner)
    if isinstance(value, list):
        if typing.get_origin(hint) is not list:
            return False
        scalars = _scalars(inner[0])
        # Rows of telemetry are long: check all items in one call.
        return scalars.issuperset(map(type, value)) if scalars else all(fits(item, inner[0]) for item in value)
    if isinstance(value, dict):  # JSON's keys are strings
        return typing.get_origin(hint) is dict and all(fits(item, inner[1]) for item in value.values())
    return type(value) is hint or (hint is float and type(value) is int)
