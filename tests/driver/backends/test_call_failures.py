"""Why a function failed, read from what Lithops stores; nothing of it is unpickled."""

from __future__ import annotations

import base64
import json
import zlib
from types import SimpleNamespace
from typing import Any

import pytest

from mlless_nb.driver.backends import causes
from mlless_nb.driver.backends.call_failures import MOST_BYTES, Failure, failure_of, failures_in
from mlless_nb.driver.backends.causes import Causes

TRACEBACK = """----------------------- EXCEPTION !-----------------------
Traceback (most recent call last):
  File "/opt/python/a.py", line 1, in <module>
{last}
----------------------------------------------------------
"""


def note(last: str = "", **fields: Any) -> bytes:
    """What Lithops stores of a call that ended with ``last``."""
    logs = base64.b64encode(zlib.compress(TRACEBACK.format(last=last).encode())).decode()
    return json.dumps({"exception": True, "exc_info": "b'...'", "logs": logs} | fields).encode()


@pytest.mark.parametrize(
    ("last", "kind", "text"),
    [
        ("ModuleNotFoundError: No module named 'x'", "ModuleNotFoundError", "No module named 'x'"),
        ("mlless_nb.errors.ServiceError: Redis: away", "ServiceError", "Redis: away"),
        ("MemoryError: ('HANDLER', 'killed')", "MemoryError", "('HANDLER', 'killed')"),
        ("ValueError", "ValueError", ""),
        ("nothing that is an error", "an exception", ""),
    ],
)
def test_the_last_line_of_the_traceback_is_the_cause(last: str, kind: str, text: str) -> None:
    failure = failure_of(note(last), "job", "00001")
    assert failure == Failure("job", 1, kind, text)
    assert failure.is_out_of_memory == (kind == "MemoryError")


@pytest.mark.parametrize(
    "blob",
    [b"", b"{", b"[]", b"null", note(exception=False), note(exception="yes"), b" " * (MOST_BYTES + 1), b"\xff"],
)
def test_other_notes_say_nothing(blob: bytes) -> None:
    assert failure_of(blob, "job", "00001") is None
    assert failure_of(note("ValueError"), "job", "x") is None


@pytest.mark.parametrize("logs", [None, 1, "?", base64.b64encode(b"not packed").decode(), "é"])
def test_a_log_that_cannot_be_read_leaves_the_failure(logs: Any) -> None:
    assert failure_of(note(logs=logs), "job", "00001") == Failure("job", 1, "an exception", "")


def test_a_huge_log_is_read_in_part() -> None:
    logs = base64.b64encode(zlib.compress(b"\n" * (1 << 24))).decode()
    assert failure_of(note(logs=logs), "job", "00001") == Failure("job", 1, "an exception", "")


class Stored:
    """Objects as Lithops' storage has them."""

    bucket = "bucket"

    def __init__(self, **objects: bytes) -> None:
        self.objects = {f"lithops.jobs/{key}": blob for key, blob in objects.items()}

    def list_keys(self, bucket: str, prefix: str) -> list[str]:
        return [key for key in self.objects if key.startswith(prefix)]

    def get_object(self, bucket: str, key: str) -> bytes:
        return self.objects[key]


def test_calls_of_other_executors_are_not_looked_at() -> None:
    stored = Stored(
        **{"e-0-M000/00002/status.json": note("ValueError: a"), "f-0-M000/00000/status.json": note("OSError")}
    )
    stored.objects["lithops.jobs/e-0-M000/00000/x.init"] = b""
    assert failures_in(stored, "bucket", "e-0") == [Failure("e-0-M000", 2, "ValueError", "a")]


@pytest.fixture
def cause(monkeypatch: pytest.MonkeyPatch) -> Causes:
    """Of a run whose supervisor and two workers were invoked; worker 0 has failed."""
    monkeypatch.setattr(causes, "LATE_S", 0.0)
    found = [Failure("job", 1, "ImportError", "no kernels")]
    launcher: Any = SimpleNamespace(cloud=SimpleNamespace(failures=lambda: found))
    made = Causes(launcher, 512)
    made.invoked("job", [-1, 0, 1])
    return made


def test_a_function_that_failed_before_it_started_ends_the_run(cause: Causes) -> None:
    assert cause.look({-1, 1}, []) == "worker 0 could not start: ImportError: no kernels"


def test_one_that_had_started_is_replaced_as_any_lost_one(cause: Causes) -> None:
    assert cause.look({-1, 0, 1}, [0]) is None


def test_too_little_memory_ends_the_run_at_any_time(cause: Causes, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = [Failure("job", 2, "MemoryError", "")]
    monkeypatch.setattr(cause, "_cloud", SimpleNamespace(failures=lambda: failures))
    assert cause.look({-1, 0, 1}, [1]) == "worker 1 ran out of memory: memory_mb=512 is too small for this job"


def test_nobody_looks_while_all_are_there(cause: Causes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cause, "_cloud", SimpleNamespace(failures=lambda: pytest.fail("looked")))
    assert cause.look({-1, 0, 1}, []) is None
