"""Tab completion after ``%%mlless`` and ``%mlless``: options, commands and names of runs and sweeps."""

from __future__ import annotations

import contextlib

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from ..driver import runs as registry
from ..errors import ServiceError
from ..search.launch import sweeps
from ..tracking import RunLedger
from . import budgets, cleaning, many, sweeping
from .commands import COMMANDS
from .options import OPTIONS

#: What takes runs of any process.
_OF_ALL = ("--resume", "attach", "compare", "forget")
#: Commands that take a sweep, too.
_OF_SWEEPS = ("status", "stop", "budget", "wait", "dashboard", "report", "forget")
#: Most names of earlier runs that are offered.
_MOST_EARLIER = 50


@context_matcher()
def complete(context: CompletionContext) -> SimpleMatcherResult:
    """Completions of the word before the cursor on a line of these magics; none on other lines."""
    words = context.line_with_cursor.split(" ")
    text = context.token
    offered = candidates(words)
    return SimpleMatcherResult(
        completions=[SimpleCompletion(text=word, type="param") for word in offered if word.startswith(text)],
        suppress=bool(offered) and text.startswith("-"),
    )


def candidates(words: list[str]) -> list[str]:
    """Candidates for the last of ``words``, which are the line up to the cursor."""
    if words[0] == "%%mlless" and words[-2:-1] == ["--resume"]:
        return _names("--resume")
    if words[:2] == ["%%mlless", "sweep"] and len(words) > 2:
        return [flag for flag in sweeping.FLAGS if flag not in words[2:-1]]
    if words[0] == "%%mlless" and len(words) > 1:
        taken = set(words[1:-1]) - {"--redis"}
        return [flag for flag, _ in OPTIONS if flag not in taken]
    if words[0] == "%mlless" and len(words) == 2:
        return list(COMMANDS)
    if words[0] == "%mlless" and len(words) > 2 and words[1] in ("session", "project"):
        return [flag for flag in budgets.FLAGS if flag not in words[2:-1]]
    if words[0] == "%mlless" and len(words) > 2 and words[1] == "budget":
        return [*_names("budget"), *(() if set(words) & set(budgets.SCOPES) else budgets.SCOPES)]
    if words[0] == "%mlless" and len(words) > 2 and words[1] in ("ps", "clean"):
        return [flag for flag in cleaning.FLAGS if flag == "--redis" or words[1] == "clean"]
    if words[0] == "%mlless" and len(words) > 2 and words[1] in ("runs", "spend"):
        return list(many.FLAGS) if words[1] == "runs" else ["--project"]
    if words[0] == "%mlless" and len(words) > 2:
        switches = ["on", "off"] if words[1] == "tune" and not {"on", "off"} & set(words[2:-1]) else []
        return [*switches, *_names(words[1])]
    return []


def _names(command: str) -> list[str]:
    """Names that ``command`` takes: of this process' runs, and where it takes them, of its sweeps and earlier runs."""
    found = [run.name for run in registry.handles()]
    if command in _OF_SWEEPS:
        found += [sweep.name for sweep in sweeps()]
    if command in _OF_ALL:
        with contextlib.suppress(ServiceError):
            found += RunLedger().newest_names(_MOST_EARLIER)
    return list(dict.fromkeys(found))
