"""The box's Kubernetes itself: a container has the memory and the processors of its limits, and no more."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.long

#: Runs a job whose pod carries out some Python, and prints how that ended.
RUN = """
import json, sys, time
from kubernetes import client, config
config.load_kube_config(sys.argv[1])
image, code, memory, cpu = sys.argv[2:]
limits = {"memory": memory, "cpu": cpu}
container = {"name": "one", "image": image, "command": ["python3"], "args": ["-c", code], "env": [],
             "resources": {"limits": limits, "requests": limits}, "terminationMessagePolicy": "FallbackToLogsOnError"}
spec = {"backoffLimit": 0, "activeDeadlineSeconds": 60, "template": {"spec": {"containers": [container]}}}
client.BatchV1Api().create_namespaced_job("default", {"metadata": {"name": "limits"}, "spec": spec})
ended = None
while ended is None:
    time.sleep(0.1)
    for pod in client.CoreV1Api().list_namespaced_pod("default", label_selector="job-name=limits").items:
        ended = pod.status.container_statuses[0].state.terminated if pod.status.container_statuses else None
client.BatchV1Api().delete_namespaced_job("limits", "default")
print(json.dumps([ended.reason, ended.exit_code, ended.message]))
"""


def ended(box: Any, image: str, code: str, memory: str, cpu: str) -> tuple[str, int, str | None]:
    """Why a container ended that carried ``code`` out, its exit code, and the end of its log."""
    said = box.python("-c", RUN, str(box.folder / "kubeconfig"), image, code, memory, cpu)
    reason, code, message = json.loads(said)
    return reason, code, message


def test_a_container_has_its_memory_and_its_share_of_the_processors(empty_box: Any, image: str) -> None:
    large = "b'x' * (200 << 20)"
    assert ended(empty_box, image, large, "128Mi", "1")[:2] == ("OOMKilled", 137)
    assert ended(empty_box, image, large, "512Mi", "1")[:2] == ("Completed", 0)
    burns = (
        "import sys, time\nbegan, used = time.monotonic(), time.process_time()\n"
        "while time.monotonic() - began < 2:\n    pass\n"
        "sys.exit(str((time.process_time() - used) / (time.monotonic() - began)))"
    )
    reason, code, message = ended(empty_box, image, burns, "128Mi", "250m")
    print("share of a core", message)
    assert (reason, code) == ("Error", 1)
    assert float(message or "") < 1.3 * 0.25
