"""``%mlless session``, ``%mlless project``, ``%mlless budget --session``: the budgets above a run's own."""

from __future__ import annotations

import contextlib

from IPython.core.error import UsageError

import mlless_nb

from ..driver.spending import Spending
from ..money.book import Kind

FLAGS = ("--budget", "--new", "--leave")
#: How ``%mlless budget`` names the budget that it is about, in place of a run's.
SCOPES = ("--session", "--project")


def session(words: list[str]) -> None:
    """``session [NAME] [--budget USD] [--new] [--leave]``: this notebook's budget, or one that notebooks share."""
    _show("session", words)


def project(words: list[str]) -> None:
    """``project [NAME] [--budget USD] [--new] [--leave]``: a budget that lasts over notebooks and days."""
    _show("project", words)


def scoped(words: list[str]) -> None:
    """``budget --session [NAME] [USD]``, ``budget --project [NAME] [USD]``: set the cap of either, or show it."""
    scopes = [word for word in words if word.split("=", 1)[0] in SCOPES]
    kind, _, value = scopes[0].removeprefix("--").partition("=")
    given = [*([value] if value else []), *(word for word in words if word not in scopes)]
    caps, names = [word for word in given if _is_amount(word)], [word for word in given if not _is_amount(word)]
    if len(scopes) > 1 or len(caps) > 1 or len(names) > 1 or any(name.startswith("-") for name in names):
        valid = f"must be one amount in US dollars and at most one name, e.g. %mlless budget --{kind} 2.00"
        raise UsageError(f"%mlless budget {' '.join(words)}: {valid}")
    _show("session" if kind == "session" else "project", [*names, *(f"--budget={cap}" for cap in caps)])


def _is_amount(word: str) -> bool:
    with contextlib.suppress(ValueError):
        float(word.removeprefix("$"))
        return True
    return False


def _show(kind: Kind, words: list[str]) -> None:
    name, budget, flags = _parsed(kind, words)
    enter = mlless_nb.session if kind == "session" else mlless_nb.project
    spending = enter(name, budget, new="--new" in flags) if "--leave" not in flags else _left(kind, name)
    print(spending.report() if spending is not None else f"new runs belong to no {kind}")


def _left(kind: Kind, name: str | None) -> Spending | None:
    """Leave the budget in force."""
    if name is not None:
        raise UsageError(f"%mlless {kind} {name} --leave: must be without a name, or --new")
    (mlless_nb.session() if kind == "session" else mlless_nb.project()).leave()
    return None


def _parsed(kind: Kind, words: list[str]) -> tuple[str | None, float | None, set[str]]:
    """The name, the cap in US dollars and the other flags among ``words``."""
    names, flags = [], set()
    budget: float | None = None
    left = [part for word in words for part in ([*word.split("=", 1)] if word.startswith("--budget=") else [word])]
    while left:
        word = left.pop(0)
        if word == "--budget":
            amount = left.pop(0) if left else ""
            try:
                budget = float(amount.removeprefix("$"))
            except ValueError:
                raise UsageError(
                    f"%mlless {kind} --budget {amount}: must be one amount in US dollars, e.g. --budget 0.05"
                ) from None
        elif word.startswith("-"):
            if word not in FLAGS:
                raise UsageError(f"%mlless {kind} {word}: must be one of {', '.join(FLAGS)}")
            flags.add(word)
        else:
            names.append(word)
    if len(names) > 1:
        raise UsageError(f"%mlless {kind} {' '.join(names)}: must be one name, e.g. %mlless {kind} mine --budget 0.05")
    if flags >= {"--new", "--leave"} or ("--leave" in flags and budget is not None):
        raise UsageError(f"%mlless {kind} --leave: must be without other options")
    return (names[0] if names else None), budget, flags
