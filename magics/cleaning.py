"""``%mlless ps`` and ``%mlless clean``: live runs of all processes, and what others have left."""

from __future__ import annotations

from IPython.core.error import UsageError

import mlless_nb

from ..driver.cleaning import KnownRun, survey
from ..widgets.format import duration, size, usd

FLAGS = ("--redis", "--data")


def ps(words: list[str]) -> None:
    """``ps [--redis URL]``: live runs of all processes of this user, and what others have left."""
    urls, flags = _parsed("ps", words)
    if flags:
        raise UsageError("%mlless ps --data: must be %mlless clean --data, which removes it")
    found = survey(urls)
    rows = [("run", "process", "state", "age", "cost"), *map(_row, found.runs)]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows] if found.runs else ["no run is live"]
    for run, at in zip(reversed(found.runs), range(len(lines) - 1, 0, -1), strict=False):
        lines[at + 1 : at + 1] = [f"    left: {each}{_bytes(each.n_bytes)}" for each in run.left]
    lines += [f"left: {each}{_bytes(each.n_bytes)}" for each in found.others]
    if found.left:
        lines.append("%mlless clean removes what was left")
    lines += [f"packed data: {path}{_bytes(n)}, %mlless clean --data removes it" for path, n in found.packed.items()]
    print("\n".join(lines))


def clean(words: list[str]) -> None:
    """``clean [--redis URL] [--data]``: remove what runs that are over have left, with --data all packed data."""
    urls, flags = _parsed("clean", words)
    print(mlless_nb.clean(urls, data="--data" in flags))


def _row(run: KnownRun) -> tuple[str, str, str, str, str]:
    return run.name, str(run.pid), run.state, duration(run.age_s), usd(run.usd)


def _bytes(n_bytes: int) -> str:
    return f", {size(n_bytes)}" if n_bytes else ""


def _parsed(command: str, words: list[str]) -> tuple[list[str], set[str]]:
    """The URLs and the other flags among ``words``."""
    urls, flags, left = [], set(), list(words)
    while left:
        word = left.pop(0)
        if word == "--redis" and left:
            urls.append(left.pop(0))
        elif word == "--data":
            flags.add(word)
        else:
            shown = word if word in FLAGS else word.split("=")[0] if word.startswith("--") else "..."  # maybe a URL
            raise UsageError(
                f"%mlless {command} {shown}: must be --redis URL" + (" or --data" if command == "clean" else "")
            )
    return urls, flags
