"""The text of a ``%%mlless`` cell and the notebook's variables -> a `TrainingJob`. Launches and bills nothing."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from ..errors import JobError, MllessError
from ..job.job import TrainingJob
from ..job.limits import Stop
from ..validation import hint, nearest

#: Lines of the cell above its body: the ``%%mlless`` line itself.
LINES_ABOVE = 1
FIELDS = tuple(field.name for field in fields(TrainingJob))
REQUIRED = ("model", "data")


class CellError(MllessError):
    """The cell does not say what to train. ``line`` is 1-based in the cell, whose line 1 is the ``%%mlless`` line."""

    def __init__(self, line: int, message: str) -> None:
        self.line = line
        super().__init__(f"line {line} of the cell: {message}")


def read_cell(
    text: str,
    namespace: Mapping[str, Any],
    options: Mapping[str, Any] | None = None,
    rules: Mapping[str, Any] | None = None,
    filename: str = "<mlless cell>",
) -> TrainingJob:
    """The job that a cell names.

    The body is Python. It reads the notebook's variables and writes none of them; what it assigns to ``model``,
    ``optimizer``, ``data``, ``sync``, ``stop`` or any other field of `TrainingJob` makes the job.

    Parameters
    ----------
    text : str
        The body of the cell, without the ``%%mlless`` line.
    namespace : Mapping
        The notebook's variables.
    options : Mapping, optional
        Fields of the job that the ``%%mlless`` line gives.
    rules : Mapping, optional
        Rules of `Stop` that the ``%%mlless`` line gives.
    filename : str
        What tracebacks call the cell.

    Raises
    ------
    CellError
        With the cell's line: a syntax error, an exception of the body itself, a field that is missing, of the wrong
        kind, misspelt or given twice. An exception from deeper down, in code the body calls, passes as it is.
    """
    body = _parse(text, filename)
    lines = _assigned_lines(body)
    _refuse_misspelt(text, body, lines)
    scope = _run(body, namespace, filename)
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
    # What a job can do without may be misspelt all the same, and read by the cell, which is no slip to the line above.
    if "optimizer" not in given and nearest("optimizer", [name for name in lines if name not in FIELDS], 0.75):
        raise CellError(1, _missing("optimizer", lines, namespace))
    try:
        return TrainingJob(**given)
    except JobError as error:
        raise at_its_line(text, error) from error


def unused(text: str) -> str:
    """One line on the names that the cell, whose body is ``text``, assigns for nothing; "" where there are none."""
    body = _parse(text, "<mlless cell>")
    names = _unused(text, body, _assigned_lines(body))
    if not names:
        return ""
    listed = ", ".join(f"{name} (line {line})" for name, line in names.items())
    return f"not used in the cell, and not kept after it: {listed}"


def at_its_line(text: str, error: JobError) -> CellError:
    """``error`` with the line of the cell that assigns its field; line 1 where the body, ``text``, does not."""
    return CellError(_assigned_lines(_parse(text, "<mlless cell>")).get(error.field.partition(".")[0], 1), str(error))


def _parse(text: str, filename: str) -> ast.Module:
    try:
        body = ast.parse(text, filename)
        compile(body, filename, "exec")  # finds what ast.parse lets pass, e.g. `return` outside a function
    except SyntaxError as error:
        line = (error.text or "").strip()
        shown = f": {line}" if line else ""
        raise CellError((error.lineno or 1) + LINES_ABOVE, f"{error.msg}{shown}") from error
    except ValueError as error:  # null bytes
        raise CellError(1 + LINES_ABOVE, str(error)) from error
    return ast.increment_lineno(body, LINES_ABOVE)


def _assigned_lines(body: ast.Module) -> dict[str, int]:
    """Name -> the cell's line that last stores to it."""
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
            raise CellError(line, f"{type(error).__name__}: {error}") from error
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
    """Name -> line, of what the body assigns though it neither is a field nor is read; _names and loops' names pass."""
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
    """A name that nothing reads and that is nearly a field's is a slip: without it the job would be another one."""
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
