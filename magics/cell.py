"""Makes a `TrainingJob` from the text of a ``%%mlless`` cell and the notebook's variables. Launches nothing."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any

import mlless_nb

from ..errors import JobError, MllessError
from ..job.job import TrainingJob
from ..job.limits import Stop
from ..validation import hint, nearest

#: Lines of the cell above its body: the ``%%mlless`` line.
LINES_ABOVE = 1
FIELDS = tuple(field.name for field in fields(TrainingJob))
REQUIRED = ("model", "data")


class CellError(MllessError):
    """The cell does not define a valid job. ``line`` is 1-based; line 1 is the ``%%mlless`` line."""

    def __init__(self, line: int, message: str) -> None:
        self.line = line
        super().__init__(f"line {line} of the cell: {message}")


def read_cell(
    text: str,
    namespace: Mapping[str, Any],
    options: Mapping[str, Any] | None = None,
    rules: Mapping[str, Any] | None = None,
    filename: str = "<mlless cell>",
    rewritten: Callable[[ast.Module], ast.Module] = lambda body: body,
) -> TrainingJob:
    """The job that a cell defines.

    The body is Python. It can read the notebook's variables but does not change them. The values that it assigns to
    ``model``, ``optimizer``, ``data``, ``sync``, ``stop`` or any other field of `TrainingJob` make the job.

    Parameters
    ----------
    text : str
        The body of the cell, without the ``%%mlless`` line.
    namespace : Mapping
        The notebook's variables.
    options : Mapping, optional
        Fields of the job from the ``%%mlless`` line.
    rules : Mapping, optional
        Rules of `Stop` from the ``%%mlless`` line.
    filename : str
        The cell's name in tracebacks.
    rewritten : callable
        What is executed in the place of the parsed body.

    Raises
    ------
    CellError
        With the cell's line: for a syntax error, an exception of the body itself, or a field that is missing, invalid,
        misspelt or given twice. An exception in code that the body calls is raised unchanged.
    """
    body = _parse(text, filename)
    lines = _assigned_lines(body)
    _refuse_misspelt(text, body, lines)
    scope = _run(rewritten(body), namespace, filename)
    assigned = symtable.symtable(text, filename, "exec")
    given = {name: scope[name] for name in lines if name in scope and name in FIELDS and _is_bound(assigned, name)}
    for name, value in (options or {}).items():
        if name in given:
            raise CellError(lines[name], f"{name} is given here and on the %%mlless line; keep one of the two")
        given[name] = value
    if rules:
        given["stop"] = _with_rules(given.get("stop", Stop()), rules, lines.get("stop", 1))
    for name in REQUIRED:
        if name not in given:
            raise CellError(1, _missing(name, lines, namespace))
    # An optional field may be misspelt too, and `_refuse_misspelt` misses it if the cell reads that name.
    if "optimizer" not in given and nearest("optimizer", [name for name in lines if name not in FIELDS], 0.75):
        raise CellError(1, _missing("optimizer", lines, namespace))
    try:
        return TrainingJob(**given)
    except JobError as error:
        raise at_its_line(text, error) from error


def unused(text: str) -> str:
    """One line on the names that the cell's body ``text`` assigns but does not use; "" if there are none."""
    body = _parse(text, "<mlless cell>")
    names = _unused(text, body, _assigned_lines(body))
    if not names:
        return ""
    listed = ", ".join(f"{name} (line {line})" for name, line in names.items())
    return f"not used in the cell, and not kept after it: {listed}"


def at_its_line(text: str, error: JobError) -> CellError:
    """``error`` with the line that assigns its field; line 1 if the body ``text`` does not assign it."""
    return CellError(_assigned_lines(_parse(text, "<mlless cell>")).get(error.field.partition(".")[0], 1), str(error))


def _parse(text: str, filename: str) -> ast.Module:
    try:
        body = ast.parse(text, filename)
        compile(body, filename, "exec")  # finds errors that ast.parse accepts, e.g. `return` outside a function
    except SyntaxError as error:
        line = (error.text or "").strip()
        shown = f": {line}" if line else ""
        raise CellError((error.lineno or 1) + LINES_ABOVE, f"{error.msg}{shown}") from error
    except ValueError as error:  # null bytes
        raise CellError(1 + LINES_ABOVE, str(error)) from error
    return ast.increment_lineno(body, LINES_ABOVE)


def _assigned_lines(body: ast.Module) -> dict[str, int]:
    """Name -> the last line of the cell that assigns it."""
    stores = [n for n in ast.walk(body) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    lines = {name.id: name.lineno for name in sorted(stores, key=lambda name: name.lineno)}
    for node in ast.walk(body):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            lines.update({alias.asname or alias.name: node.lineno for alias in node.names})
    return lines


def _is_bound(table: symtable.SymbolTable, name: str) -> bool:
    """Whether the body itself, not a function inside it, binds ``name``."""
    try:
        symbol = table.lookup(name)
    except KeyError:
        return False
    return symbol.is_assigned() or symbol.is_imported()


def _run(body: ast.Module, namespace: Mapping[str, Any], filename: str) -> dict[str, Any]:
    scope = dict(namespace)
    try:
        exec(compile(body, filename, "exec"), scope)
    except Exception as error:
        trace = error.__traceback__
        trace = trace.tb_next if trace is not None else None  # past this function
        if trace is None:
            raise
        line, in_body = trace.tb_lineno, trace.tb_next is None
        if isinstance(error, MllessError):
            raise CellError(line, str(error)) from error
        if in_body:
            name = error.name if isinstance(error, NameError) else None
            known = [other for other in scope if not other.startswith("_")]
            meant = (nearest(name, known) or nearest(name, mlless_nb.__all__)) if name else None
            asked = f"; is {meant} meant?" if meant not in (None, name) else ""
            raise CellError(line, f"{type(error).__name__}: {error}{asked}") from error
        raise
    return scope


def _with_rules(stop: object, rules: Mapping[str, Any], line: int) -> Stop:
    if not isinstance(stop, Stop):
        raise CellError(line, str(JobError("stop", stop, "Stop(target=..., epochs=..., ...)")))
    for rule in rules:
        if getattr(stop, rule) != getattr(Stop(), rule):
            raise CellError(line, f"stop.{rule} is given here and on the %%mlless line; keep one of the two")
    try:
        return replace(stop, **rules)
    except JobError as error:
        raise CellError(1, str(error)) from error


def _unused(text: str, body: ast.Module, lines: Mapping[str, int]) -> dict[str, int]:
    """Name -> line of names that are assigned, are not fields and are never read; except _names and loop variables."""
    table = symtable.symtable(text, "<mlless cell>", "exec")
    nodes = list(ast.walk(body))
    looped = [node.target for node in nodes if isinstance(node, (ast.For, ast.comprehension))]
    opened = [item.optional_vars for node in nodes if isinstance(node, ast.With) for item in node.items]
    passes = {*FIELDS} | {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    passes |= {n.id for target in [*looped, *opened] if target for n in ast.walk(target) if isinstance(n, ast.Name)}
    return {
        name: line
        for name, line in lines.items()
        if name not in passes
        and not name.startswith("_")
        and _is_bound(table, name)
        and not table.lookup(name).is_imported()
    }


def _refuse_misspelt(text: str, body: ast.Module, lines: Mapping[str, int]) -> None:
    """Raise CellError for an unused name that resembles a field: it is probably misspelt, and would be ignored."""
    for name, line in _unused(text, body, lines).items():
        if meant := hint(name, FIELDS):
            fields = ", ".join(FIELDS)
            raise CellError(line, f"{name} is not a field of a job, and not used in the cell{meant} Fields: {fields}")


def _missing(name: str, lines: Mapping[str, int], namespace: Mapping[str, Any]) -> str:
    example = {"model": "PMF(rank=20)", "optimizer": "SGD(learning_rate=8.0)", "data": 'datasets.movielens("1m")'}
    message = f"the cell does not name {name}; add a line such as `{name} = {example.get(name, '...')}`"
    if near := nearest(name, [other for other in lines if other not in FIELDS], 0.75):
        message += f" (line {lines[near]} assigns {near}; is {name} meant?)"
    elif name in namespace:
        message += f" (`{name} = {name}` takes the notebook's variable)"
    return message
