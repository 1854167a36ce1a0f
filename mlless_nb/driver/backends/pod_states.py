"""Why a pod of Kubernetes does not run, or has ended, as the cluster says of its container."""

from __future__ import annotations

from typing import Any

from .call_failures import Failure, last_error

#: Why a container waits that will not start by waiting.
HOPELESS = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError")
#: Why a container has ended whose memory was too small.
OUT_OF_MEMORY = "OOMKilled"


def unstartable(pod: Any) -> tuple[str, str] | None:
    """What cannot be done with the image of a pod, and why; None if nothing says that it cannot be started."""
    for container in pod.status.container_statuses or ():
        waiting = getattr(container.state, "waiting", None)
        if waiting is not None and waiting.reason in HOPELESS:
            why = f"{waiting.reason}: {waiting.message}" if waiting.message else str(waiting.reason)
            return f"the image {container.image} cannot be pulled or started", why
    return None


def no_room(pod: Any) -> str | None:
    """Why no node takes a pod, None if one does; another node may come."""
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return str(condition.message)
    return None


def error_of(pod: Any) -> tuple[str, str] | None:
    """The exception that ended the program of a pod, and its text; None if it runs, or was ended otherwise.

    A container that ends with an error leaves the end of its log as its message, if its job asks for that.
    """
    for container in pod.status.container_statuses or ():
        ended = getattr(container.state, "terminated", None)
        if ended is not None and ended.reason == OUT_OF_MEMORY:
            return "MemoryError", ""
        if ended is not None and ended.exit_code:
            return last_error((ended.message or "").splitlines())
    return None


def failure_of_pod(pod: Any, job: str) -> Failure | None:
    """Why a function of Lithops' ``job`` does not run and never will; None if nothing of its pod says so.

    Which call it was to carry out is told to a pod when it runs, and not to the cluster.
    """
    why = unstartable(pod) or error_of(pod)
    return None if why is None else Failure(job, None, *why)
