"""Numbers with their nouns: ``1 worker``, ``2 workers``. Pure."""

from __future__ import annotations


def count(n: int | str, noun: str) -> str:
    """``1 worker``, ``2 workers``, ``1,200 minibatches``; ``n`` is the number, or a text of it."""
    number = n if isinstance(n, str) else f"{n:,}"
    return f"{number} {noun if number == '1' else _several(noun)}"


def all_done(n: float, noun: str) -> str:
    """``1 step is done``, ``all 1600 steps are done``."""
    return f"1 {noun} is done" if n == 1 else f"all {n:g} {_several(noun)} are done"


def _several(noun: str) -> str:
    return noun + ("es" if noun.endswith(("s", "tch")) else "s")
