"""What the user of a Kubernetes cluster may do there, asked before anything is started."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

#: What Lithops does with a cluster: verb, resource and its group.
ACTIONS = (
    *((verb, "jobs", "batch") for verb in ("create", "list", "watch", "delete")),
    *((verb, "pods", "") for verb in ("list", "watch")),
)
#: The rights that a role must give, in words.
NEEDED = "create, list, watch and delete jobs, and list and watch pods"


def missing_right(backend: Any, limits: tuple[float, float]) -> str:
    """The first right that the user lacks, in one line with the remedy; "" if none is missing.

    Parameters
    ----------
    backend : lithops.serverless.backends.k8s.KubernetesBackend
    limits : (float, float)
        Longest wait for a connection to the cluster and for an answer, seconds.

    Raises
    ------
    Exception
        Of Kubernetes' client, if the cluster does not answer.
    """
    from kubernetes import client

    review = client.AuthorizationV1Api(backend.core_api.api_client)

    def is_allowed(action: tuple[str, str, str]) -> bool:
        wanted = dict(zip(("verb", "resource", "group"), action, strict=True), namespace=backend.namespace)
        asked = client.V1SelfSubjectAccessReview(spec={"resourceAttributes": wanted})
        return bool(review.create_self_subject_access_review(asked, _request_timeout=limits).status.allowed)

    with ThreadPoolExecutor(len(ACTIONS)) as pool:  # a run waits for the answers
        allowed = list(pool.map(is_allowed, ACTIONS))
    for (verb, resource, _), is_one in zip(ACTIONS, allowed, strict=True):
        if not is_one:
            where = f"in the namespace {backend.namespace}"
            return f"the user may not {verb} {resource} {where}: a role must allow the user to {NEEDED} there"
    return ""
