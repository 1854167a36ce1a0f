"""What is left of a run after its end, in words. It is counted by `mlless_nb.driver.remains`."""

from __future__ import annotations

from collections.abc import Mapping

#: The kinds of things that are counted, each as one and as several.
KINDS = {
    "processes": ("process", "processes"),
    "keys": ("key", "keys"),
    "queues": ("queue", "queues"),
    "objects": ("object", "objects"),
    "files": ("temporary file", "temporary files"),
}


def words(left: Mapping[str, int], *, zeros: bool = False) -> str:
    """``2 keys and 1 temporary file``; "" for nothing. ``zeros``: also what was looked for and is not there."""
    parts = [f"{left[kind]} {names[left[kind] != 1]}" for kind, names in KINDS.items() if kind in left]
    parts = [part for part in parts if zeros or not part.startswith("0 ")]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
