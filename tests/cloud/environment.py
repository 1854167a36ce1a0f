"""One execution environment of a function: a sandbox, and the Runtime API that awslambdaric in it asks for work."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cloud import cgroup, network
from cloud.http_handling import Handler, Server
from cloud.sandbox_process import remove, started

#: Longest time that AWS gives the start before it counts as part of the invocation, seconds.
INIT_S = 10.0
PORT = 9001
#: What AWS has in /var/runtime.
RUNTIME = (
    *("awslambdaric", "simplejson", "snapshot_restore_py", "boto3", "botocore", "s3transfer", "jmespath", "dateutil"),
    *("six.py", "urllib3"),
)
SITE = Path(sysconfig.get_path("purelib"))
#: Where packages are below an interpreter's folder; Debian's has two folders of its own.
_LIBRARY = f"python3.{sys.version_info.minor}"
PACKAGES = (f"lib/{_LIBRARY}/site-packages", "lib/python3/dist-packages", f"local/lib/{_LIBRARY}/dist-packages")
_numbers = itertools.count(1)


@dataclass
class Work:
    """One invocation, as the environment sees it."""

    request: str
    payload: bytes
    deadline_ms: int = 0
    error: str | None = None
    body: bytes = b"null"
    done: threading.Event = field(default_factory=threading.Event)


class Environment:
    """A sandbox for ``function``; used for one invocation at a time, frozen in between."""

    def __init__(self, function: dict[str, Any], folder: Path, megabit: float | None) -> None:
        number = next(_numbers)
        self.name, self.function = f"f{number}", function
        self._began, self.init_s, self.is_cold = 0.0, 0.0, True
        self._inbox: queue.Queue[Work | None] = queue.Queue()
        self._ready, self.has_ended = threading.Event(), threading.Event()
        self.work: Work | None = None
        # Below the cgroups of the box's process, so that those that a killed one leaves are found.
        self._group = cgroup.made(f"{cgroup.PREFIX}{os.environ['MLLESS_BOX']}-{number}", function["MemorySize"])
        self._folder = folder / self.name
        self._folder.mkdir()
        network.make_machine(self.name, f"10.77.{1 + number // 250}.{1 + number % 250}", megabit)
        listener = network.within(self.name, lambda: network.listening("127.0.0.1", PORT))
        handler = type("RuntimeHandler", (_RuntimeApi,), {"environment": self})
        self._server = Server(("127.0.0.1", PORT), handler, bind_and_activate=False)
        self._server.socket.close()
        self._server.socket = listener
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self._process = self._start(folder)
        threading.Thread(target=self._watch, daemon=True).start()

    def _start(self, folder: Path) -> subprocess.Popen[bytes]:
        function = self.function
        variables = function["Environment"]["Variables"]
        # The base's folder, at which a relocated interpreter finds its library.
        python = f"/var/lang/bin/python3.{sys.version_info.minor}"
        environment = {
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{PORT}",
            "AWS_LAMBDA_FUNCTION_NAME": function["FunctionName"],
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(function["MemorySize"]),
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{function['Runtime']}",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "ASIAFUNCTION",
            "AWS_SECRET_ACCESS_KEY": "secret-of-the-role",
            "AWS_SESSION_TOKEN": "token-of-the-role",
            "AWS_CA_BUNDLE": "/etc/ssl/certs/ca-certificates.crt",  # real names have real certificates
            "LAMBDA_TASK_ROOT": "/var/task",
            "LAMBDA_RUNTIME_DIR": "/var/runtime",
            "_HANDLER": function["Handler"],
            "LANG": "en_US.UTF-8",
            "TZ": ":UTC",
            "PATH": "/var/lang/bin:/usr/local/bin:/usr/bin/:/bin:/opt/bin",
            "LD_LIBRARY_PATH": "/var/lang/lib:/lib64:/usr/lib64:/var/runtime:/var/runtime/lib:/var/task:/opt/lib",
            "PYTHONPATH": f"/opt/python/lib/python3.{sys.version_info.minor}/site-packages:/opt/python:/var/runtime",
            **variables,
        }
        wrapper = variables.get("AWS_LAMBDA_EXEC_WRAPPER")
        # This machine's interpreter, without what else is installed for it.
        (empty := folder / "empty").mkdir(exist_ok=True)
        binds = [("/usr", "/usr"), (sys.base_prefix, "/var/lang")]
        binds += [(str(empty), f"/var/lang/{name}") for name in PACKAGES if Path(sys.base_prefix, name).is_dir()]
        binds += [(function["code"], "/var/task"), (function["layers"], "/opt")]
        binds += [(str(SITE / name), f"/var/runtime/{name}") for name in RUNTIME if (SITE / name).exists()]
        binds += [(str(path), f"/var/runtime/{path.name}") for path in SITE.glob("runtime_client.*")]
        bundle = str(folder / "bundle.pem")
        binds += [("/etc/hosts", "/etc/hosts"), (bundle, "/etc/ssl/certs/ca-certificates.crt")]
        # Where a function invokes others, Lithops looks at no variable for the authorities that it trusts.
        if Path(function["layers"], own := "python/certifi/cacert.pem").exists():
            binds += [(bundle, f"/opt/{own}")]
        asked = {
            "folder": str(self._folder),
            "groups": self._group.files(),
            "binds": binds,
            "tmp_mb": function.get("EphemeralStorage", {}).get("Size", 512),
            "command": [*filter(None, [wrapper]), python, "-m", "awslambdaric", function["Handler"]],
            "environment": environment,
        }
        process = started(self.name, asked, folder / f"{function['FunctionName']}.log")
        self._began = time.monotonic()  # what AWS does before is not billed
        return process

    def _watch(self) -> None:
        status = self._process.wait()
        self.has_ended.set()
        self._ready.set()
        self._inbox.put(None)
        # The sandbox ends with its runtime's status, and a signal below 256; it may be killed itself.
        number = -status if status < 0 else 256 - status
        was_killed = number == signal.SIGKILL
        self.finish(None, f"Runtime exited with error: {'signal: killed' if was_killed else f'exit status {status}'}")

    def next(self) -> Work | None:
        """The runtime is ready, and asks for work."""
        if not self._ready.is_set():
            self.init_s = time.monotonic() - self._began
            self._ready.set()
        return self._inbox.get()

    def finish(self, request: str | None, error: str | None, body: bytes = b"null") -> None:
        """The end of the invocation at hand, whatever ``request`` is if None."""
        work = self.work
        if work is not None and request in (None, work.request) and not work.done.is_set():
            work.error, work.body = error, body
            work.done.set()

    def run(self, work: Work) -> float:
        """Carry out one invocation, kill it at its limit; returns its seconds, without those of the start."""
        is_cold, self.is_cold, self.work = self.is_cold, False, work
        if not is_cold:
            self._group.thaw()
        elif not self._ready.wait(INIT_S) or self.has_ended.is_set():
            self.init_s = time.monotonic() - self._began
            self._ready.set()  # what the start takes from now on is the invocation's, and billed once
        began, limit_s = time.monotonic(), self.function["Timeout"]
        work.deadline_ms = int((time.time() + limit_s) * 1000)
        if self.has_ended.is_set():
            self.finish(None, work.error or "Runtime exited with error: before it asked for work")
        else:
            self._inbox.put(work)
        if not work.done.wait(limit_s):
            self.kill()
            self.finish(None, f"Task timed out after {limit_s:.2f} seconds")
        return time.monotonic() - began

    @property
    def peak_mb(self) -> float:
        return self._group.peak_mb

    def freeze(self) -> None:
        self._group.freeze()

    def kill(self) -> None:
        """Kill all processes of the sandbox."""
        with contextlib.suppress(OSError):
            self._group.thaw()
        self._group.kill()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._group.thaw()
        remove(self.name, self._group, self._process)
        self._server.shutdown()
        self._server.server_close()


class _RuntimeApi(Handler):
    environment: Environment

    def do_GET(self) -> None:  # noqa: N802 - BaseHTTPRequestHandler's name
        work = self.environment.next()
        if work is None:
            self.close_connection = True
            return
        headers = [
            ("Lambda-Runtime-Aws-Request-Id", work.request),
            ("Lambda-Runtime-Deadline-Ms", str(work.deadline_ms)),
            ("Lambda-Runtime-Invoked-Function-Arn", self.environment.function["FunctionArn"]),
            ("Lambda-Runtime-Trace-Id", "Root=1-0-0"),
            ("Content-Type", "application/json"),
        ]
        self.answer(200, work.payload, headers)

    def do_POST(self) -> None:  # noqa: N802 - as above
        body, words = self.body(), self.path.split("/")
        self.answer(202, {"status": "OK"})
        if words[-1] == "response":
            self.environment.finish(words[-2], None, body)
        elif words[-2:] == ["init", "error"]:
            self.environment.finish(None, body.decode(), body)
        else:
            self.environment.finish(words[-2], body.decode(), body)
