"""What is left of a run after its end, in words. It is counted by `mlless_nb.driver.ending.remains`."""

from __future__ import annotations

from collections.abc import Mapping

from ..plurals import count

#: The kinds of things that are counted, and what one of each is called.
KINDS = {"processes": "process", "keys": "key", "queues": "queue", "objects": "object", "files": "temporary file"}


def words(left: Mapping[str, int], *, zeros: bool = False) -> str:
    """``2 keys and 1 temporary file``; "" for nothing. ``zeros``: also what was looked for and is not there."""
    parts = [count(left[kind], noun) for kind, noun in KINDS.items() if kind in left]
    parts = [part for part in parts if zeros or not part.startswith("0 ")]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
