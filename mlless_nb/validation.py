"""Checks of user input: field names with hints for misspelt ones, and the values of fields."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

import numpy as np

from .errors import ArgumentError, JobError
from .plurals import count

Kind = TypeVar("Kind", bound=type)

#: Names that other libraries use for our fields.
SYNONYMS = {
    "alpha": "learning_rate",
    "batch_size": "minibatch",
    "batchsize": "minibatch",
    "cap": "budget",
    "eta": "learning_rate",
    "factors": "rank",
    "iterations": "steps",
    "lr": "learning_rate",
    "max_cost": "budget",
    "max_iter": "steps",
    "n_factors": "rank",
    "n_jobs": "workers",
    "num_workers": "workers",
    "random_state": "seed",
    "reg": "l2",
    "regularization": "l2",
    "step_size": "learning_rate",
    "timeout": "time_s",
    "val": "validation",
    "weight_decay": "l2",
}
_specifications: list[type] = []


def specification(kind: Kind) -> Kind:
    """Class decorator above ``@dataclass``: check the arguments of each call of ``kind`` by name.

    NumPy scalars are replaced by Python numbers, so that computed values are accepted like typed ones and can be
    written as JSON. A call raises `ArgumentError` if a field is unknown, missing or given twice.
    """
    init = kind.__init__  # type: ignore[misc]

    @functools.wraps(init)
    def checked(self: Any, *values: Any, **named: Any) -> None:
        _check(kind, values, named)
        init(self, *map(plain, values), **{name: plain(value) for name, value in named.items()})

    kind.__init__ = checked  # type: ignore[misc]
    _specifications.append(kind)
    return kind


def _check(kind: type, values: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    fields = {field.name: field for field in dataclasses.fields(kind)}
    listed = ", ".join(fields)
    for name, value in named.items():
        if name not in fields:
            # Show only the type of a text or object: the misspelt field may be a password.
            shown = value if isinstance(value, (bool, int, float, type(None))) else type(value)
            valid = f"named one of {listed}" if fields else "left out: there are no fields"
            raise ArgumentError(f"{kind.__name__}.{name}", shown, valid + hint(name, fields))
    if len(values) > len(fields):
        valid = f"at most {len(fields)}: {listed}" if fields else "left out: there are no fields"
        raise ArgumentError(kind.__name__, count(len(values), "value"), valid)
    given = [*list(fields)[: len(values)], *named]
    for name, field in fields.items():
        if given.count(name) > 1:
            raise ArgumentError(f"{kind.__name__}.{name}", named[name], "given once")
        has_default = field.default is not dataclasses.MISSING or field.default_factory is not dataclasses.MISSING
        if name not in given and not has_default:
            raise ArgumentError(f"{kind.__name__}.{name}", None, f"given; there are {listed}")


def nearest(name: str, valid: Collection[str], cutoff: float = 0.6) -> str | None:
    """The name in ``valid`` whose spelling is closest to ``name``, None if none is close."""
    import difflib  # functions do not need it, and start faster without it

    return next(iter(difflib.get_close_matches(name, valid, n=1, cutoff=cutoff)), None)


def hint(name: str, valid: Collection[str]) -> str:
    """A hint at the field meant by ``name``, which is not among the fields ``valid``: "; is rank meant?", or ""."""
    name = SYNONYMS.get(name.lower(), name)
    homes: dict[str, list[str]] = {}  # other specifications, by field
    for kind in _specifications:
        for field in dataclasses.fields(kind):
            homes.setdefault(field.name, []).append(kind.__name__)
    if name not in homes:
        name = nearest(name, valid, 0.7) or nearest(name, homes, 0.8) or name
    if name in valid:
        return f"; is {name} meant?"
    calls = " or ".join(f"{home}({name}=...)" for home in homes.get(name, []))
    return f"; is {calls} meant?" if calls else ""


def plain(value: Any) -> Any:
    """``value``; a NumPy scalar as a Python scalar."""
    return value.item() if isinstance(value, np.generic) else value


def is_integer(value: object) -> bool:
    """Whether ``value`` is an integer; True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether ``value`` is a finite number that a float can hold."""
    is_real = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_real and abs(value) <= sys.float_info.max  # type: ignore[arg-type]  # False for NaN


def check_number(field: str, value: object, least: float, *, or_none: bool = False) -> None:
    """Raise JobError unless ``value`` is a finite number >= ``least``, or None if ``or_none``."""
    if or_none and value is None:
        return
    if not is_number(value) or value < least:  # type: ignore[operator]
        raise JobError(field, value, f"a finite number >= {least:g}" + (" or None" if or_none else ""))


def check_positive_integer(field: str, value: object, *, or_none: bool = False) -> None:
    """Raise JobError unless ``value`` is an integer >= 1, or None if ``or_none``."""
    if or_none and value is None:
        return
    if not is_integer(value) or value < 1:  # type: ignore[operator]
        raise JobError(field, value, "an integer >= 1" + (" or None" if or_none else ""))


def check_flag(field: str, value: object) -> None:
    """Raise JobError unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise JobError(field, value, "True or False")


def check_choice(field: str, value: object, choices: Collection[str]) -> None:
    """Raise JobError unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise JobError(field, value, " or ".join(map(repr, choices)))
