"""What the user of a Kubernetes cluster may do there, asked before anything is started."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

#: What Lithops does with a cluster: verb and resource; and what each launch does.
ACTIONS = ("create jobs", "list jobs", "watch jobs", "delete jobs", "list pods", "watch pods")
ALWAYS = ("create jobs", "list pods")
#: The groups of the resources.
GROUPS = {"jobs": "batch", "pods": ""}
#: The rights that a role must give, in words.
NEEDED = "create, list, watch and delete jobs, and list and watch pods"


def missing_right(backend: Any, limits: tuple[float, float], actions: Sequence[str] = ACTIONS) -> str:
    """The first right that the user lacks, in one line with the remedy; "" if none is missing.

    Parameters
    ----------
    backend : lithops.serverless.backends.k8s.KubernetesBackend
    limits : (float, float)
        Longest wait for a connection to the cluster and for an answer, seconds.
    actions : sequence of str
        What is to be done, of `ACTIONS`.

    Raises
    ------
    Exception
        Of Kubernetes' client, if the cluster does not answer.
    """
    from kubernetes import client

    review = client.AuthorizationV1Api(backend.core_api.api_client)

    def is_allowed(action: str) -> bool:
        verb, resource = action.split()
        wanted = {"verb": verb, "resource": resource, "group": GROUPS[resource], "namespace": backend.namespace}
        asked = client.V1SelfSubjectAccessReview(spec={"resourceAttributes": wanted})
        return bool(review.create_self_subject_access_review(asked, _request_timeout=limits).status.allowed)

    with ThreadPoolExecutor(len(actions)) as pool:  # a run waits for the answers
        allowed = list(pool.map(is_allowed, actions))
    for action, is_one in zip(actions, allowed, strict=True):
        if not is_one:
            where = f"in the namespace {backend.namespace}"
            return f"the user may not {action} {where}: a role must allow the user to {NEEDED} there"
    return ""
