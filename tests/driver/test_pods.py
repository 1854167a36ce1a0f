"""Pods that cannot run end a launch with the cause; Lithops would wait for them without end."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from mlless_nb.driver import pods
from mlless_nb.driver.pods import Pods, check_image, said
from mlless_nb.errors import JobError, ServiceError
from mlless_nb.function.package_digest import digest_here


class Backend:
    """Lithops' for Kubernetes, whose pods are ``found``; what waits for them ends when their API is gone."""

    def __init__(self, *found: Any) -> None:
        self.namespace, self.master_name, self.found, self.deleted = "default", "master", list(found), list[str]()
        self.is_over = threading.Event()
        client = SimpleNamespace(call_api=lambda: None)
        self.core_api = SimpleNamespace(
            list_namespaced_pod=lambda *_, **__: SimpleNamespace(items=self.found), api_client=client
        )
        self.batch_api = SimpleNamespace(delete_namespaced_job=self._delete, api_client=client)

    def _delete(self, name: str, **_: Any) -> None:
        self.deleted.append(name)
        self.found.clear()

    def _format_job_name(self, image: str, memory_mb: int) -> str:
        return "job"

    def _start_master(self, image: str) -> str:
        if self.found and self.found[0].status.phase == "Running":
            return "10.0.0.1"
        try:
            while True:
                self.core_api.api_client.call_api()
                threading.Event().wait(0.01)
        finally:
            self.is_over.set()


def pod(phase: str, reason: str | None = None, is_unscheduled: bool = False) -> Any:
    waiting = SimpleNamespace(reason=reason, message="no such image") if reason else None
    container = SimpleNamespace(image="mlless:1", state=SimpleNamespace(waiting=waiting))
    condition = SimpleNamespace(type="PodScheduled", status="False", message="0/1 nodes have 1 cpu")
    return SimpleNamespace(
        status=SimpleNamespace(
            phase=phase, container_statuses=[container], conditions=[condition] if is_unscheduled else None
        )
    )


@pytest.mark.parametrize(
    ("found", "patience_s", "why"),
    [
        (pod("Pending", "ErrImagePull"), 60.0, "the image mlless:1 cannot be pulled or started: ErrImagePull: no such"),
        (pod("Pending", is_unscheduled=True), 0.0, "no node has room for its pod: 0/1 nodes have 1 cpu"),
        (pod("Pending", "ContainerCreating"), 0.0, "its pod did not run within 0 s"),
    ],
)
def test_a_pod_that_cannot_run_is_told_and_nobody_waits_for_it(found: Any, patience_s: float, why: str) -> None:
    backend = Backend(found)
    with pytest.raises(ServiceError, match=why):
        Pods(backend, patience_s).start_master("mlless:1")
    assert backend.deleted == ["master"]
    assert backend.is_over.wait(10)


def test_a_master_that_runs_is_used_and_one_that_has_ended_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    running = Backend(pod("Running"))
    Pods(running).start_master("mlless:1")
    assert running.deleted == []
    ended = Backend(pod("Failed"))
    monkeypatch.setattr(ended, "_start_master", lambda image: "10.0.0.2")
    Pods(ended).start_master("mlless:1")
    assert ended.deleted == ["master"]


def test_what_the_cluster_refuses_is_one_line() -> None:
    backend, error = Backend(), Exception("(403)\nReason: Forbidden\nHTTP response headers: ...")
    error.status, error.reason, error.body = 403, "Forbidden", '{"message": "jobs is forbidden"}'  # type: ignore[attr-defined]

    def refuse() -> None:
        raise error

    with pytest.raises(ServiceError, match=r"^Kubernetes: 403 Forbidden: jobs is forbidden$"):
        Pods(backend).deploy("mlless:1", refuse)
    error.body = None  # type: ignore[attr-defined]
    assert said(error) == "Kubernetes: 403 Forbidden"
    assert said(ValueError("x")) == "x"


def test_an_image_of_another_version_is_refused() -> None:
    check_image("registry:5000/mlless:mine")
    check_image(f"registry/mlless:mlless-{digest_here()[:12]}")
    with pytest.raises(JobError, match=r"runtime='r/mlless:mlless-0+': must be built again \(mlless-nb runtime build"):
        check_image(f"r/mlless:mlless-{'0' * 12}")


def test_only_clusters_have_pods() -> None:
    lambdas = SimpleNamespace(compute_handler=SimpleNamespace(backend=SimpleNamespace(name="aws_lambda")))
    assert pods.pods_of(lambdas) is None
    cluster = SimpleNamespace(name="k8s", rabbitmq_executor=False, core_api=None)
    assert pods.pods_of(SimpleNamespace(compute_handler=SimpleNamespace(backend=cluster))) is not None
