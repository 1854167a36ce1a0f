"""A class or function that a user wrote, as source text with its SHA-256: so it travels to functions."""

from __future__ import annotations

import functools
import hashlib
import importlib
import linecache
import types
from dataclasses import dataclass, field
from textwrap import dedent
from typing import Any

import numpy as np

from ..errors import JobError

#: Most characters of a source.
MOST_SOURCE = 65_536


@dataclass(frozen=True)
class Definition:
    """A class or function definition.

    Attributes
    ----------
    name : str
        Its name.
    source : str
        The statement, with its decorators.
    sha256 : str
        Of the source in UTF-8, hexadecimal.
    """

    name: str
    source: str = field(repr=False)
    sha256: str

    def __post_init__(self) -> None:
        if not (isinstance(self.name, str) and self.name.isidentifier()):
            raise JobError("definition.name", self.name, "the name of a class or a function")
        if not isinstance(self.source, str) or len(self.source) > MOST_SOURCE:
            raise JobError("definition.source", type(self.source), f"text of at most {MOST_SOURCE} characters")
        if self.sha256 != _sha256(self.source):
            raise JobError("definition.sha256", self.sha256, f"{_sha256(self.source)}, that of the source")

    @classmethod
    def of(cls, kind: Any, field_name: str, modules: tuple[str, ...] = ()) -> Definition:
        """The definition of the class or function ``kind``, from a cell or a module; names ``field_name`` in errors.

        Raises
        ------
        JobError
            If it is neither, its source cannot be found, is too long, or does not define the same by itself.
        """
        if not isinstance(kind, (type, types.FunctionType)) or kind.__name__ == "<lambda>":
            raise JobError(field_name, kind, "a class, or a function with a name, of the notebook or of a module")
        if not _functions(kind):
            raise JobError(field_name, kind, "a class with methods of its own; it has none")
        source = _source_of(kind)
        if source is None:
            raise JobError(field_name, kind, "a definition in the notebook or in a module, whose source is at hand")
        if len(source) > MOST_SOURCE:  # said with the user's own words
            raise JobError(field_name, kind, f"at most {MOST_SOURCE} characters long; it has {len(source)}")
        found = cls(kind.__name__, source, _sha256(source))
        if _contents(found.load(field_name, modules)) != _contents(kind):
            valid = "what its source defines alone, without changes afterwards or variables of a function around it"
            raise JobError(field_name, kind, valid)
        return found

    def load(self, field_name: str, modules: tuple[str, ...] = ()) -> Any:
        """What the source defines. It finds NumPy as ``np`` and ``numpy``, ``modules``, and no other names."""
        try:
            return _run(self, modules)
        except (Exception, SystemExit) as error:
            valid = f"a definition that runs by itself and imports what it uses; its source raises {said(error)}"
            raise JobError(field_name, self.name, valid) from error


def said(error: BaseException) -> str:
    """An exception in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _sha256(source: str) -> str:
    return hashlib.sha256(source.encode()).hexdigest()


@functools.lru_cache(maxsize=32)
def _run(definition: Definition, modules: tuple[str, ...]) -> Any:
    filename = f"<{definition.name} {definition.sha256[:12]}>"
    lines = definition.source.splitlines(keepends=True)
    linecache.cache[filename] = (len(definition.source), None, lines, filename)  # for tracebacks
    scope: dict[str, Any] = {"__name__": "mlless_model", "np": np, "numpy": np}
    scope |= {name: importlib.import_module(name) for name in modules}
    exec(compile(definition.source, filename, "exec"), scope)
    return scope[definition.name]


def _functions(kind: Any) -> dict[str, types.FunctionType]:
    if isinstance(kind, types.FunctionType):
        return {kind.__name__: kind}
    plain = {name: getattr(value, "__func__", value) for name, value in vars(kind).items()}
    return {name: value for name, value in plain.items() if isinstance(value, types.FunctionType)}


def _contents(kind: Any) -> tuple[set[str], dict[str, Any]]:
    """The names in a class, and what its functions are made of."""
    names = {name for name in vars(kind) if not name.startswith("__")}
    return names, {name: _parts(function.__code__) for name, function in _functions(kind).items()}


def _parts(code: types.CodeType) -> tuple[Any, ...]:
    """Names and constants of a function; its byte code also depends on the imports around it."""
    constants = [_parts(one) if isinstance(one, types.CodeType) else repr(one) for one in code.co_consts]
    return code.co_names, code.co_varnames, code.co_freevars, constants


def _source_of(kind: Any) -> str | None:
    """The class or function statement, found by the first line of a function in it.

    ``inspect.getsource`` finds no classes of a notebook, whose ``__main__`` has no file.
    """
    import ast  # functions do not need it

    for function in _functions(kind).values():
        code = function.__code__
        lines = linecache.getlines(code.co_filename)
        if lines and lines[0].startswith("%%"):
            lines = ["\n", *lines[1:]]  # a cell magic
        try:
            body = ast.parse("".join(lines))
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(body):
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == kind.__name__:
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                last = node.end_lineno or first
                if first <= code.co_firstlineno <= last:
                    return dedent("".join(lines[first - 1 : last]))
    return None
