"""The text of a ``%%mlless sweep`` cell as a recipe: each trial runs the body with its own values in it. Pure."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from ..errors import JobError
from ..job.job import TrainingJob
from ..search import Space, choice, integer, log_uniform, uniform
from ..search.recipe import Draw, Recipe
from .cell import CellError, read_cell

#: What a cell can call without an import.
CALLS = {each.__name__: each for each in (choice, integer, log_uniform, uniform)}
#: The name by which the rewritten body draws; no user's name has a space in it.
_DRAWN = "drawn value"


def recipe_of_cell(
    text: str, namespace: Mapping[str, Any], options: Mapping[str, Any], rules: Mapping[str, Any], filename: str
) -> Recipe:
    """The recipe of a cell; parameters are those of `read_cell`.

    A setting is named by the variable or the argument that a call such as ``choice(...)`` is assigned to. Variables of
    the notebook that hold such a call's result are settings, too, if the body reads them.
    """

    def recipe(draw: Draw) -> TrainingJob:
        def drawn(name: str, space: Any) -> Any:
            return draw(name, space) if isinstance(space, Space) else space

        def rewritten(body: ast.Module) -> ast.Module:
            drawing: ast.Module = _Rewriter(body).visit(body)
            return ast.fix_missing_locations(drawing)

        read = _names_read(text)
        held = {
            name: draw(name, value) for name, value in namespace.items() if name in read and isinstance(value, Space)
        }
        scope = {**namespace, **CALLS, **held, _DRAWN: drawn}
        try:
            return read_cell(text, scope, options, rules, filename, rewritten)
        except JobError as error:
            raise CellError(1, str(error)) from error

    return recipe


def _names_read(text: str) -> set[str]:
    try:
        nodes = ast.walk(ast.parse(text))
    except (SyntaxError, ValueError):
        return set()  # `read_cell` says what is wrong
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


class _Rewriter(ast.NodeTransformer):
    """Replaces each call of `CALLS` by a draw with its setting's name."""

    def __init__(self, body: ast.Module) -> None:
        self._names: dict[int, str] = {}  # of calls, by the node's id
        taken: set[str] = set()
        for node in ast.walk(body):
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and _is_call(node.value):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if isinstance(targets[0], ast.Name):
                    self._name(node.value, targets[0].id, taken)
        for node in ast.walk(body):
            for keyword in node.keywords if isinstance(node, ast.Call) else ():
                if keyword.arg is not None and _is_call(keyword.value):
                    owner = f"{ast.unparse(node.func)}.{keyword.arg}"  # type: ignore[attr-defined]
                    self._name(keyword.value, owner if keyword.arg in taken else keyword.arg, taken)
        for node in ast.walk(body):
            if _is_call(node) and id(node) not in self._names:
                self._name(node, f"{node.func.id} in line {node.lineno}", taken)  # type: ignore[attr-defined]

    def _name(self, call: Any, name: str, taken: set[str]) -> None:
        other, number = name, 2
        while other in taken:
            other, number = f"{name} ({number})", number + 1
        taken.add(other)
        self._names[id(call)] = other

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = self._names.get(id(node))
        visited = self.generic_visit(node)
        if name is None:
            return visited
        function = ast.Name(_DRAWN, ast.Load())
        return ast.copy_location(ast.Call(function, [ast.Constant(name), visited], []), node)  # type: ignore[list-item]


def _is_call(node: object) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS
