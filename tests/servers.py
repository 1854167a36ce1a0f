"""Servers that tests start for themselves on free loopback ports, kill and start again; and a network to break."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pytest

#: Seconds that a server may take to start on a machine that is busy with other things.
START_S = 60.0
#: Where packages put the broker's own script; the one on PATH may be a wrapper that switches users.
RABBITMQ_PROGRAMS = (
    "/usr/lib/rabbitmq/bin/rabbitmq-server",
    "/opt/homebrew/opt/rabbitmq/sbin/rabbitmq-server",
    "/usr/local/opt/rabbitmq/sbin/rabbitmq-server",
    "rabbitmq-server",
)
#: Where the ports of tests begin, and how many the tests of one process choose from.
FIRST_PORT, PORTS = 16_000, 2_000
#: The ports that this process was given: a server may be told of its port long before it starts.
given_ports: set[int] = set()
#: The bucket of the S3 server, and a Lithops configuration with functions here and objects there.
S3_BUCKET = "notebooks"
S3_BACKEND = {
    "lithops": {"backend": "localhost", "storage": "aws_s3"},
    "aws": {"access_key_id": "user", "secret_access_key": "planted-secret", "region": "us-east-1"},
    "aws_s3": {"storage_bucket": S3_BUCKET, "region": "us-east-1"},
}


class Certificate(NamedTuple):
    """The files of a server's certificate, of its key, and of the authority that signed it."""

    certificate: Path
    key: Path
    authority: Path


def certificate_of(folder: Path, address: str = "127.0.0.1") -> Certificate:
    """A certificate of a server at ``address``, by an authority of its own, made by the ``openssl`` program.

    Python 3.13 and later insist on what RFC 5280 asks for: what the authority's key may be used for, and its id.
    """
    made = Certificate(folder / "server.pem", folder / "server.key", folder / "authority.pem")
    kind = "IP" if address[0].isdigit() else "DNS"
    (folder / "names").write_text(f"subjectAltName={kind}:{address}\nauthorityKeyIdentifier=keyid\n")
    signs = ["-addext", "keyUsage=critical,keyCertSign"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    signed_by = ["-CA", str(made.authority), "-CAkey", str(folder / "authority.key"), "-CAcreateserial"]
    request = str(folder / "request.pem")
    for command in (
        ["req", "-x509", *key, *signs, "-subj", "/CN=authority", "-keyout", signed_by[3], "-out", str(made.authority)],
        ["req", *key, "-subj", f"/CN={address}", "-keyout", str(made.key), "-out", request],
        ["x509", "-req", "-in", request, *signed_by, "-extfile", str(folder / "names"), "-out", str(made.certificate)],
    ):
        days = [] if "request.pem" in command[-1] else ["-days", "2"]
        subprocess.run(["openssl", *command, *days], check=True, capture_output=True)
    return made


class ServerProcess:
    """A server that a test may kill and start again, with its data kept in between."""

    command: list[str]
    env: dict[str, str]
    port: int

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        with open(self.folder / "output", "ab") as output:
            self.process = subprocess.Popen(
                [*dies_with_parent(), *self.command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self.env,
                cwd=self.folder,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                said = (self.folder / "output").read_text(errors="replace")[-3000:]
                self.kill()
                pytest.fail(f"{self.command[0]} does not start:\n{said}")
            time.sleep(0.02)

    def end(self) -> None:
        """Ask it to end and wait until it has, with all that it had confirmed on disk."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(START_S)
        self.kill()

    def kill(self) -> None:
        """Kill -9 it, with all of its children."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def answers(self) -> bool:
        """Whether it serves clients."""
        raise NotImplementedError

    def said(self, request: bytes) -> bytes:
        """The first bytes that it answers to ``request``; empty when there is no answer."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as client:
                client.sendall(request)
                return client.recv(64)
        except OSError:
            return b""


class RedisProcess(ServerProcess):
    """redis-server or valkey-server, without persistence."""

    def __init__(self, program: str, folder: Path, *options: str) -> None:
        super().__init__(folder)
        self.port = free_port()
        self.env = dict(os.environ)
        self.command = [program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder)]
        self.command += ["--save", "", "--appendonly", "no", "--loglevel", "warning", *options]
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def answers(self) -> bool:
        """See `ServerProcess`."""
        return self.said(b"PING\r\n") == b"+PONG\r\n"


class PrivateRedisProcess(RedisProcess):
    """A Redis that asks for a password; with a certificate also for TLS."""

    def __init__(self, program: str, folder: Path, password: str, certificate: Certificate | None = None) -> None:
        super().__init__(program, folder, "--requirepass", password)
        self.certificate, scheme = certificate, "redis"
        if certificate is not None:
            scheme = "rediss"
            self.command[1:3] = ["--port", "0", "--tls-port", str(self.port), "--tls-auth-clients", "no"]
            files = ("--tls-cert-file", "--tls-key-file", "--tls-ca-cert-file")
            for option, path in zip(files, certificate, strict=True):
                self.command += [option, str(path)]
        self.url = f"{scheme}://:{quote(password)}@127.0.0.1:{self.port}/0"

    def answers(self) -> bool:
        """See `ServerProcess`."""
        if self.certificate is None:
            return self.said(b"PING\r\n").startswith(b"-NOAUTH")
        context = ssl.create_default_context(cafile=str(self.certificate.authority))
        context.check_hostname = False  # a test may give it a certificate of another host
        try:
            with (
                socket.create_connection(("127.0.0.1", self.port), timeout=5) as plain,
                context.wrap_socket(plain) as line,
            ):
                line.sendall(b"PING\r\n")
                return line.recv(64).startswith(b"-NOAUTH")
        except OSError:
            return False


class MemcachedProcess(ServerProcess):
    """memcached."""

    def __init__(self, program: str, folder: Path, *options: str) -> None:
        super().__init__(folder)
        self.port, self.env = free_port(), dict(os.environ)
        self.command = [program, "-p", str(self.port), "-l", "127.0.0.1", "-U", "0", *options]
        if os.geteuid() == 0:
            self.command += ["-u", "root"]
        self.url = f"memcached://127.0.0.1:{self.port}"

    def answers(self) -> bool:
        """See `ServerProcess`."""
        return self.said(b"version\r\n").startswith(b"VERSION")


class FrameServerProcess(ServerProcess):
    """``python -m mlless_nb.server``, with a certificate of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        super().__init__(folder)
        self.port, self.env = free_port(), dict(os.environ)
        self.command = [sys.executable, "-m", "mlless_nb.server", "--listen", "127.0.0.1", "--port", str(self.port)]
        self.command += ["--memory-mb", "100", *options]

    def answers(self) -> bool:
        """See `ServerProcess`."""
        return "serving" in (self.folder / "output").read_text()

    @property
    def url(self) -> str:
        """The ``store`` of a job, as the server says it."""
        said = (self.folder / "output").read_text()
        return next(line for line in reversed(said.splitlines()) if line.startswith("store=")).removeprefix("store=")


class RabbitProcess(ServerProcess):
    """rabbitmq-server with a node, a cookie, a port mapper and folders of its own."""

    def __init__(
        self, program: str, folder: Path, password: str = "guest", certificate: Certificate | None = None
    ) -> None:
        super().__init__(folder)
        self.port, self._epmd_port, dist_port = free_port(), free_port(), free_port()
        tls_port = free_port()
        self._epmd: subprocess.Popen[bytes] | None = None
        cookie = folder / ".erlang.cookie"
        cookie.touch(mode=0o600)
        cookie.write_text(secrets.token_hex(10))
        cookie.chmod(0o400)
        files = certificate._asdict() if certificate is not None else {}
        names = {"certificate": "certfile", "key": "keyfile", "authority": "cacertfile"}
        tls = "".join(f"ssl_options.{names[name]} = {path}\n" for name, path in files.items())
        (folder / "rabbitmq.conf").write_text(
            f"listeners.tcp.local = 127.0.0.1:{self.port}\n"
            + (f"listeners.ssl.local = 127.0.0.1:{tls_port}\n{tls}" if files else "")
            + f"default_user = guest\ndefault_pass = {password}\n"
            "disk_free_limit.absolute = 10MB\nvm_memory_high_watermark.relative = 0.9\nlog.console = false\n"
        )
        for name in ("enabled_plugins", "environment"):
            (folder / name).write_text("[].\n" if name == "enabled_plugins" else "")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))}
        self.env |= {
            "HOME": str(folder),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"mlless{self.port}@localhost",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(dist_port),
            "RABBITMQ_BASE": str(folder),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "environment"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "config"),
            "RABBITMQ_SCHEMA_DIR": str(folder / "schema"),
            # Small schedulers and no busy waiting: the tests need the processors themselves.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none "
            "-kernel inet_dist_use_interface {127,0,0,1}",
            # The script then becomes the broker instead of staying as its parent.
            "RUNNING_UNDER_SYSTEMD": "true",
        }
        self.command = [program]
        self.url = f"amqp://guest:{password}@127.0.0.1:{self.port}/%2F"
        self.tls_url = f"amqps://guest:{password}@127.0.0.1:{tls_port}/%2F"

    def start(self) -> None:
        """See `ServerProcess`."""
        if self._epmd is None:
            epmd = shutil.which("epmd") or "epmd"
            address = ["-address", "127.0.0.1", "-port", str(self._epmd_port)]
            self._epmd = subprocess.Popen(
                [*dies_with_parent(), epmd, *address], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        super().start()

    def answers(self) -> bool:
        """See `ServerProcess`."""
        return self.said(b"AMQP\x00\x00\x09\x01")[:1] == b"\x01"

    def stop(self) -> None:
        """Kill the broker and its port mapper."""
        self.kill()
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
            self._epmd = None


class Relay:
    """A TCP relay in front of a server's port: a network that a test can break."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._pairs: list[tuple[socket.socket, socket.socket, threading.Event]] = []
        self._is_silent = False
        threading.Thread(target=self._accept, daemon=True).start()

    def go_silent(self) -> None:
        """Pass on nothing any more, and close nothing: what a pulled cable looks like."""
        self._is_silent = True
        for _, _, passes in self._pairs:
            passes.clear()

    def come_back(self) -> None:
        """Serve new connections; those of before stay silent for ever."""
        self._is_silent = False

    def turn_to(self, port: int) -> None:
        """Pass new connections on to another port, and close those of before."""
        self._target = port
        for pair in self._pairs:
            self._close(*pair[:2])

    def close(self) -> None:
        """Close the port and all connections."""
        self._close(self._listener, *(end for near, far, _ in self._pairs for end in (near, far)))

    @staticmethod
    def _close(*sockets: socket.socket) -> None:
        for closable in sockets:
            with contextlib.suppress(OSError):
                closable.shutdown(socket.SHUT_RDWR)
            closable.close()

    def _accept(self) -> None:
        while True:
            try:
                near = self._listener.accept()[0]
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:  # nobody listens there for now
                near.close()
                continue
            passes = threading.Event()
            if not self._is_silent:
                passes.set()
            self._pairs.append((near, far, passes))
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, sink, passes), daemon=True).start()

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket, passes: threading.Event) -> None:
        with contextlib.suppress(OSError):  # a killed process resets its connections
            while part := source.recv(65536):
                if passes.is_set():
                    sink.sendall(part)
        with contextlib.suppress(OSError):
            if passes.is_set():
                sink.shutdown(socket.SHUT_WR)


def free_port() -> int:
    """A loopback port that nobody listens on.

    The processes of a test run have other ports each, and so has a test run of one process beside it; none is one that
    the system gives a client of its own accord: nobody takes it before the server does.
    """
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw7").removeprefix("gw"))
    first = FIRST_PORT + number % 8 * PORTS
    while True:
        port = first + secrets.randbelow(PORTS)
        if port in given_ports:
            continue
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            given_ports.add(port)
            return port


def missing(what: str, remedy: str) -> None:
    """Skip the test for want of ``what``; where CI is true, fail it: nothing is left untested there unnoticed."""
    lacking(f"{what} is not installed; {remedy}")


def lacking(reason: str) -> None:
    """As `missing`, of what no package installs."""
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def dies_with_parent() -> list[str]:
    """Prefix of a command that is to end when the test run is killed."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []


def server_is_up(server: ServerProcess) -> bool:
    """Whether ``server`` answers, started again if a test left it dead."""
    if server.process is None or server.process.poll() is not None:
        server.start()
    return server.answers()
