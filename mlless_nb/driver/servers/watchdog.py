"""A process that cleans up when this one ends, however it ends: it kills processes, and removes files and Redis keys.

A small shell waits on a pipe that this process holds. However this process ends, kill -9 included, the pipe closes. The
shell then kills its own server and the registered process groups, removes registered paths and keys, and exits.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import weakref
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ...errors import ServiceError
from ...money.owner import Owner

PREFIX = "mlless-watch-"
#: File in a watchdog's folder that names the process it works for.
OWNER = "owner.json"
#: Longest wait for the shell when the watchdog is closed, seconds.
CLOSE_S = 5.0

# The parent-death signal covers the case that the pipe does not: the watchdog itself is killed.
_WATCHDOG = """
folder=$1; shift
server=
serve() {
    "$@" </dev/null >"$folder/log" 2>&1 &
    server=$!
}
if [ $# -gt 0 ]; then
    if setpriv --pdeathsig KILL true; then set -- setpriv --pdeathsig KILL "$@"; fi
    serve "$@"
fi
trap 'ended=1' HUP INT TERM
keys= objects=
while IFS= read -r line; do
    case $line in
        "keys "*) keys=${line#keys } ;;
        "objects "*) objects=${line#objects } ;;
        "serve") kill -s KILL "$server"; wait "$server"; serve "$@" ;;
    esac
done
trap '' HUP INT TERM
if [ -f "$folder/cleanup" ]; then
    while IFS= read -r line; do
        case $line in "pgid "*) kill -s KILL -- "-${line#pgid }" ;; esac
    done <"$folder/cleanup"
fi
if [ -n "$server" ]; then kill -s KILL "$server"; wait "$server"; fi
if [ -f "$folder/last-keys" ]; then printf '%s\n' "$keys" | /bin/sh "$folder/last-keys"; fi
if [ -f "$folder/last-objects" ]; then printf '%s\n' "$objects" | /bin/sh "$folder/last-objects"; fi
tries=0
while [ -d "$folder" ] && [ $tries -lt 20 ]; do
    while IFS= read -r line; do
        case $line in "path "*) rm -rf -- "${line#path }" && [ ! -e "${line#path }" ] || left=1 ;; esac
    done <"$folder/cleanup"
    if [ -z "$left" ]; then rm -rf -- "$folder"; else left=; sleep 0.1; fi
    tries=$((tries + 1))
done
rm -rf -- "$folder"
"""


class Watchdog:
    """One such shell. Its folder, mode 0700, holds the lists of what it has to clean up.

    Attributes
    ----------
    folder : Path
    """

    def __init__(self) -> None:
        self.folder = Path()
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._finalizer: weakref.finalize[..., Any] | None = None
        self._write_end = -1
        self._server: tuple[str, ...] = ()
        self._last: dict[str, dict[str, Any]] = {}

    def start(self) -> Self:
        """Start the shell; returns itself."""
        self._guard(Path(tempfile.mkdtemp(prefix=PREFIX)))
        return self

    def _guard(self, folder: Path, *server: str) -> None:
        """Start the shell with its lists in ``folder``, and the command ``server`` as its child."""
        (folder / "cleanup").touch(mode=0o600)
        (folder / OWNER).write_text(json.dumps(dataclasses.asdict(Owner.this())), "utf-8")
        read_end, write_end = os.pipe()
        try:
            shell = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHDOG, "mlless-watchdog", str(folder), *server],
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
            )
        except OSError as error:
            os.close(write_end)
            shutil.rmtree(folder, ignore_errors=True)
            raise ServiceError(f"/bin/sh does not start: {error}") from error
        finally:
            os.close(read_end)
        self._finalizer = weakref.finalize(self, _close, shell, write_end, folder, self._owner)
        self.folder, self._write_end, self._server = folder, write_end, server
        _write_ends.add((self._owner, write_end))

    def _serve_again(self) -> None:
        """Start the server again, and the shell if that has died, too."""
        with self._lock:
            if self._finalizer is None or not self._finalizer.alive:
                return
            try:
                os.write(self._write_end, b"serve\n")
                return
            except BrokenPipeError:
                detached = self._finalizer.detach()
            if detached is not None:
                shell, write_end, *_ = detached[2]
                shell.wait()
                _write_ends.discard((self._owner, write_end))
                os.close(write_end)
            self._guard(self.folder, *self._server)
            for what, spec in self._last.items():
                self._pass_on(what, spec)

    def add_keys(self, urls: list[str], prefix: str) -> None:
        """Remove the keys that begin with ``prefix`` from the Redis servers at ``urls`` when this process ends.

        This is done last, when no process that could create new keys is left. It is not done when the watchdog is
        closed, since the caller of `close` has removed them.
        """
        self._do_last("keys", "redis_cleanup.py", {"urls": urls, "prefix": prefix})

    def add_objects(self, storage: dict[str, Any], prefixes: list[str]) -> None:
        """Remove the objects whose names begin with one of ``prefixes``, as `add_keys` removes keys.

        ``storage`` is Lithops' configuration of the storage.
        """
        self._do_last("objects", "storage_cleanup.py", {"storage": storage, "prefixes": prefixes})

    def _do_last(self, what: str, program: str, spec: dict[str, Any]) -> None:
        """Run a program of this folder when all processes are gone, and pass it ``spec``."""
        self._last[what] = spec
        self._pass_on(what, spec)
        cleanup = [sys.executable, "-P", str(Path(__file__).with_name(program))]
        (self.folder / f"last-{what}").write_text(shlex.join(cleanup) + "\n")

    def _pass_on(self, what: str, spec: dict[str, Any]) -> None:
        """Tell the shell what a last program needs."""
        # The passwords go through the pipe into the shell's memory: they are in no file and in no command line.
        os.write(self._write_end, f"{what} {json.dumps(spec)}\n".encode())

    def add_process_group(self, pgid: int) -> None:
        """Kill process group ``pgid`` when this process ends or the watchdog is closed."""
        if pgid <= 1 or pgid == os.getpgrp():
            raise ValueError(f"pgid={pgid}: must be a process group of its own")
        self._note(f"pgid {pgid}")

    def remove_process_group(self, pgid: int) -> None:
        """Unregister ``pgid``: it has ended, and its id may be reused."""
        self._strike(f"pgid {pgid}")

    def remove_path(self, path: str | os.PathLike[str]) -> None:
        """Unregister ``path``: it was removed, or must stay."""
        self._strike(f"path {os.fspath(path)}")

    def _strike(self, line: str) -> None:
        with self._lock:
            if self._finalizer is None or not self._finalizer.alive:
                return
            cleanup = self.folder / "cleanup"
            kept = [other for other in cleanup.read_text().splitlines(keepends=True) if other != line + "\n"]
            fresh = self.folder / "cleanup.new"
            fresh.write_text("".join(kept))
            fresh.replace(cleanup)

    def add_path(self, path: str | os.PathLike[str]) -> None:
        """Remove ``path``, a file or a whole folder, when this process ends or the watchdog is closed."""
        text, home = os.fspath(path), os.path.realpath(os.path.expanduser("~"))
        real = os.path.realpath(text)
        if not os.path.isabs(text) or "\n" in text or os.path.commonpath([real, home]) == real:
            raise ValueError(f"path={text!r}: must be absolute, and nothing that holds the home folder")
        self._note(f"path {text}")

    def _note(self, line: str) -> None:
        with self._lock:
            if self._finalizer is None or not self._finalizer.alive:
                raise ServiceError(f"the {type(self).__name__} is not running")
            with open(self.folder / "cleanup", "a") as cleanup:
                cleanup.write(line + "\n")

    def close(self) -> None:
        """Kill and remove everything registered, and the watchdog's own server and folder. Idempotent."""
        with self._lock:
            if self._finalizer is not None:
                if os.getpid() == self._owner:  # in a forked child the watchdog belongs to the parent
                    for what in ("keys", "objects"):
                        (self.folder / f"last-{what}").unlink(missing_ok=True)
                self._finalizer()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# The write ends of all watchdogs' pipes: a forked child must close them, or they stay open after its parent's end.
_write_ends: set[tuple[int, int]] = set()


def _after_fork() -> None:
    for _, write_end in _write_ends:
        with contextlib.suppress(OSError):
            os.close(write_end)
    _write_ends.clear()


os.register_at_fork(after_in_child=_after_fork)


def _close(watchdog: subprocess.Popen[bytes], write_end: int, folder: Path, owner: int) -> None:
    """Let the watchdog clean up; if it has died, clean up here."""
    if os.getpid() != owner:  # a forked child: the watchdog belongs to the parent
        return
    _write_ends.discard((owner, write_end))
    os.close(write_end)
    try:
        watchdog.wait(CLOSE_S)
    except subprocess.TimeoutExpired:
        watchdog.kill()
        watchdog.wait()
    if watchdog.returncode != 0:
        _clean_up(watchdog.pid, folder)
    shutil.rmtree(folder, ignore_errors=True)


def _clean_up(watchdog_pgid: int, folder: Path) -> None:
    """Do the watchdog's work: kill all registered process groups, remove all paths."""
    try:
        lines = (folder / "cleanup").read_text().splitlines()
    except OSError:
        lines = []
    pgids = [int(line[5:]) for line in lines if line.startswith("pgid ")]
    for pgid in [*pgids, watchdog_pgid]:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pgid, signal.SIGKILL)
    for line in lines:
        if line.startswith("path "):
            path = Path(line[5:])
            shutil.rmtree(path, ignore_errors=True)
            with contextlib.suppress(OSError):
                path.unlink()
