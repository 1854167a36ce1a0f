"""Process 1 of a sandbox: lays out what a function on AWS Lambda, or a container, sees; starts its program, and waits.

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
        if not target.exists():  # else it may be on what cannot be written
            target.touch()
    _mount(source, target, flags=MS_BIND | MS_REC)
    _mount("none", target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID)


def lay_out(asked: dict[str, Any], root: Path) -> None:
    """Make the file system, and enter it: read-only but for /tmp, and without /dev/shm."""
    _mount("none", "/", flags=MS_REC | MS_PRIVATE)
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
    _fill(root, asked["tmp_mb"])
    _mount("none", root, flags=MS_REMOUNT | MS_BIND | MS_RDONLY)
    _enter(root)
    os.chdir("/var/task")


def lay_out_container(asked: dict[str, Any], root: Path) -> None:
    """The image's files, read-only, with what a runtime of containers puts over them; its folders are there."""
    _mount("none", "/", flags=MS_REC | MS_PRIVATE)
    _mount(asked["image"], root, flags=MS_BIND)
    _mount("none", root, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID)
    for source, target in asked["binds"]:
        _mount(source, root / target.lstrip("/"), flags=MS_BIND)
        _mount("none", root / target.lstrip("/"), flags=MS_REMOUNT | MS_BIND | MS_RDONLY)
    _mount("tmpfs", root / "dev", "tmpfs", MS_NOSUID, "mode=755,size=64k")
    (root / "dev" / "shm").mkdir()
    _mount("tmpfs", root / "dev" / "shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777,size=64m")
    _fill(root, asked["tmp_mb"])
    _enter(root)
    os.chdir(asked["cwd"])


def _fill(root: Path, tmp_mb: int) -> None:
    """What the system has in every root: devices, /proc, /tmp."""
    for name in DEVICES:
        (root / "dev" / name).touch()
        _mount(f"/dev/{name}", root / "dev" / name, flags=MS_BIND)
    (root / "dev/fd").symlink_to("/proc/self/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        (root / "dev" / name).symlink_to(f"/proc/self/fd/{number}")
    _mount("proc", root / "proc", "proc", MS_NOSUID | MS_NODEV)
    _mount("tmpfs", root / "tmp", "tmpfs", MS_NOSUID | MS_NODEV, f"mode=1777,size={tmp_mb}m")


def _enter(root: Path) -> None:
    os.chdir(root)
    if _libc.syscall(155, b".", b"."):  # pivot_root: what was the root is on top of the new one, and unmounted
        raise OSError(ctypes.get_errno(), "pivot_root")
    if _libc.umount2(b".", MNT_DETACH):
        raise OSError(ctypes.get_errno(), "umount")


def become_function(asked: dict[str, Any]) -> None:
    """Replace this process by the runtime, as a user without rights."""
    os.setpgid(0, 0)
    for which, most in ((resource.RLIMIT_NOFILE, OPEN_FILES), (resource.RLIMIT_NPROC, PROCESSES)):
        resource.setrlimit(which, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.setgroups([])
    uid, gid = asked.get("user", (UID, GID))
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
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
            (lay_out_container if "image" in asked else lay_out)(asked, Path(asked["folder"]))
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
