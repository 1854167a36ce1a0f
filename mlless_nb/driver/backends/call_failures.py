"""Why functions failed on a cloud, as Lithops notes it in the object storage; nothing of it is unpickled."""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from ...redaction import scrubbed

#: Most bytes that are read of a note, and of a function's log in it.
MOST_BYTES, MOST_LOG_BYTES = 1 << 20, 1 << 20
#: Longest cause, characters.
MOST_TEXT = 300
#: The name of a call's note ends so.
STATUS = "/status.json"
_LAST_LINE = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning|Refused|Lost\w*))\b(?:: ?(.*))?$")


class Failure(NamedTuple):
    """A function that raised an exception: Lithops' job and call (None: unknown), the exception's name and its text."""

    job: str
    call: int | None
    kind: str
    text: str

    @property
    def is_out_of_memory(self) -> bool:
        """Whether the cloud killed it, or an allocation failed."""
        return self.kind.endswith("MemoryError")

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" if self.text else self.kind


def failures_in(storage: Any, bucket: str, executor: str) -> list[Failure]:
    """The failures of the functions of Lithops' ``executor``: a listing, and a read for each that has ended."""
    found = []
    for key in storage.list_keys(bucket, f"lithops.jobs/{executor}-"):
        if key.endswith(STATUS):
            job, call = key.split("/")[-3:-1]
            failure = failure_of(bytes(storage.get_object(bucket, key))[: MOST_BYTES + 1], job, call)
            found += [failure] if failure is not None else []
    return found


def n_notes(storage: Any, bucket: str, executor: str) -> int:
    """How many functions of Lithops' ``executor`` have ended: a listing."""
    return sum(key.endswith(STATUS) for key in storage.list_keys(bucket, f"lithops.jobs/{executor}-"))


def failure_of(blob: bytes, job: str, call: str) -> Failure | None:
    """The failure that a note tells of; None if the function has not failed, or the note cannot be read."""
    try:
        note = json.loads(blob) if len(blob) <= MOST_BYTES else None
        number = int(call)
    except (ValueError, RecursionError):
        return None
    if not isinstance(note, dict) or note.get("exception") is not True:
        return None
    return Failure(job, number, *(last_error(_log(note.get("logs"))) or ("an exception", "")))


def last_error(log: Sequence[str]) -> tuple[str, str] | None:
    """The name and the text of the last exception that a function's log tells of; None if it tells of none."""
    for line in reversed(log):
        if said := _LAST_LINE.match(line):
            return said[1].rpartition(".")[2], scrubbed(said[2] or "")[:MOST_TEXT]
    return None


def _log(packed: Any) -> list[str]:
    """The lines of a function's log, which Lithops stores compressed."""
    if not isinstance(packed, str):
        return []
    try:
        unpacking = zlib.decompressobj()
        return unpacking.decompress(base64.b64decode(packed), MOST_LOG_BYTES).decode("utf-8", "replace").splitlines()
    except (binascii.Error, ValueError, zlib.error):
        return []
