"""Why pods do not run or have failed: what the cluster says of their containers becomes a cause in one line."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mlless_nb.driver.backends import causes
from mlless_nb.driver.backends.call_failures import Failure
from mlless_nb.driver.backends.causes import Causes
from mlless_nb.driver.backends.pod_states import failure_of_pod, no_room
from mlless_nb.driver.backends.pods import Pods
from mlless_nb.errors import ServiceError

TRACEBACK = "Traceback (most recent call last):\n  File 'a.py'\nModuleNotFoundError: No module named 'x'\n"


def pod(**state: Any) -> Any:
    """One whose container is as the cluster says."""
    stated = SimpleNamespace(**{name: SimpleNamespace(**each) for name, each in state.items()}) if state else None
    container = SimpleNamespace(image="mlless:1", state=stated)
    return SimpleNamespace(status=SimpleNamespace(container_statuses=[container], conditions=None))


def ended(exit_code: int, message: str | None = None, reason: str = "Error") -> Any:
    return pod(terminated={"exit_code": exit_code, "message": message, "reason": reason})


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (pod(waiting={"reason": "ErrImagePull", "message": "no such image"}), "ErrImagePull: no such image"),
        (pod(waiting={"reason": "ImagePullBackOff", "message": None}), "ImagePullBackOff"),
    ],
)
def test_an_image_that_cannot_be_pulled_is_named(found: Any, why: str) -> None:
    assert failure_of_pod(found, "job") == Failure("job", None, "the image mlless:1 cannot be pulled or started", why)


def test_too_little_memory_and_the_last_words_of_a_program_are_told() -> None:
    failure = failure_of_pod(ended(137, reason="OOMKilled"), "job")
    assert failure is not None
    assert failure.is_out_of_memory
    assert failure_of_pod(ended(1, TRACEBACK), "job") == Failure(
        "job", None, "ModuleNotFoundError", "No module named 'x'"
    )


@pytest.mark.parametrize(
    "found",
    [
        pod(),
        pod(running={"started_at": "now"}),
        pod(waiting={"reason": "ContainerCreating", "message": None}),
        ended(0, TRACEBACK, "Completed"),
        ended(137),  # killed: the run replaces it
        ended(1, "out of ideas"),
    ],
)
def test_other_pods_say_nothing(found: Any) -> None:
    assert failure_of_pod(found, "job") is None
    assert failure_of_pod(SimpleNamespace(status=SimpleNamespace(container_statuses=None)), "job") is None
    assert no_room(found) is None


class Backend:
    """Lithops' for Kubernetes, with two jobs and their ``pods``."""

    namespace, jobs = "default", ("E-0-M000", "E-0-M001")

    def __init__(self, **pods: Any) -> None:
        self.pods, self.batch_api = pods, SimpleNamespace(delete_namespaced_job=self._delete)
        self.core_api = SimpleNamespace(list_namespaced_pod=self._list)

    def _list(self, namespace: str, label_selector: str, **_: Any) -> Any:
        return SimpleNamespace(items=[each for name, each in self.pods.items() if label_selector.endswith(name)])

    def _delete(self, name: str, **_: Any) -> None:
        self.pods.clear()

    def _format_job_name(self, image: str, memory_mb: int) -> str:
        return "looks"


def test_the_pods_of_all_jobs_of_a_run_are_looked_at() -> None:
    backend = Backend(m000=ended(0), m001=ended(1, TRACEBACK), meta=ended(1, TRACEBACK))
    assert Pods(backend).failures() == [Failure("E-0-M001", None, "ModuleNotFoundError", "No module named 'x'")]


def test_a_cluster_that_does_not_tell_hides_nothing_else() -> None:
    backend = Backend()
    backend.core_api.list_namespaced_pod = None
    assert Pods(backend).failures() == []


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (ended(1, TRACEBACK), "the image does not work: ModuleNotFoundError: No module named 'x'"),
        (ended(137, reason="OOMKilled"), "the image does not work: MemoryError"),
        (ended(1), "Unable to extract metadata from the runtime"),
    ],
)
def test_a_pod_that_fails_as_it_looks_at_the_image_tells_why_although_lithops_removes_it(found: Any, why: str) -> None:
    backend = Backend(meta=found)

    def extract() -> None:
        backend.batch_api.delete_namespaced_job(name="looks-meta")
        raise RuntimeError("Unable to extract metadata from the runtime")

    with pytest.raises(ServiceError, match=f"^{why}$"):
        Pods(backend).deploy("mlless:1", extract)
    assert backend.pods == {}


def look(found: list[Failure], started: set[int], monkeypatch: pytest.MonkeyPatch) -> str | None:
    """What is said of a run of a supervisor and two workers, the first of which was replaced, while some are late."""
    monkeypatch.setattr(causes, "LATE_S", 0.0)
    launcher: Any = SimpleNamespace(cloud=SimpleNamespace(failures=lambda: found))
    cause = Causes(launcher, 512)
    cause.invoked("first", [-1, 0, 1])
    cause.invoked("second", [0])
    return cause.look(started, [])


def test_a_function_whose_call_is_unknown_is_one_of_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (Failure(job, None, "ImportError", "no kernels") for job in ("first", "second"))
    assert look([first], {-1, 0}, monkeypatch) == "a function could not start: ImportError: no kernels"
    assert look([first], {-1, 1}, monkeypatch) is None  # its newest function is another one
    assert look([second], {-1, 1}, monkeypatch) == "worker 0 could not start: ImportError: no kernels"
    assert look([second], {0, -1}, monkeypatch) is None
    short = Failure("first", None, "MemoryError", "")
    assert look([short], {-1, 1}, monkeypatch) == (
        "a function ran out of memory: memory_mb=512 is too small for this job"
    )
    assert look([Failure("of another run", 0, "ImportError", "")], set(), monkeypatch) is None
