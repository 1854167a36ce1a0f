"""Pods that cannot run end a launch with the cause; Lithops would wait for them without end."""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from mlless_nb.clouds.container import tag_of
from mlless_nb.driver.backends import cloud_functions, pods
from mlless_nb.driver.backends.cluster_rights import ACTIONS, ALWAYS
from mlless_nb.driver.backends.pods import (
    ANSWER_S,
    CONNECT_S,
    MOST_FAILED,
    WATCH_S,
    JobsApi,
    Pods,
    cause_of,
    check_image,
)
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


@pytest.mark.parametrize("becomes", ["Running", "Failed"])
def test_a_master_that_another_run_has_just_started_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, becomes: str
) -> None:
    monkeypatch.setattr(pods, "PODS_POLL_S", 0.001)
    starting, taken = Backend(pod("Pending")), list[list[str]]()
    n_looks = itertools.count()

    def listed(*_: Any, **__: Any) -> Any:
        if next(n_looks) == 5:
            starting.found[0].status.phase = becomes
        return SimpleNamespace(items=list(starting.found))

    starting.core_api.list_namespaced_pod = listed
    monkeypatch.setattr(
        starting, "_start_master", lambda image: taken.append([each.status.phase for each in starting.found])
    )
    Pods(starting, 60.0).start_master("mlless:1")
    assert taken == [["Running"] if becomes == "Running" else []]
    assert starting.deleted == ([] if becomes == "Running" else ["master"])


def test_what_the_cluster_refuses_is_one_line() -> None:
    backend, error = Backend(), Exception("(403)\nReason: Forbidden\nHTTP response headers: ...")
    error.status, error.reason, error.body = 403, "Forbidden", '{"message": "jobs is forbidden"}'  # type: ignore[attr-defined]

    def refuse() -> None:
        raise error

    with pytest.raises(ServiceError, match=r"^Kubernetes: 403 Forbidden: jobs is forbidden$"):
        Pods(backend).deploy("mlless:1", refuse)
    error.body = None  # type: ignore[attr-defined]
    assert cause_of(error) == "Kubernetes: 403 Forbidden"
    assert cause_of(ValueError("x")) == "x"


def test_a_pod_that_fails_does_not_end_the_others_of_a_run() -> None:
    created, limits = list[dict[str, Any]](), list[Any]()

    def create(namespace: str, body: dict[str, Any], **options: Any) -> None:
        created.append(body)
        limits.append(options.get("_request_timeout"))

    api = SimpleNamespace(create_namespaced_job=create, api_client="client")
    jobs = JobsApi(api)
    for action in ("run_job", "run_master"):
        container = {"env": [{"name": "ACTION", "value": action}, {"name": "POD_IP", "valueFrom": {}}]}
        jobs.create_namespaced_job(
            "default", {"spec": {"backoffLimit": 0, "template": {"spec": {"containers": [container]}}}}
        )
    assert [body["spec"]["backoffLimit"] for body in created] == [MOST_FAILED, 0]
    for body in created:  # so that a pod that fails says why
        (container,) = body["spec"]["template"]["spec"]["containers"]
        assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert limits == [(CONNECT_S, ANSWER_S)] * 2  # a cluster that does not answer holds no run up
    assert jobs.api_client == "client"


def test_lithops_hears_soon_that_a_job_is_done() -> None:
    def listed(namespace: str, **options: Any) -> dict[str, Any]:
        """:return: V1JobList"""
        return options

    brief = JobsApi(SimpleNamespace(list_namespaced_job=listed)).list_namespaced_job
    assert brief("default", timeout_seconds=10, watch=True) == {"timeout_seconds": WATCH_S, "watch": True}
    assert brief("default") == {}
    assert brief.__doc__ == listed.__doc__


def test_all_jobs_of_a_run_are_removed() -> None:
    backend = Backend()
    backend.jobs = ["a", "b", "c"]  # type: ignore[attr-defined]
    # Lithops' own loop takes each out of its list.
    backend.clear = lambda keys: [backend.deleted.append(key) or backend.jobs.remove(key) for key in keys]  # type: ignore[attr-defined]
    Pods(backend).remove_jobs()
    assert backend.deleted == ["a", "b", "c"]


def test_a_cluster_that_does_not_answer_keeps_no_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, done = Backend(), list[str]()
    backend.name, backend.jobs = "k8s", ["a"]  # type: ignore[attr-defined]

    def lost(name: str, _request_timeout: tuple[float, float], **_: Any) -> None:
        done.append("asked")
        raise OSError("no route to host")

    backend.batch_api.delete_namespaced_job = lost
    backend.clear = lambda keys: [backend.batch_api.delete_namespaced_job(name=key) for key in keys]  # type: ignore[attr-defined]
    executor = SimpleNamespace(
        compute_handler=SimpleNamespace(backend=backend), executor_id="1-0", storage=SimpleNamespace(bucket="b")
    )
    monkeypatch.setattr(cloud_functions, "deliveries_of", lambda executor: None)
    monkeypatch.setattr(cloud_functions, "n_notes", lambda *_: 1)
    monkeypatch.setattr(cloud_functions, "NOTES_POLL_S", 0.0)
    functions = cloud_functions.CloudFunctions(executor, 512)
    for n, order in ((0, ["removed"]), (1, ["removed"]), (1, ["removed", "asked"])):  # one of two has written its note
        functions.accepted(n)
        with functions.at_rest():
            done.append("removed")
        assert done == order
        done.clear()


class Review:
    """The cluster's word on rights, of which the user lacks ``missing``; None: it does not tell."""

    missing: str | None = ""

    def __init__(self, client: Any) -> None:
        self._client = client

    def create_self_subject_access_review(self, asked: Any, **limits: Any) -> Any:
        if self.missing is None:
            raise ValueError("not found")
        wanted = asked.spec["resourceAttributes"]
        return SimpleNamespace(status=SimpleNamespace(allowed=f"{wanted['verb']} {wanted['resource']}" != self.missing))


def test_a_right_that_is_missing_is_named_and_one_that_is_not_told_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    kubernetes = pytest.importorskip("kubernetes")
    monkeypatch.setattr(kubernetes.client, "AuthorizationV1Api", Review)
    for missing in ("", None):
        monkeypatch.setattr(Review, "missing", missing)
        Pods(Backend()).check_rights(is_known=False)
    monkeypatch.setattr(Review, "missing", "watch pods")
    with pytest.raises(ServiceError, match=r"^the user may not watch pods in the namespace default: a role must allow"):
        Pods(Backend()).check_rights(is_known=True)


@pytest.mark.parametrize(
    ("found", "is_known", "needed"),
    [
        ([pod("Running")], True, []),
        ([pod("Pending")], False, ["watch jobs"]),
        ([], True, ["watch pods"]),
        ([pod("Failed")], False, ["watch jobs", "watch pods", "delete jobs"]),
    ],
)
def test_only_what_a_launch_does_must_be_allowed(
    monkeypatch: pytest.MonkeyPatch, found: list[Any], is_known: bool, needed: list[str]
) -> None:
    kubernetes = pytest.importorskip("kubernetes")
    monkeypatch.setattr(kubernetes.client, "AuthorizationV1Api", Review)
    for right in ACTIONS:
        monkeypatch.setattr(Review, "missing", right)
        is_needed = right in {*ALWAYS, *needed}
        with pytest.raises(ServiceError, match=f"may not {right} in") if is_needed else contextlib.nullcontext():
            Pods(Backend(*found)).check_rights(is_known=is_known)


def test_a_user_who_may_not_list_pods_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    kubernetes = pytest.importorskip("kubernetes")
    monkeypatch.setattr(kubernetes.client, "AuthorizationV1Api", Review)
    monkeypatch.setattr(Review, "missing", "list pods")
    backend, error = Backend(), Exception("forbidden")
    error.status = 403  # type: ignore[attr-defined]

    def refuse(*_: Any, **__: Any) -> None:
        raise error

    backend.core_api.list_namespaced_pod = refuse
    with pytest.raises(ServiceError, match=r"^the user may not list pods"):
        Pods(backend).check_rights(is_known=True)


def test_an_image_of_another_version_is_refused() -> None:
    check_image("registry:5000/mlless:mine")
    check_image(f"registry/mlless:{tag_of(digest_here())}")
    with pytest.raises(JobError, match=r"runtime='r/mlless:mlless-0+': must be built again \(mlless-nb runtime build"):
        check_image(f"r/mlless:mlless-{'0' * 12}")


def test_an_image_with_another_python_is_refused() -> None:
    """Lithops itself would say so when the run's clock runs, and name a remedy of its own."""
    other = tag_of(digest_here()).replace(f"py3.{sys.version_info.minor}-", "py3.99-")
    here = rf"3\.{sys.version_info.minor}"
    said = rf"must be built again \(mlless-nb runtime build k8s\): it has Python 3\.99, and this is {here}"
    with pytest.raises(JobError, match=said):
        check_image(f"registry/mlless:{other}")


def test_only_clusters_have_pods() -> None:
    lambdas = SimpleNamespace(compute_handler=SimpleNamespace(backend=SimpleNamespace(name="aws_lambda")))
    assert pods.pods_of(lambdas) is None
    cluster = SimpleNamespace(name="k8s", rabbitmq_executor=False, core_api=None, batch_api=None)
    assert pods.pods_of(SimpleNamespace(compute_handler=SimpleNamespace(backend=cluster))) is not None
