"""Process 1 of a function's sandbox: lays out what a function on AWS Lambda sees, starts the runtime, waits for it.

Started by ``unshare --mount --pid --ipc --uts`` in the function's network namespace, with a description as JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
import traceback
from pathlib import Path
from typing import Any

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
MNT_DETACH, PR_SET_NO_NEW_PRIVS = 2, 38
#: Those of the user sbx_user1051 on AWS.
UID, GID = 993, 990
OPEN_FILES = PROCESSES = 1024
DEVICES = ("null", "zero", "random", "urandom")
_libc = ctypes.CDLL(None, use_errno=True)


def _mount(source: str, target: Path | str, kind: str = "", flags: int = 0, data: str = "") -> None:
    if _libc.mount(source.encode(), str(target).encode(), kind.encode(), flags, data.encode() or None):
        raise OSError(ctypes.get_errno(), f"mount {source} on {target}")


def _bind(source: str, target: Path) -> None:
    """``source`` at ``target``, for reading only."""
    if Path(source).is_dir():
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    _mount(source, target, flags=MS_BIND | MS_REC)
    _mount("none", target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID)


def lay_out(asked: dict[str, Any]) -> None:
    """Make the file system, and enter it: read-only but for /tmp, and without /dev/shm."""
    _mount("none", "/", flags=MS_REC | MS_PRIVATE)
    root = Path(asked["folder"])
    _mount("tmpfs", root, "tmpfs", data="mode=755,size=1m")
    for name in ("bin", "lib", "lib64"):
        if Path(f"/{name}").is_symlink():
            (root / name).symlink_to(os.readlink(f"/{name}"))
        else:
            _bind(f"/{name}", root / name)
    for source, target in asked["binds"]:
        _bind(source, root / target.lstrip("/"))
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/passwd").write_text(
        f"root:x:0:0::/:/bin/sh\nsbx_user1051:x:{UID}:{GID}::/home/sbx_user1051:/sbin/nologin\n"
    )
    for name in ("dev", "proc", "tmp"):
        (root / name).mkdir()
    for name in DEVICES:
        (root / "dev" / name).touch()
        _mount(f"/dev/{name}", root / "dev" / name, flags=MS_BIND)
    (root / "dev/fd").symlink_to("/proc/self/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        (root / "dev" / name).symlink_to(f"/proc/self/fd/{number}")
    _mount("proc", root / "proc", "proc", MS_NOSUID | MS_NODEV)
    _mount("tmpfs", root / "tmp", "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,size={asked['tmp_mb']}m")
    _mount("none", root, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)
    os.chdir(root)
    if _libc.syscall(155, b".", b"."):  # pivot_root: what was the root is on top of the new one, and unmounted
        raise OSError(ctypes.get_errno(), "pivot_root")
    if _libc.umount2(b".", MNT_DETACH):
        raise OSError(ctypes.get_errno(), "umount")
    os.chdir("/var/task")


def become_function(asked: dict[str, Any]) -> None:
    """Replace this process by the runtime, as a user without rights."""
    os.setpgid(0, 0)
    for which, most in ((resource.RLIMIT_NOFILE, OPEN_FILES), (resource.RLIMIT_NPROC, PROCESSES)):
        resource.setrlimit(which, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.setgroups([])
    os.setresgid(GID, GID, GID)
    os.setresuid(UID, UID, UID)
    _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    os.execve(asked["command"][0], asked["command"], asked["environment"])


def main() -> int:
    asked = json.loads(sys.stdin.read())
    os.set_inheritable(begins := int(sys.argv[1]), False)
    os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
    child = os.fork()  # the child joins the group; this one, which is not the function's, stays out of it
    if child == 0:
        try:
            for path in asked["groups"]:
                Path(path).write_text("0")
            lay_out(asked)
            os.write(begins, b"!")
            become_function(asked)
        except BaseException:
            os.write(begins, b"?")
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(125)
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) % 256


if __name__ == "__main__":
    sys.exit(main())
