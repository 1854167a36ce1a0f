"""Pods of Kubernetes get each call of a job once, and give up if nobody assigns them any."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from servers import free_port

from mlless_nb.function import pod_entry


@pytest.fixture
def master() -> Iterator[int]:
    """The port of a master."""
    server = pod_entry.master("127.0.0.1", 0)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def test_each_call_is_assigned_once_however_many_ask(master: int) -> None:
    def ask(_: int) -> str:
        return pod_entry.ask("127.0.0.1", master, "/get-range/a-M000/20/1")

    with ThreadPoolExecutor(8) as pool:
        assigned = list(pool.map(ask, range(30)))
    assert sorted(assigned) == sorted([f"{n}-{n + 1}" for n in range(20)] + [pod_entry.NONE_LEFT] * 10)
    assert pod_entry.ask("127.0.0.1", master, "/get-range/b-M000/5/3") == "0-3"
    assert pod_entry.ask("127.0.0.1", master, "/get-range/b-M000/5/3") == "3-5"


def test_old_jobs_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_entry, "MOST_JOBS", 2)
    assigner = pod_entry.CallAssigner()
    assert [assigner.assign(job, 1, 1) for job in "abcab"] == ["0-1", "0-1", "0-1", "0-1", "0-1"]
    assert assigner.assign("b", 1, 1) == pod_entry.NONE_LEFT


@pytest.mark.parametrize("path", ["/get-range/a/20", "/get-range/../20/1", "/", "/get-range/a/-1/1"])
def test_what_is_no_request_for_a_call_is_refused(master: int, path: str) -> None:
    with pytest.raises(ConnectionError, match=r"master pod 127\.0\.0\.1 does not answer: status 404"):
        pod_entry.ask("127.0.0.1", master, path, 0.0)  # asked once in any case


def test_a_pod_gives_up_when_its_master_is_gone() -> None:
    with pytest.raises(ConnectionError, match="does not answer"):
        pod_entry.ask("127.0.0.1", free_port(), "/get-range/a/1/1", 0.05)


def test_a_pod_carries_out_what_it_is_assigned(master: int, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[dict[str, Any]] = []
    worker = SimpleNamespace(function_handler=done.append)
    utils = SimpleNamespace(setup_lithops_logger=lambda _: None)
    there = {"lithops.worker": worker, "lithops.utils": utils}
    monkeypatch.setattr(pod_entry.importlib, "import_module", there.__getitem__)
    monkeypatch.setattr(pod_entry, "PORT", master)
    monkeypatch.setenv("MASTER_POD_IP", "127.0.0.1")
    for name in ("__LITHOPS_ACTIVATION_ID", "__LITHOPS_BACKEND"):
        monkeypatch.setenv(name, "")
    asked = {"job_key": "a-M000", "total_calls": 2, "chunksize": 1, "call_ids": ["00000", "00001"]}
    asked |= {"data_byte_ranges": [[0, 9], [10, 19]], "log_level": "INFO"}
    pod_entry.main(["run_job", base64.b64encode(json.dumps(asked).encode()).decode()])
    assert [(each["call_ids"], each["data_byte_ranges"]) for each in done] == [
        (["00000"], [[0, 9]]),
        (["00001"], [[10, 19]]),
    ]
