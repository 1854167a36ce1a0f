"""Errors that say all in one line: notebooks and scripts show that line, with the user's own line that led to it.

IPython asks an error for its traceback, in every notebook. For scripts `install` adds a hook, if nobody has one. A real
bug is no such error and keeps its traceback; so does every error under ``%xmode Verbose`` or ``MLLESS_TRACEBACK=1``.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

#: Modes of IPython's tracebacks in which a user asks for all of them.
VERBOSE = ("Verbose", "Docs")


class OneLine(BaseException):
    """Mixin of exceptions whose text is all that a user needs."""

    def _render_traceback_(self) -> list[str]:
        """For IPython: the lines to show."""
        shell = shell_here()
        if shell is not None and (shell.InteractiveTB.mode in VERBOSE or _is_full()):
            lines: list[str] = shell.InteractiveTB.structured_traceback(type(self), self, self.__traceback__)
            return lines
        return [line_of(self)]


def line_of(error: BaseException) -> str:
    """``JobError in cell In[3], line 2: workers=0: must be ...``: its kind, where the user's code is, and its text."""
    place = _place(error.__traceback__)
    return f"{type(error).__name__}{f' in {place}' if place else ''}: {error}"


def install() -> None:
    """Show errors of this kind in one line where they end a script; a hook of somebody else stays."""
    if sys.excepthook is sys.__excepthook__ and not sys.flags.dev_mode:
        sys.excepthook = _hook


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, OneLine) and not _is_full():
        print(line_of(error), file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


def _is_full() -> bool:
    return os.environ.get("MLLESS_TRACEBACK", "") not in ("", "0")


def shell_here() -> Any:
    """IPython's shell, if there is one."""
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython is not None else None


def _place(trace: TracebackType | None) -> str:
    """The innermost line of the user's own code, "" if there is none."""
    found = ""
    while trace is not None:
        if _is_users(trace.tb_frame):
            found = _named(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
        trace = trace.tb_next
    return found


def _is_users(frame: FrameType) -> bool:
    """Whether it is neither a frame of this package nor of one that is installed, or comes with Python."""
    if str(frame.f_globals.get("__name__", "")).partition(".")[0] == __package__:
        return False
    name = frame.f_code.co_filename
    if _cell_of(name):
        return True
    installed = [sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
    return not name.startswith("<") and not any(Path(name).is_relative_to(path) for path in installed)


def _cell_of(name: str) -> str:
    """The cell whose code is called ``name``, e.g. "cell In[3]"; "" if it is none."""
    shell = shell_here()
    found = shell.compile.format_code_name(name) if shell is not None else None
    return " ".join(found).lower().replace("in[", "In[") if found else ""


def _named(name: str, line: int) -> str:
    return f"{_cell_of(name) or name}, line {line}"
