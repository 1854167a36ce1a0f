"""How code at the place where a run is shown reaches the run."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..one_line import shell_here


class Access(NamedTuple):
    """An expression for the run's handle, and whether the magics are at hand, which a script has not."""

    handle: str
    has_magics: bool


def access_to(run: Any) -> Access:
    """By the variable that `%%mlless` gives a run, if that is this run, else by its name."""
    shell, variable = shell_here(), run.name.replace("-", "_")
    has_magics = shell is not None and shell.find_cell_magic("mlless") is not None
    is_held = shell is not None and shell.user_ns.get(variable) is run
    return Access(variable if is_held else f"mlless_nb.attach({run.name!r})", has_magics)
