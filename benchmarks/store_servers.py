"""Servers for the frame stores of a benchmark: memcached, an emulator of DynamoDB, the frame server."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

#: Seconds that a server may take to start.
START_S = 60.0


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _wait_for(port: int) -> None:
    give_up_at = time.monotonic() + START_S
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if time.monotonic() > give_up_at:
            raise SystemExit(f"no server answers on port {port}")
        time.sleep(0.05)


@contextlib.contextmanager
def frame_server(*options: str) -> Iterator[str]:
    """The ``store`` of a job that uses a frame server with these options; it ends with the context."""
    command = [sys.executable, "-m", "mlless_nb.server", "--listen", "127.0.0.1", "--port", "0"]
    with subprocess.Popen([*command, "--memory-mb", "4000", *options], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()  # it listens when it says this
            if not line.startswith("store="):
                raise SystemExit("the frame server did not start")
            yield line.strip().removeprefix("store=")
        finally:
            server.terminate()


@contextlib.contextmanager
def stores() -> Iterator[dict[str, str]]:
    """Names of channels, and the ``store`` of a job that uses each; the servers end with the context.

    What is not installed is left out.
    """
    found, processes = {"S3": "storage"}, []
    try:
        program = shutil.which("memcached")
        if program is not None:
            port = _free_port()
            as_root = ["-u", "root"] if os.geteuid() == 0 else []
            command = [program, "-p", str(port), "-l", "127.0.0.1", "-U", "0", "-I", "16m", "-m", "1024", *as_root]
            processes.append(subprocess.Popen(command))
            _wait_for(port)
            found["Memcached"] = f"memcached://127.0.0.1:{port}"
        with contextlib.suppress(ImportError):
            import moto.server  # noqa: F401

            port = _free_port()
            command = [sys.executable, "-m", "moto.server", "-p", str(port)]
            processes.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            _wait_for(port)
            os.environ |= {
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "AWS_ACCESS_KEY_ID": "user",
                "AWS_SECRET_ACCESS_KEY": "of the emulator",
                "AWS_DEFAULT_REGION": "us-east-1",
            }
            found["DynamoDB"] = "dynamodb"
        with frame_server() as found["VM server"]:
            yield found
    finally:
        for process in processes:
            process.terminate()
            process.wait()
