"""A cloud in a box, as tests use it: AWS, Redis and a user's machine, in namespaces that end with one process."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from cloud import cgroup
from cloud.inside import PASSWORD, REDIS_NAME
from servers import lacking, missing

#: What the box calls.
PROGRAMS = ("ip", "mount", "nsenter", "redis-server", "tc", "unshare")
REDIS = f"rediss://:{PASSWORD}@{REDIS_NAME}:6379/0"
TESTS = Path(__file__).parents[1]
#: A variable that is set where it is known that there can be no box, such as on runners without root.
WITHOUT = "MLLESS_WITHOUT_BOX"


def require(package: str) -> None:
    """Skip the test where there can be no box, and where it lacks what it needs; where CI is true, fail it for that.

    Parameters
    ----------
    package : str
        A package of Python's that the test needs.
    """
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        pytest.skip("no cloud in a box here: it needs Linux on x86-64")
    if os.environ.get(WITHOUT):
        pytest.skip(f"no cloud in a box here: {WITHOUT} is set")
    if why := why_not():
        lacking(f"no cloud in a box here: {why}")
    if importlib.util.find_spec(package) is None:
        missing(package, f"pip install {package}")


def why_not() -> str | None:
    """Why there can be no box on this machine, which is one of Linux; None if there can."""
    if os.geteuid() != 0:
        return "it needs root, for network namespaces"
    if shutil.which("unshare") is None:
        return "it needs the program unshare"
    can = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--fork", "mount", "-t", "tmpfs", "none", "/run"],
        check=False,
        capture_output=True,
    )
    if can.returncode:
        return f"it needs namespaces: {can.stderr.decode().strip()}"
    return cgroup.why_not()


class Box:
    """Started, until `close`."""

    def __init__(self, folder: Path) -> None:
        cgroup.sweep()
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir()
        folder.chmod(0o755)
        environment = {"PYTHONPATH": str(TESTS), "MLLESS_BOX": str(os.getpid()), "PATH": os.environ["PATH"]}
        namespaces = ["unshare", "--mount", "--net", "--pid", "--mount-proc", "--fork", "--kill-child"]
        self._process = subprocess.Popen(
            [*namespaces, sys.executable, "-m", "cloud.inside", str(folder)],
            cwd=folder,
            env=environment | {"TMPDIR": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "box.log").open("w"),
            text=True,
        )
        self._lock = threading.Lock()
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            self.close()
            raise RuntimeError(f"the box did not start: {(folder / 'box.log').read_text()[-2000:]}")
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        self._first = int(children[0])

    def ask(self, **order: Any) -> Any:
        """What the box's process answers to an order, see `cloud.inside`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def user(self, *command: str, machine: str = "user", **options: Any) -> subprocess.Popen[str]:
        """A process of the user's machine, which knows the box's names and nothing of this machine's network."""
        root = f"/proc/{self._first}"
        enter = ["nsenter", f"--mount={root}/ns/mnt", f"--pid={root}/ns/pid", f"--net={root}/root/run/netns/{machine}"]
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        environment = {
            "HOME": str(self.home),
            "TMPDIR": str(self.home),
            "AWS_ACCESS_KEY_ID": "AKIAUSER",
            "AWS_SECRET_ACCESS_KEY": "secret-of-the-user",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CA_BUNDLE": str(self.folder / "bundle.pem"),
            "MLLESS_REDIS_PASSWORD": PASSWORD,
        }
        pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            [*enter, *command], cwd=self.home, env=kept | environment, text=True, **(pipes | options)
        )

    def python(self, *words: str, wait_s: float = 120.0, path: Path | str = "") -> str:
        """What a Python of the user's machine prints, with modules from ``path``; raises its last words if it fails."""
        process = self.user("env", f"PYTHONPATH={path}", sys.executable, *words)
        try:
            said, complained = process.communicate(timeout=wait_s)
        except subprocess.TimeoutExpired:
            process.kill()
            said, complained = process.communicate()
            raise AssertionError(f"{words[-1]} took more than {wait_s} s: {said[-500:]}{complained[-3000:]}") from None
        if process.returncode:
            raise AssertionError(f"{said[-1000:]}{complained[-3000:]}")
        return said

    def invocations(self, event: str = "ended") -> list[dict[str, Any]]:
        """What has happened to functions since the box was started."""
        lines = (self.folder / "invocations.jsonl").read_text().splitlines()
        return [each for each in map(json.loads, lines) if each["event"] == event]

    def close(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
