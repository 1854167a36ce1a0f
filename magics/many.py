"""``%mlless runs``, ``spend``, ``compare`` and ``forget``: all runs of a user, of all notebooks and days."""

from __future__ import annotations

from typing import Any

from IPython.core.error import UsageError
from IPython.display import display

import mlless_nb

from ..search.launch import sweeps

#: The options of ``runs`` and ``spend``.
FLAGS = ("--project", "--sweep")


def runs(words: list[str]) -> None:
    """``runs [N] [--project NAME] [--sweep NAME]``: a table of all runs, or of the newest N."""
    numbers, options = _parsed("runs", words, FLAGS)
    if len(numbers) > 1 or not all(word.isdecimal() and int(word) for word in numbers):
        raise UsageError(
            f"%mlless runs {' '.join(numbers)}: must be a number of runs, e.g. %mlless runs 10; %mlless status RUN "
            "tells of one"
        )
    _show(mlless_nb.runs(int(numbers[0]) if numbers else None, **options))


def spend(words: list[str]) -> None:
    """``spend [--project NAME]``: what all runs have cost, by day and project."""
    names, options = _parsed("spend", words, FLAGS[:1])
    if names:
        raise UsageError(f"%mlless spend {' '.join(names)}: must be without a name; --project NAME chooses a project")
    _show(mlless_nb.spend(**options))


def compare(words: list[str]) -> None:
    """``compare RUN RUN ...``: their losses against seconds and dollars, and the settings that differ."""
    names, _ = _parsed("compare", words, ())
    if len(names) < 2:
        raise UsageError(
            "%mlless compare: must name two runs or more, e.g. %mlless compare first second; %mlless runs lists them"
        )
    _show(mlless_nb.compare(*names))


def forget(words: list[str]) -> None:
    """``forget RUN ...``: remove ended runs, with their records and models."""
    names, _ = _parsed("forget", words, ())
    if not names:
        raise UsageError("%mlless forget: must name runs, e.g. %mlless forget first; %mlless runs lists them")
    if live := [sweep.name for sweep in sweeps() if sweep.is_live and {sweep.name, sweep.id} & {*names}]:
        raise UsageError(f"%mlless forget {live[0]}: the sweep is live; %mlless stop {live[0]} ends it")
    removed = mlless_nb.forget(*names)
    print("\n".join(f"removed {run.name} ({run.id})" for run in removed))


def _parsed(command: str, words: list[str], flags: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    """The plain words, and the options by name."""
    plain, options = [], {}
    left = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    while left:
        word = left.pop(0)
        if not word.startswith("-"):
            plain.append(word)
        elif word not in flags:
            valid = f"one of {', '.join(flags)}" if flags else "without options"
            raise UsageError(f"%mlless {command} {word}: must be {valid}")
        elif not left:
            raise UsageError(f"%mlless {command} {word}: must be followed by a name")
        else:
            options[word.removeprefix("--")] = left.pop(0)
    return plain, options


def _show(found: Any) -> None:
    """Show a table, or whatever shows itself."""
    if hasattr(found, "_ipython_display_"):
        display(found)
        return
    display({"text/html": found._repr_html_(), "text/plain": repr(found)}, raw=True)
