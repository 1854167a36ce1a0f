"""Settings become a `TrainingJob`: the fields of a cell, and the stop rules as the ``%%mlless`` line has them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..errors import JobError, MllessError, ServiceError
from ..job.algorithm import registered_algorithms
from ..job.checks import NAME
from ..job.job import TrainingJob
from ..job.limits import Stop
from ..job.optimizers import OPTIMIZERS
from ..job.scale_in import ScaleIn
from ..job.sync import registered_syncs
from ..models import registered_models
from ..models.written import WrittenModel
from ..validation import hint
from ..worker import algorithms  # noqa: F401 - registers the algorithms
from .calls import KIND, CallError, called, table_of
from .data import data_table, rows_of, validation_table
from .settings import ConfigError, Settings

#: Fields that a text or a table may call, and an example.
PARTS = {
    "model": '"PMF(rank=20)"',
    "optimizer": '"SGD(learning_rate=8.0)"',
    "sync": '"ISP(0.7)"',
    "algorithm": '"ADMM()"',
}
_REGISTRIES: dict[str, Callable[[], Mapping[str, type[Any]]]] = {
    "model": registered_models,
    "optimizer": lambda: OPTIMIZERS,
    "sync": registered_syncs,
    "algorithm": registered_algorithms,
}
#: Tables that are one class, and what makes them.
GROUPS: dict[str, Callable[..., Any]] = {"stop": Stop, "scale_in": ScaleIn}
ROWS = ("data", "validation")
STOP_RULES = tuple(entry.name for entry in fields(Stop))
FIELDS = tuple(entry.name for entry in fields(TrainingJob))


def callables(field: str) -> dict[str, Callable[..., Any]]:
    """What a text or table of ``field`` may call, by name: all that is registered, but models that are source code."""
    classes = _REGISTRIES[field]().values()
    return {each.__name__: each for each in classes if not issubclass(each, WrittenModel)}


def job_of(settings: Settings) -> TrainingJob:
    """The job that ``settings`` describe; its name is by default that of the file.

    Raises
    ------
    ConfigError
        One line with the file or option, the field, its value, and what is valid.
    """
    given = _given(settings)
    made: dict[str, Any] = {}
    tables = dict(given)
    for name in [*PARTS, *ROWS, *GROUPS]:
        if name in given:
            value = given.pop(name)
            with _at(settings, name, value):
                made[name] = _made(name, value, made, tables)
    stem = Path(settings.source).stem
    if "name" not in given and NAME.fullmatch(stem):
        given["name"] = stem
    for name in ("model", "data"):
        if name not in made:
            example = PARTS.get(name, '"ratings.csv"')
            raise ConfigError(f"{settings.source}: {name} must be given, e.g. {name} = {example}")
    try:
        return TrainingJob(**given, **made)
    except JobError as error:
        name, _, part = error.field.partition(".")
        raise ConfigError(f"{settings.source_of(name, *([part] if name == 'stop' else []))}: {error}") from None


def _given(settings: Settings) -> dict[str, Any]:
    """All fields as plain values and tables: those of the file, changed as the options say."""
    given: dict[str, Any] = {}
    for name, value in settings.fields.items():
        _put(settings, given, [name], value, settings.folder)
    # Relative paths of an option begin where the user is, those of a file where the file is.
    for _, parts, value in settings.changes:
        _put(settings, given, parts, value, Path.cwd())
    return given


def _put(settings: Settings, given: dict[str, Any], parts: list[str], value: Any, folder: Path) -> None:
    name, *inner = parts
    with _at(settings, ".".join(parts), value):
        if name in STOP_RULES:
            name, inner = "stop", [name, *inner]
        if name not in FIELDS:
            meant = hint(name, (*FIELDS, *STOP_RULES)) or "; the fields are"
            listed = "" if meant.endswith("?") else f" {', '.join((*FIELDS, *STOP_RULES))}"
            raise CallError(f"left out: it is no field of a job{meant}{listed}")
        if not inner:
            whole = _table(name, value, folder)
            given[name] = {**given.get("stop", {}), **whole} if name == "stop" else whole
            return
        if name == "stop":
            given.setdefault(name, {})
        if not isinstance(given.get(name), dict) or (len(inner) > 1 and name != "backend"):
            raise CallError(f"part of a given {name}: name that in the file, or in a --set {name}=... before")
        into = given[name]
        for part in inner[:-1]:
            into = into.setdefault(part, {})
            if not isinstance(into, dict):
                raise CallError(f"part of a table; {name}.{part} is none")
        into[inner[-1]] = value
        if name in ROWS:
            given[name] = _table(name, into, folder)


def _table(name: str, value: Any, folder: Path) -> Any:
    """``value`` of the field ``name``: a table where the field has parts."""
    if name in PARTS:
        return table_of(value, callables(name), PARTS[name])
    if name == "data":
        return data_table(value, folder)
    if name == "validation" and isinstance(value, (str, list, Mapping)) and value != "none":
        return validation_table(value, folder)
    if name == "stop" and not isinstance(value, Mapping):
        raise CallError("a table of rules, e.g. {epochs = 10}")
    return dict(value) if isinstance(value, Mapping) else value


def _made(name: str, value: Any, made: Mapping[str, Any], tables: Mapping[str, Any]) -> Any:
    """The value of the job's field ``name``."""
    if name in PARTS:
        return called(value, callables(name))
    if name == "data":
        return rows_of(value, made.get("model"))
    if name == "validation":
        if not isinstance(value, Mapping):
            return None if value == "none" else value
        return rows_of({**tables.get("data", {}), **value}, made.get("model"), made.get("data"))
    if name == "scale_in" and value in ("on", "off", True, False):
        return ScaleIn() if value in ("on", True) else ScaleIn.off()
    if not isinstance(value, Mapping):
        raise CallError('"on", "off" or a table, e.g. {policy = "paper"}')
    return GROUPS[name](**value)


@contextlib.contextmanager
def _at(settings: Settings, name: str, value: Any) -> Iterator[None]:
    """Errors within are those of the field ``name``, which has ``value``."""
    try:
        yield
    except CallError as error:
        wrong = (f"{name}.{error.part}", error.value) if error.part else (name, _shown(value))
        raise ConfigError(f"{settings.source_of(name)}: {JobError(*wrong, str(error))}") from None
    except JobError as error:
        part = error.field.rpartition(".")[2]
        is_named = error.field.partition(".")[0] == name
        where = settings.source_of(name, f"{name}.{part}", *([part] if name == "stop" else []))
        raise ConfigError(f"{where}: {error}" if is_named else f"{where}: {name}: {error}") from None
    except ServiceError:
        raise
    except MllessError as error:
        raise ConfigError(f"{settings.source_of(name)}: {name}: {error}") from None


def _shown(value: Any) -> Any:
    """``value`` as it may be shown: of a table only its path, or what it calls."""
    return value.get("path", value.get(KIND, value)) if isinstance(value, Mapping) else value
