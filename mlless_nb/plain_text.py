"""Text that is shown as it is. Pure."""

from __future__ import annotations

from typing import Any


class PlainText(str):
    """A string whose lines a notebook shows where it is the value of a cell, instead of one in quotes."""

    __slots__ = ()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))
