"""Forks the functions of the tests' runs from an interpreter that has everything loaded, once for all of them.

It is run by the interpreter of local functions (`mlless_nb/function/preload.py`), as Lithops' own runner is, and
listens on the Unix socket that it is given. Whoever connects writes a line of JSON: ``argv`` (the runner and its
arguments), ``env``, ``cwd``. The answer is a line with the process id of the runner, which leads a session of its own,
and a line with its return code once it has ended.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent))  # the interpreter of local functions leaves it out

import mortal


def serve(path: str) -> None:
    """Serve every connection in a process of its own."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        signal.signal(signal.SIGCHLD, bury)
        while True:
            client, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                follow(client)
                os._exit(0)
            client.close()


def bury(*_: object) -> None:
    """Wait for those who have served: what they used of the processor is counted with this process then."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def follow(client: socket.socket) -> None:
    """Fork the runner that the client asks for, and tell its process id and how it ends."""
    with client, client.makefile("rw") as lines:
        request = json.loads(lines.readline())
        pid = os.fork()
        if pid == 0:
            lines.close()  # else it keeps the socket open: who waits for the runner would wait for all its functions
            client.close()
            os._exit(run(request))
        lines.write(f"{pid}\n")
        lines.flush()
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        try:
            lines.write(f"{code}\n")
            lines.flush()
        except OSError:
            return  # nobody is left who would like to know


def run(request: dict[str, Any]) -> int:
    """Be the runner; returns its exit code."""
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.argv = request["argv"]
    try:
        mortal.prepare()
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    serve(sys.argv[1])
