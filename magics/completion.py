"""Tab completion after ``%%mlless`` and ``%mlless``: options, commands and names of runs."""

from __future__ import annotations

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from ..driver import runs as registry
from . import budgets, cleaning, many, sweeping
from .commands import COMMANDS
from .options import OPTIONS


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
        return _names()
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
        return [*_names(), *(() if set(words) & set(budgets.SCOPES) else budgets.SCOPES)]
    if words[0] == "%mlless" and len(words) > 2 and words[1] in ("ps", "clean"):
        return [flag for flag in cleaning.FLAGS if flag == "--redis" or words[1] == "clean"]
    if words[0] == "%mlless" and len(words) > 2 and words[1] in ("runs", "spend"):
        return list(many.FLAGS) if words[1] == "runs" else ["--project"]
    if words[0] == "%mlless" and len(words) > 2:
        return _names()
    return []


def _names() -> list[str]:
    return list(dict.fromkeys(run.name for run in registry.handles()))
