"""What a container of Kubernetes starts, in the place of Lithops' own script: ``lithopsentry.py ACTION DATA``.

It speaks Lithops' protocol: one pod, the master, assigns the calls of a job, and each pod of the job asks it for one
after the other. Lithops' script assigns them by a debugging server of Flask's, may assign a call twice, and a pod whose
master is gone asks for ever. It lies at the root of the image's packages, as ``lithopsentry.py``, and imports nothing
of ours.
"""

from __future__ import annotations

import base64
import http.client
import importlib
import json
import os
import re
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: Where the master listens: Lithops' number.
PORT = 8080
#: Longest wait for the master, and for one answer of it; pause between two tries, seconds.
MASTER_S, ANSWER_S, PAUSE_S = 60.0, 2.0, 0.1
#: Jobs that a master remembers.
MOST_JOBS = 10_000
#: What the master says to those who come when all calls are assigned.
NONE_LEFT = "-1"
_ASKED = re.compile(r"/get-range/(\w[\w.-]{0,199})/(\d{1,6})/(\d{1,6})")


class CallAssigner:
    """Assigns the calls of jobs to pods, each once."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}
        self._lock = threading.Lock()

    def assign(self, job: str, n_calls: int, n_at_once: int) -> str:
        """The numbers of the next calls of ``job``: "first-end", without the end; or `NONE_LEFT`."""
        with self._lock:
            first = self._next.pop(job, 0)
            self._next[job] = end = min(first + n_at_once, n_calls)
            while len(self._next) > MOST_JOBS:
                del self._next[next(iter(self._next))]
        return f"{first}-{end}" if first < end else NONE_LEFT


class _Master(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 5.0
    assigner: CallAssigner

    def do_GET(self) -> None:
        asked = _ASKED.fullmatch(self.path)
        said = self.assigner.assign(asked[1], int(asked[2]), int(asked[3])).encode() if asked else b""
        self.send_response(200 if asked else 404)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: Any) -> None:
        """Say nothing: the log would grow for as long as the master lives."""


def master(address: str = "0.0.0.0", port: int = PORT) -> ThreadingHTTPServer:
    """The master's server."""
    return ThreadingHTTPServer((address, port), type("Master", (_Master,), {"assigner": CallAssigner()}))


def ask(address: str, port: int, path: str, patience_s: float = MASTER_S) -> str:
    """What the master answers.

    Raises
    ------
    ConnectionError
        If it does not within ``patience_s`` seconds.
    """
    give_up_at = time.monotonic() + patience_s
    while True:
        line = http.client.HTTPConnection(address, port, timeout=ANSWER_S)
        try:
            line.request("GET", path)
            answer = line.getresponse()
            if answer.status == 200:
                return answer.read(100).decode("ascii", "replace")
            why = f"status {answer.status}"
        except (OSError, http.client.HTTPException) as error:
            why = str(error) or type(error).__name__
        finally:
            line.close()
        if time.monotonic() >= give_up_at:
            raise ConnectionError(f"Lithops' master pod {address} does not answer: {why}")
        time.sleep(PAUSE_S)


def run_job(asked: dict[str, Any]) -> None:
    """Carry out calls of a job until none is left."""
    os.environ["__LITHOPS_ACTIVATION_ID"] = uuid.uuid4().hex[:12]
    os.environ["__LITHOPS_BACKEND"] = "k8s"
    path = f"/get-range/{asked['job_key']}/{asked['total_calls']}/{asked['chunksize']}"
    calls, ranges = asked["call_ids"], asked["data_byte_ranges"]
    while (assigned := ask(os.environ["MASTER_POD_IP"], PORT, path)) != NONE_LEFT:
        first, _, end = assigned.partition("-")
        own = calls[int(first) : int(end)]
        importlib.import_module("lithops.worker").function_handler(
            {**asked, "call_ids": own, "data_byte_ranges": [ranges[int(call)] for call in own]}
        )


def tell_metadata(asked: dict[str, Any]) -> None:
    """Write what the image has to where Lithops looks for it."""
    about = importlib.import_module("lithops.worker.utils").get_runtime_metadata()
    storage = importlib.import_module("lithops.storage.storage").InternalStorage(asked)
    folder = importlib.import_module("lithops.constants").JOBS_PREFIX
    storage.put_data(f"{folder}/{asked['runtime_name']}.meta", json.dumps(about))


def main(words: list[str]) -> None:
    """Do what Lithops asks for."""
    action, asked = words[0], json.loads(base64.b64decode(words[1]))
    if action == "run_master":
        return master().serve_forever()
    importlib.import_module("lithops.utils").setup_lithops_logger(asked.get("log_level", "INFO"))
    {"run_job": run_job, "get_metadata": tell_metadata}[action](asked)
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
