"""Where a live run keeps things outside its process, written down so that they can be found if it is killed.

The file lies in the folder of the run's record from the moment the services are open until they are closed, or what was
left is removed. It holds no password: where a server needs one, who cleans up gives the URL.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...errors import DecodeError
from ...money.owner import Owner
from ...telemetry.record import END, runs_folder

PLACES = "places.json"
#: The socket of a run that other processes can attach to, in the same folder.
CONTROL = "control"
#: Longest file that is read, bytes.
MOST_BYTES = 1 << 16
_TEXTS = ("run_id", "name", "backend", "executor", "folder", "storage", "bucket", "bus", "store")


@dataclass(frozen=True)
class Places:
    """The places of one run.

    Parameters
    ----------
    run_id, name : str
    owner : Owner
        The process that drives the run.
    backend : str
        The backend's name.
    executor : str
        Lithops' id of the run's functions.
    folder : str
        Lithops' folder on this machine; "" if the functions are elsewhere.
    storage : str
        The name of the storage's backend, "localhost" for one in that folder.
    bucket : str
        The bucket of the run's objects.
    redis : list of str
        URLs of the Redis servers that are not this run's own, without passwords.
    bus : str
        URL of the control bus if it is another server, without a password.
    has_ended : bool
        Whether the run was ended by its process, and something is left.
    store : str
        The frame store if what is in it does not expire, without a password.
    """

    run_id: str
    name: str
    owner: Owner
    backend: str
    executor: str
    folder: str
    storage: str
    bucket: str
    redis: list[str]
    bus: str
    has_ended: bool = False
    store: str = ""

    def write(self) -> None:
        """Write the file; the run goes on if the disk does not take it."""
        folder = runs_folder() / self.run_id
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            draft = folder / f"{PLACES}.tmp"
            draft.touch(mode=0o600)
            draft.write_text(json.dumps(dataclasses.asdict(self)), "utf-8")
            os.replace(draft, folder / PLACES)

    @classmethod
    def decode(cls, blob: bytes) -> Places:
        """What `write` wrote.

        Raises
        ------
        DecodeError
            If it is not that.
        """
        try:
            fields: dict[str, Any] = json.loads(blob)
            owner = fields.pop("owner")
            found = cls(**fields, owner=Owner(**owner))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise DecodeError(f"{PLACES}: must name the places of a run") from None
        texts = [getattr(found, name) for name in _TEXTS]
        texts += [found.owner.host, found.owner.boot, found.owner.started]
        if not isinstance(found.redis, list) or not all(isinstance(text, str) for text in [*texts, *found.redis]):
            raise DecodeError(f"{PLACES}: must hold texts")
        if not isinstance(found.has_ended, bool):
            raise DecodeError(f"{PLACES}: must say whether the run has ended")
        for name in (found.run_id, found.executor, found.bucket):
            if "/" in name or name in (".", "..") or "*" in name:
                raise DecodeError(f"{PLACES}: {name!r} must be a name, not a path")
        if not found.run_id or isinstance(found.owner.pid, bool) or not isinstance(found.owner.pid, int):
            raise DecodeError(f"{PLACES}: must name a run and a process")
        return found


def end(run_id: str, *, keeps_objects: bool = False) -> None:
    """Note that the run has ended, and that something is left in its places.

    ``keeps_objects``: its objects stay on purpose, so that a model that could not be read is not lost. Their storage is
    not noted then.
    """
    with contextlib.suppress(OSError, DecodeError), (runs_folder() / run_id / PLACES).open("rb") as file:
        found = Places.decode(file.read(MOST_BYTES))
        storage = "" if keeps_objects else found.storage
        dataclasses.replace(found, has_ended=True, storage=storage).write()


def forget(run_id: str) -> None:
    """Remove the file: nothing is left in the run's places. A folder without a record goes, too."""
    folder = runs_folder() / run_id
    with contextlib.suppress(OSError):
        (folder / PLACES).unlink(missing_ok=True)
        if not (folder / END).exists():
            folder.rmdir()  # fails if something is in it


def all_places() -> Iterator[Places]:
    """The places of runs that are live, were killed, or left something, oldest first; damaged files are skipped."""
    for path in sorted(runs_folder().glob(f"*/{PLACES}")):
        with contextlib.suppress(OSError, DecodeError), path.open("rb") as file:
            found = Places.decode(file.read(MOST_BYTES))
            if found.run_id == path.parent.name:
                yield found
