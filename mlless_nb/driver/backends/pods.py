"""What Lithops leaves open on Kubernetes: it waits without end for pods that cannot start, or asks one that is gone."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from ...errors import JobError, ServiceError
from ...function.package_digest import digest_here
from .call_failures import Failure
from .cluster_rights import ALWAYS, missing_right
from .pod_states import error_of, failure_of_pod, no_room, unstartable

#: Longest wait for a pod to run, which includes pulling its image, and between two polls, seconds.
START_S, PODS_POLL_S = 300.0, 0.5
#: Longest wait for a connection to the cluster, and for an answer, seconds.
CONNECT_S, ANSWER_S = 5.0, 15.0
#: Phases of a pod that runs, or will.
ALIVE = {"Running", "Pending"}
#: The cluster's status for what a user may not do.
FORBIDDEN = 403
#: Pods of a run that may fail before the cluster ends the others. It starts another one for each, which finds no call
#: to carry out and ends: the run itself invokes a lost function again.
MOST_FAILED = 1000
#: Longest that one question for the state of a job lasts, seconds: Lithops looks at the answer when it is over.
WATCH_S = 1
#: The tag of an image that `mlless-nb runtime build` has built: its Python, and part of the digest of its mlless_nb.
TAG = re.compile(r"mlless-(?:py(3\.\d+)-)?([0-9a-f]{12})")


def check_image(image: str) -> None:
    """Raise JobError if ``image`` was built with another version of Python or mlless_nb than this."""
    tag, python = TAG.fullmatch(image.rpartition(":")[2]), f"3.{sys.version_info.minor}"
    if tag is None:
        return
    again = "built again (mlless-nb runtime build k8s): it has"
    if tag[1] not in (None, python):
        raise JobError("runtime", image, f"{again} Python {tag[1]}, and this is {python}")
    if not digest_here().startswith(tag[2]):
        raise JobError("runtime", image, f"{again} another version of mlless_nb")


def cause_of(error: Exception) -> str:
    """An error of the cluster in one line; of another kind, its text."""
    if hasattr(error, "status") and hasattr(error, "reason"):
        message = ""
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            message = json.loads(error.body)["message"]  # type: ignore[attr-defined]
        return f"Kubernetes: {error.status} {error.reason}{f': {message}' if message else ''}"
    return str(error)


class JobsApi:
    """Kubernetes' API of jobs, as Lithops calls it, whose functions outlive one another, and which says soon what is.

    Lithops asks for jobs that fail with their first pod, and with a job the cluster ends all of its pods.

    Parameters
    ----------
    api : kubernetes.client.BatchV1Api
    error_in : callable
        Why a pod of a job has failed, by the job's name; "" if none has, or nothing is known.
    """

    def __init__(self, api: Any, error_in: Callable[[str], str] = lambda job: "") -> None:
        self._api, self._error_in = api, error_in
        #: A job that Lithops deletes as soon as it has failed, and why its pod did.
        self.watched, self.error = "", ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    @property
    def list_namespaced_job(self) -> Callable[..., Any]:
        """The call of that name, whose watches are short."""
        whole = self._api.list_namespaced_job

        @functools.wraps(whole)  # a watch reads in its documentation what it returns
        def brief(*words: Any, **options: Any) -> Any:
            if "timeout_seconds" in options:
                options["timeout_seconds"] = min(options["timeout_seconds"], WATCH_S)
            return whole(*words, **options)

        return brief

    def delete_namespaced_job(self, **options: Any) -> Any:
        """Delete a job, within a deadline; with it goes the pod that says why it failed."""
        if options["name"] == self.watched:
            with contextlib.suppress(Exception):
                self.error = self._error_in(self.watched)
        return self._api.delete_namespaced_job(_request_timeout=(CONNECT_S, ANSWER_S), **options)

    def create_namespaced_job(self, namespace: str, body: dict[str, Any], **options: Any) -> Any:
        """Create a job, within a deadline, whose pods tell the end of their log if they fail.

        Lithops' other jobs have one pod, and no other one replaces it.
        """
        self.error, spec = "", body["spec"]
        (container,) = spec["template"]["spec"]["containers"]
        container["terminationMessagePolicy"] = "FallbackToLogsOnError"
        given = {each["name"]: each.get("value") for each in container["env"]}
        if given.get("ACTION") == "run_job":
            spec["backoffLimit"] = MOST_FAILED
        limits = {"_request_timeout": (CONNECT_S, ANSWER_S)} | options
        return self._api.create_namespaced_job(namespace=namespace, body=body, **limits)


class Pods:
    """Those of one run.

    Parameters
    ----------
    backend : lithops.serverless.backends.k8s.KubernetesBackend
    patience_s : float
        Longest wait for a pod to run, seconds.
    """

    def __init__(self, backend: Any, patience_s: float = START_S) -> None:
        self._backend, self._patience_s = backend, patience_s
        backend.batch_api = self._jobs = JobsApi(backend.batch_api, self._error_in)

    def check_rights(self, *, is_known: bool) -> None:
        """Raise ServiceError if the user may not do what this launch does in the cluster, by the cluster's own word.

        Parameters
        ----------
        is_known : bool
            Whether the image needs no `deploy`.
        """
        missing = ""
        with contextlib.suppress(Exception):  # one that does not tell refuses what comes next, or does not
            missing = missing_right(self._backend, (CONNECT_S, ANSWER_S), self._actions(is_known=is_known))
        if missing:
            raise ServiceError(missing)

    def _actions(self, *, is_known: bool) -> list[str]:
        """What a launch does: Lithops watches a job that looks at an image, and the pod that is to assign calls."""
        try:
            phases = self._phases(self._backend.master_name)
        except Exception as error:
            if getattr(error, "status", None) != FORBIDDEN:
                raise
            return list(ALWAYS)  # among them is what is refused
        watched = ([] if is_known else ["watch jobs"]) + ([] if ALIVE & phases else ["watch pods"])
        return [*ALWAYS, *watched, *(["delete jobs"] if phases and not ALIVE & phases else [])]

    def deploy(self, image: str, act: Callable[[], Any]) -> None:
        """Let Lithops ask the image in a pod what it has.

        Raises
        ------
        ServiceError
            If the pod cannot run.
        """
        self._jobs.watched = f"{self._backend._format_job_name(image, 128)}-meta"  # Lithops' name
        self._watched(act, self._jobs.watched)

    def start_master(self, image: str) -> None:
        """Start the pod that assigns calls, unless it runs: before the run's clock does, and again if it was lost.

        Raises
        ------
        ServiceError
            If it cannot run.
        """
        name = self._backend.master_name

        def start() -> None:  # Lithops would take the address of one that has ended, or has none yet
            while ALIVE & (phases := self._phases(name)) == {"Pending"}:
                time.sleep(PODS_POLL_S)
            if phases and "Running" not in phases:
                self._remove(name)
            self._backend._start_master(image)

        self._watched(start, name)

    def failures(self) -> list[Failure]:
        """Functions of this run whose pods cannot start or have failed, as far as the cluster tells."""
        found: list[Failure | None] = []
        with contextlib.suppress(Exception):  # Lithops' own notes are left
            for key in self._backend.jobs:
                found += [failure_of_pod(pod, key) for pod in self._of(f"lithops-{key.lower()}")]  # Lithops' name
        return [failure for failure in found if failure is not None]

    def remove_jobs(self) -> None:
        """Delete the jobs of this run, with the pods that are left of them, if the cluster answers."""
        with contextlib.suppress(_GivenUp, Exception):  # nobody asks this cluster any more, or it cannot be reached
            self._backend.clear(list(self._backend.jobs))

    def _watched(self, act: Callable[[], Any], job: str) -> None:
        """Do ``act``, which waits for the pod of ``job``, unless that cannot run."""
        errors: list[Exception] = []

        def run() -> None:
            with contextlib.suppress(_GivenUp):
                try:
                    act()
                except Exception as error:
                    errors.append(error)

        thread = threading.Thread(target=run, name="mlless-pods", daemon=True)
        thread.start()
        give_up_at, why = time.monotonic() + self._patience_s, ""
        while True:
            thread.join(PODS_POLL_S)
            if not thread.is_alive():
                break
            why, is_hopeless = self._trouble(job)
            if is_hopeless or time.monotonic() > give_up_at:
                self._abandon(job)
                raise ServiceError(why or f"its pod did not run within {self._patience_s:.0f} s")
        if errors:
            error = self._jobs.error
            raise ServiceError(f"the image does not work: {error}" if error else cause_of(errors[0])) from None

    def _of(self, job: str) -> list[Any]:
        limits = {"_request_timeout": (CONNECT_S, ANSWER_S)}
        listed = self._backend.core_api.list_namespaced_pod(
            self._backend.namespace, label_selector=f"job-name={job}", **limits
        )
        return list(listed.items)

    def _phases(self, job: str) -> set[str]:
        return {pod.status.phase for pod in self._of(job)}

    def _error_in(self, job: str) -> str:
        errors = filter(None, map(error_of, self._of(job)))
        return ": ".join(filter(None, next(errors, ())))

    def _trouble(self, job: str) -> tuple[str, bool]:
        """Why the pod of ``job`` does not run, "" if nothing is known; and whether waiting is of no use."""
        with contextlib.suppress(Exception):  # what asks for it meets the same error
            for pod in self._of(job):
                if (why := unstartable(pod)) is not None:
                    return ": ".join(why), True
                if (why_none := no_room(pod)) is not None:
                    return f"no node has room for its pod: {why_none}", False
        return "", False

    def _remove(self, job: str) -> None:
        """Delete ``job`` and wait until its pods are gone."""
        with contextlib.suppress(Exception):  # gone already
            self._backend.batch_api.delete_namespaced_job(
                name=job, namespace=self._backend.namespace, propagation_policy="Background"
            )
        give_up_at = time.monotonic() + self._patience_s
        while self._of(job) and time.monotonic() < give_up_at:
            time.sleep(PODS_POLL_S)

    def _abandon(self, job: str) -> None:
        """Delete ``job``, and end the thread that waits for it: Lithops' loops take every other error for a pause."""
        with contextlib.suppress(Exception):
            self._backend.batch_api.delete_namespaced_job(
                name=job, namespace=self._backend.namespace, propagation_policy="Background"
            )
        for api in (self._backend.batch_api, self._backend.core_api):
            api.api_client.call_api = _ended


class _GivenUp(BaseException):
    """Ends a thread that waits for a pod; no Exception, since Lithops goes on after these."""


def _ended(*_: Any, **__: Any) -> None:
    raise _GivenUp


def pods_of(executor: Any) -> Pods | None:
    """The pods of ``executor``; None on backends without."""
    backend = getattr(executor.compute_handler, "backend", None) or executor.compute_handler
    is_cluster = getattr(backend, "name", "") == "k8s" and not getattr(backend, "rabbitmq_executor", False)
    return Pods(backend) if is_cluster and hasattr(backend, "core_api") else None
