"""Finds what runs that are over have left: processes, private servers, keys, queues, objects, temporary files.

A killed run's process is gone for certain, or nothing of it is touched; see `mlless_nb.money.owner`. What a watchdog
still sees to is left to it.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..bus import open_bus
from ..bus.urls import REDIS_SCHEMES, mask_url, redis_client, scheme_of
from ..exchange.protocol import key_prefix
from ..exchange.stores import FrameStore, open_store
from ..money.owner import Owner
from ..plurals import count
from ..storage.objects import LithopsObjects, MemoryObjects
from .backends.launcher import LithopsLauncher, is_local
from .backends.lithops_paths import keep_private
from .backends.processes import Process, kill
from .servers.embedded_redis import PREFIX as REDIS_PREFIX
from .servers.places import Places
from .servers.redis_cleanup import sweep
from .servers.watchdog import OWNER, PREFIX

#: Where folders of private servers may lie beside the temporary folder, whose path may be too long.
BASES = ("/tmp", "/var/tmp")
#: Lithops' name of the storage on this machine.
HERE = "localhost"
#: What keys of leases in the object storage contain; seconds by which its clock may differ from this machine's.
_LEASE, CLOCKS_S = "/frames/leases/", 5.0
#: Folders of watchdogs from versions that did not note their process count as left after so long, seconds.
OLD_S = 3600.0


@dataclass(frozen=True)
class Leftover:
    """One thing that was left.

    Parameters
    ----------
    what : str
        E.g. "2 keys".
    where : str
        A path, a process or a server, without passwords.
    run : str
        The run's id, "" if it is not known.
    n_bytes : int
    remove : callable or None
        Removes it or raises. None: it cannot be removed from here now, and ``where`` says why.
    """

    what: str
    where: str
    run: str
    n_bytes: int
    remove: Callable[[], None] | None

    def __str__(self) -> str:
        return f"{self.what} ({self.where})"


def of_functions(run: Places, processes: Collection[Process]) -> Iterator[Leftover]:
    """Functions on this machine; their command lines name Lithops' file of the run."""
    jobs = f"{run.folder}/{run.bucket}/lithops.jobs/{run.executor}-"
    found = [process for process in processes if run.executor and run.folder and jobs in process.command]
    if found:
        what = count(len(found), "process")
        yield Leftover(what, ", ".join(str(process.pid) for process in found), run.run_id, 0, partial(kill, found))


def of_files(run: Places) -> Iterator[Leftover]:
    """Objects and Lithops' temporary files on this machine."""
    if not run.folder or not run.bucket:
        return
    root = Path(run.folder)
    objects = root / run.bucket / "mlless-nb" / "runs" / run.run_id
    if run.storage == HERE and objects.exists():
        yield Leftover("objects", str(objects), run.run_id, size_of(objects), partial(remove_path, objects))
    names = (f"jobs/{run.executor}-*", f"logs/{run.executor}-*", f"modules/{run.executor}-*")
    found = [path for name in (*names, f"{run.bucket}/lithops.jobs/{run.executor}*") for path in _matching(root, name)]
    found = [path for path in found if path.name == run.executor or path.name.startswith(f"{run.executor}-")]
    if found and run.executor:

        def remove() -> None:
            for path in found:
                remove_path(path)

        what = count(len(found), "temporary file")
        yield Leftover(what, str(root), run.run_id, sum(map(size_of, found)), remove)


def of_servers(run: Places, given: Sequence[str]) -> Iterator[Leftover]:
    """Keys on Redis servers and queues; ``given`` are URLs with passwords."""
    known = {mask_url(url): url for url in given}
    buses = [run.bus] if scheme_of(run.bus) in REDIS_SCHEMES else []
    for shown in dict.fromkeys([*run.redis, *buses]):
        url = known.get(shown, shown)
        if "***" in url:
            why = f"{shown}: its password is not kept; give its URL, redis="
            yield Leftover("keys, if any", why, run.run_id, 0, None)
            continue
        yield from _keys(run, url)
    if run.bus and not buses:
        url = known.get(run.bus, run.bus)
        if "***" in url:
            why = f"{run.bus}: its password is not kept; give its URL, redis="
            yield Leftover("queues, if any", why, run.run_id, 0, None)
        else:
            yield Leftover("queues", run.bus, run.run_id, 0, partial(_remove_queues, run.run_id, url))


def of_store(run: Places, given: Sequence[str], *, is_over: bool) -> Iterator[Leftover]:
    """What is in a frame store where nothing expires; ``is_over``: no function of the run may be at work any more."""
    if not run.store:
        return
    address = {mask_url(url): url for url in given}.get(run.store, run.store)
    if "***" in address:
        why = f"{run.store}: its password is not kept; give its URL, redis="
        yield Leftover("frames, if any", why, run.run_id, 0, None)
        return
    try:
        with _opened(run, address) as store:
            is_there = store.is_there()
    except Exception as error:
        why = f"{run.store} does not answer ({type(error).__name__})"
        yield Leftover("frames, if any", why, run.run_id, 0, None)
        return
    if is_there:
        where = run.store if is_over else f"{run.store}: once the run's keys are removed"
        yield Leftover("frames", where, run.run_id, 0, partial(_remove_frames, run, address) if is_over else None)


def _opened(run: Places, address: str) -> contextlib.closing[FrameStore]:
    store = open_store(address, key_prefix(run.run_id), MemoryObjects())  # it needs no object storage
    assert store is not None
    return contextlib.closing(store)


def _remove_frames(run: Places, address: str) -> None:
    with _opened(run, address) as store:
        store.clear()


def _keys(run: Places, url: str) -> Iterator[Leftover]:
    prefix, shown = key_prefix(run.run_id), mask_url(url)
    try:
        with contextlib.closing(redis_client(url)) as client:
            found = list(client.scan_iter(match=prefix + "*", count=1000))
            at_work = [
                key for key in found if key.startswith(f"{prefix}lease:".encode()) and not key.endswith(b"driver")
            ]
    except Exception as error:
        yield Leftover("keys, if any", f"{shown} does not answer ({type(error).__name__})", run.run_id, 0, None)
        return
    if at_work and not is_local(run.backend):  # functions on this machine are removed first
        why = f"{shown}: {count(len(at_work), 'function')} still at work, for some minutes at most"
        yield Leftover(count(len(found), "key"), why, run.run_id, 0, None)
    elif found:
        yield Leftover(count(len(found), "key"), shown, run.run_id, 0, partial(_remove_keys, url, prefix))


def _remove_keys(url: str, prefix: str) -> None:
    sweep([url], prefix)
    with contextlib.closing(redis_client(url)) as client:
        if left := list(client.scan_iter(match=prefix + "*", count=1000)):
            raise OSError(f"{count(len(left), 'key')} written again")


def _remove_queues(run_id: str, url: str) -> None:
    open_bus(url, run_id, insecure=True).close(delete=True)


def of_storage(run: Places, backend: str | Mapping[str, Any] | None) -> Iterator[Leftover]:
    """The run's objects and Lithops' in a cloud's storage, which Lithops' configuration or ``backend`` describes."""
    if run.storage in (HERE, ""):  # "": they stay on purpose
        return
    try:
        launcher = LithopsLauncher(backend if backend is not None else run.backend, 1, 256)
    except Exception as error:
        why = f"bucket {run.bucket}: {type(error).__name__}; give the configuration, backend="
        yield Leftover("objects, if any", why, run.run_id, 0, None)
        return
    try:
        objects = launcher.files_of(run.bucket)
        # With the separator: the id of another one may begin with this one's.
        lithops = [f"lithops.jobs/{run.executor}{end}" for end in ("/", "-") if run.executor]
        prefixes = [f"mlless-nb/runs/{run.run_id}/", *lithops]
        sizes = {key: n_bytes for prefix in prefixes for key, n_bytes in objects.sizes(prefix).items()}
        at_work = [key for key in sizes if _LEASE in key and not key.endswith("/driver") and _holds(objects, key)]
        what, where, n_bytes = count(len(sizes), "object"), f"bucket {run.bucket}", sum(sizes.values())
        if at_work and not is_local(run.backend):  # they would write some again
            where += f": {count(len(at_work), 'function')} still at work, for some minutes at most"
            yield Leftover(what, where, run.run_id, n_bytes, None)
        elif sizes:
            yield Leftover(what, where, run.run_id, n_bytes, lambda: objects.delete(list(sizes)))
    finally:
        launcher.close()


def _holds(objects: LithopsObjects, key: str) -> bool:
    """Whether the lease under ``key`` has not run out; clocks may differ by `CLOCKS_S`."""
    try:
        return float(objects.get(key)) + CLOCKS_S > time.time()
    except (KeyError, ValueError):
        return False


def of_watchdogs(processes: Collection[Process]) -> Iterator[Leftover]:
    """Folders of watchdogs and private servers whose process is gone, with the servers and functions that still run."""
    for folder in _watchdog_folders():
        shells = [process for process in processes if f"mlless-watchdog {folder}" in process.command]
        if not _is_abandoned(folder):
            continue
        # Also in the shell's command line; a server names its socket instead of its configuration.
        servers = [each for each in processes if f"{folder}/redis." in each.command and each not in shells]
        groups = _watched(folder, "pgid ")
        servers += [each for each in processes if str(each.group) in groups and "/lithops.jobs/" in each.command]
        what = "private Redis" if folder.name.startswith(REDIS_PREFIX) else "watchdog"
        if servers or shells:
            what += f" with {count(len(servers) + len(shells), 'process')}"
        yield Leftover(what, str(folder), "", size_of(folder), partial(_end, folder, [*servers, *shells]))


def _watchdog_folders() -> list[Path]:
    bases = {tempfile.gettempdir(), os.environ.get("XDG_RUNTIME_DIR", ""), *BASES} - {""}
    found = [
        path
        for base in sorted(bases)
        for prefix in (PREFIX, REDIS_PREFIX)
        for path in _matching(Path(base), prefix + "*")
    ]
    own = []
    for path in found:
        with contextlib.suppress(OSError):
            if path.is_dir() and not path.is_symlink() and path.stat().st_uid == os.getuid():
                own.append(path)
    return own


def _is_abandoned(folder: Path) -> bool:
    """Whether the process that a watchdog's folder belongs to is gone."""
    try:
        return Owner(**json.loads((folder / OWNER).read_text("utf-8"))).is_gone
    except FileNotFoundError:
        with contextlib.suppress(OSError):
            return not (folder / "redis.sock").exists() and time.time() - folder.stat().st_mtime > OLD_S
        return False
    except (OSError, ValueError, TypeError):
        return False


def _end(folder: Path, processes: list[Process]) -> None:
    """Let the watchdog finish, if there is one; then end its server and remove its folder."""
    give_up_at = time.monotonic() + 5.0
    while processes and folder.exists() and time.monotonic() < give_up_at:
        time.sleep(0.05)
    kill(processes)
    remove_path(folder)


def remove_path(path: Path) -> None:
    """Remove a file or a whole folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
    if path.exists():
        raise OSError(f"{path} cannot be removed")


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    total = 0
    for each in _with_content(path):
        with contextlib.suppress(OSError):
            total += each.lstat().st_size if not each.is_dir() else 0
    return total


# Runs that end and watchdogs remove folders at any time: then `Path.glob` and `Path.rglob` raise.


def _matching(root: Path, pattern: str) -> list[Path]:
    """The paths below ``root`` that match ``pattern``, sorted."""
    return [Path(found) for found in sorted(glob.glob(f"{glob.escape(str(root))}/{pattern}"))]


def _with_content(path: Path) -> Iterator[Path]:
    """A file, or a folder and all that is in it."""
    yield path
    for folder, folders, files in os.walk(path):
        yield from (Path(folder, name) for name in (*folders, *files))


def of_unknown(known: Collection[str]) -> Iterator[Leftover]:
    """Objects on this machine of runs that are not ``known``, not watched, and not written to for an hour."""
    watched = _watched_paths()
    for path in _matching(_storage_root(), "*/mlless-nb/runs/*"):
        if path.name in known or str(path) in watched or not path.is_dir():
            continue
        written_s = []
        for each in _with_content(path):
            with contextlib.suppress(OSError):
                written_s.append(each.stat().st_mtime)
        if written_s and time.time() - max(written_s) > OLD_S:
            yield Leftover("objects", str(path), path.name, size_of(path), partial(remove_path, path))


def packed_data() -> dict[Path, int]:
    """Folders of packed minibatches on this machine, with their bytes."""
    return {path: size_of(path) for path in _matching(_storage_root(), "*/mlless-nb/datasets")}


def is_anything_watched() -> bool:
    """Whether a process with a watchdog lives: it has a run."""
    return any(not _is_abandoned(folder) and (folder / OWNER).exists() for folder in _watchdog_folders())


def _watched_paths() -> set[str]:
    """The paths that watchdogs of processes that live are to remove."""
    found: set[str] = set()
    for folder in _watchdog_folders():
        if not _is_abandoned(folder):
            found |= _watched(folder, "path ")
    return found


def _watched(folder: Path, kind: str) -> set[str]:
    """What the watchdog of ``folder`` is to see to: lines of its list that begin with ``kind``, without it."""
    try:
        lines = (folder / "cleanup").read_text("utf-8").splitlines()
    except (OSError, ValueError):
        return set()
    return {line.removeprefix(kind) for line in lines if line.startswith(kind)}


def _storage_root() -> Path:
    return Path(keep_private())
