"""What a cell could call, written as text, ``"PMF(rank=20)"``, or as a table, ``{kind = "PMF", rank = 20}``. Pure.

Texts are not run: they are one name with arguments that are plain values.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..plurals import count
from ..validation import hint

#: The field of a table that names what is called.
KIND = "kind"
Table = dict[str, Any]


class CallError(ValueError):
    """A text or a table is no such call; the message is the end of "must be ...".

    ``part`` is the argument that is wrong, and ``value`` what it is; "" and None: the call itself is wrong.
    """

    def __init__(self, valid: str, part: str = "", value: Any = None) -> None:
        self.part, self.value = part, value
        super().__init__(valid)


def table_of(value: object, callables: Mapping[str, Callable[..., Any]], example: str) -> Table:
    """``value`` as a table with `KIND`, and its arguments by name.

    Parameters
    ----------
    value : object
        A text or a table.
    callables : mapping of str to callable
        By name.
    example : str
        For the message.

    Raises
    ------
    CallError
        If it is neither, or there is no such name or argument.
    """
    if isinstance(value, Mapping):
        if KIND not in value:
            raise CallError(f"a table with {KIND} = ..., one of {', '.join(callables)}, e.g. {example}")
        _checked(value[KIND], callables)
        return dict(value)
    if not isinstance(value, str):
        raise CallError(f"a text such as {example}")
    name, values, named = _parsed(value, example)
    _checked(name, callables)
    parameters = list(inspect.signature(callables[name]).parameters)
    if len(values) > len(parameters):
        raise CallError(f"{name} with at most {count(len(parameters), 'value')}: {', '.join(parameters)}")
    given = dict(zip(parameters, values, strict=False))
    if twice := set(given) & set(named):
        raise CallError(f"{name} with {min(twice)} given once")
    return {KIND: name, **given, **named}


def called(table: Mapping[str, Any], callables: Mapping[str, Callable[..., Any]]) -> Any:
    """The result of the call that ``table`` is.

    Raises
    ------
    CallError
        If an argument is unknown or missing.
    MllessError
        Those of the call.
    """
    make = callables[table[KIND]]
    named = {name: value for name, value in table.items() if name != KIND}
    parameters = inspect.signature(make).parameters
    listed = f"{table[KIND]} takes {', '.join(parameters) or 'nothing'}"
    for name, value in named.items():
        if name not in parameters:
            raise CallError(f"left out; {listed}{hint(name, parameters)}", name, value)
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in named:
            raise CallError(f"given; {listed}", name)
    return make(**named)


def _checked(name: object, callables: Mapping[str, Callable[..., Any]]) -> None:
    if not isinstance(name, str) or name not in callables:
        meant = hint(name, callables) if isinstance(name, str) else ""
        raise CallError(f"one of {', '.join(callables)}{meant}")


def _parsed(text: str, example: str) -> tuple[str, list[Any], Table]:
    """The name, the values and the named values of ``text``."""
    try:
        node = ast.parse(text.strip(), mode="eval").body
        if isinstance(node, ast.Call):
            if any(word.arg is None for word in node.keywords):
                raise ValueError
            values = [ast.literal_eval(each) for each in node.args]
            named = {str(word.arg): ast.literal_eval(word.value) for word in node.keywords}
            return _name_of(node.func), values, named
        return _name_of(node), [], {}
    except (SyntaxError, ValueError, TypeError, MemoryError, RecursionError):
        raise CallError(f"a text such as {example}, with plain values") from None


def _name_of(node: ast.expr) -> str:
    """``PMF`` of ``PMF`` or ``mlless_nb.PMF``."""
    if isinstance(node, ast.Attribute):
        _name_of(node.value)
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    raise ValueError
