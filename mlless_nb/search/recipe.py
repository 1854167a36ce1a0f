"""How a trial's job is made from drawn settings, checked at the edges of what they are drawn from. Launches nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from ..errors import JobError
from ..job.job import TrainingJob
from ..validation import hint
from .space import Space

#: Draws a value of a setting: its name, and what it is drawn from.
Draw = Callable[[str, Space], Any]
#: Makes a trial's job from the settings that it draws.
Recipe = Callable[[Draw], TrainingJob]
#: Parts of a job whose fields can be named without the part.
PARTS = ("optimizer", "model", "sync", "algorithm", "stop", "scale_in")


def recipe_of(job: object, space: Mapping[str, Space] | None) -> Recipe:
    """The recipe of ``job``, a `TrainingJob` or a function of the settings, whose settings are drawn from ``space``.

    Raises
    ------
    JobError
        If it is neither, nothing is to be drawn, or a name is none of the job's fields.
    """
    if not isinstance(space, Mapping) or not space:
        raise JobError("space", space, 'what settings are drawn from, e.g. {"learning_rate": log_uniform(0.1, 10.0)}')
    for name, drawn_from in space.items():
        if not isinstance(drawn_from, Space):
            raise JobError(
                f"space[{name!r}]", drawn_from, "choice(...), uniform(...), log_uniform(...) or integer(...)"
            )
    if isinstance(job, TrainingJob):
        paths = {name: _path(job, name) for name in space}
        return lambda draw: changed(job, {paths[name]: draw(name, each) for name, each in space.items()})
    if not callable(job):
        raise JobError("job", job, "a TrainingJob, or a function that makes one from the settings")
    return lambda draw: _made(job, {name: draw(name, each) for name, each in space.items()})


def _made(make: Callable[..., Any], values: dict[str, Any]) -> TrainingJob:
    job = make(**values)
    if not isinstance(job, TrainingJob):
        raise JobError("job", job, "a function that returns a TrainingJob")
    return job


def _path(job: TrainingJob, name: str) -> tuple[str, ...]:
    """The path to a field of the job, or of a part of it: "workers", "learning_rate", "optimizer.learning_rate"."""
    own = {entry.name for entry in fields(job)}
    parts = {part: {entry.name for entry in fields(getattr(job, part))} for part in PARTS if _has_fields(job, part)}
    part, _, field = name.partition(".")
    if field in parts.get(part, ()):
        return part, field
    if name in own:
        return (name,)
    homes = [part for part, names in parts.items() if name in names]
    if len(homes) == 1:
        return homes[0], name
    if homes:
        raise JobError("space", name, " or ".join(f"{home}.{name}" for home in homes))
    known = [*sorted(own), *sorted({f"{part}.{field}" for part, names in parts.items() for field in names})]
    raise JobError("space", name, f"a field of the job or of a part of it{hint(name, known)}")


def _has_fields(job: TrainingJob, part: str) -> bool:
    return dataclasses.is_dataclass(getattr(job, part))


def changed(job: TrainingJob, values: Mapping[tuple[str, ...], Any]) -> TrainingJob:
    """``job`` with other values of fields, each by its path."""
    changes: dict[str, Any] = {path[0]: value for path, value in values.items() if len(path) == 1}
    for part in dict.fromkeys(path[0] for path in values if len(path) == 2):
        inner = {path[1]: value for path, value in values.items() if path[0] == part and len(path) == 2}
        changes[part] = dataclasses.replace(changes.get(part, getattr(job, part)), **inner)
    return dataclasses.replace(job, **changes)


def tried(recipe: Recipe) -> tuple[TrainingJob, dict[str, Space], TrainingJob]:
    """A job of the recipe, what its settings are drawn from, and, of the jobs at all edges, that with most workers.

    Raises
    ------
    JobError
        If one of these jobs is wrong, has no held-out rows, or its losses cannot be compared with the others'.
    """
    spaces: dict[str, Space] = {}

    def first(name: str, space: Space) -> Any:
        if not spaces.setdefault(name, space).is_like(space):
            raise JobError(name, space, f"drawn from the same in all trials, {spaces[name]}")
        return space.edges[0]

    job = widest = recipe(first)
    _check(job, job)
    if not spaces:
        raise JobError("space", None, "at least one choice(...), uniform(...), log_uniform(...) or integer(...)")
    for name in list(spaces):
        for edge in spaces[name].edges[1:]:
            made = recipe(_with_one(name, edge, first))
            _check(made, job)
            widest = max(widest, made, key=lambda each: each.workers or 0)
    return job, spaces, widest


def _with_one(name: str, value: Any, others: Draw) -> Draw:
    """Draws ``value`` for the setting ``name``, and the other settings by ``others``."""
    return lambda other, space: value if other == name else others(other, space)


def _check(job: TrainingJob, first: TrainingJob) -> None:
    if job.validation is None:
        raise JobError("validation", None, "a fraction or rows: trials are compared by their held-out losses")
    if job.model.metric != first.model.metric:
        raise JobError("model", job.model, f"one whose held-out loss is {first.model.metric}, as that of the others")
