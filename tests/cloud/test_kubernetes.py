"""Runs on Kubernetes in the box: an image built without Docker, the same model, and what cannot start is told."""

from __future__ import annotations

import json
import re
import sys
import time
from typing import Any

import pytest
from cloud.conftest import COMMAND, IMAGE, SETTLED_S, configuration, pods, trained

pytestmark = pytest.mark.long

#: A run that cannot start is told within so many seconds.
TOLD_S = 20.0


def checked(box: Any) -> list[str]:
    """The lines of `mlless-nb runtime check`."""
    words = ["-c", COMMAND, "runtime", "check", "--config", str(box.home / "lithops.json")]
    said, errors = box.user(sys.executable, *words).communicate(timeout=60)
    assert errors == ""
    return said.splitlines()


def test_three_workers_train(cluster: Any, image: str) -> None:
    from cloud.box import REDIS

    here = trained(cluster, backend="embedded", steps=100)
    run = trained(cluster, steps=100, backend=configuration(cluster, image), redis=REDIS, memory_mb=512)
    print(run["time_s"], run["whole_s"], run["told"], pods(cluster))
    assert (run.get("status"), run.get("steps")) == ("finished", 100), run
    assert run["digest"] == here["digest"]
    give_up_at = time.monotonic() + SETTLED_S
    while len(pods(cluster)) < 5 and time.monotonic() < give_up_at:
        time.sleep(0.1)
    assert [each["status"] for each in pods(cluster)] == [0] * 5  # what told what is in the image, and four functions
    assert cluster.ask(broken=True) == []


def test_what_is_configured_is_checked(cluster: Any, image: str) -> None:
    good = checked(cluster)
    assert [line.partition(":")[0] for line in good] == [
        f"ok   {name}" for name in ("configuration", "image", "cluster", "storage")
    ]
    assert "functions live 86400 s" in good[0]
    cluster.ask(deny=["create jobs"])
    assert "FAIL cluster: the user may not create jobs in the namespace default: a role must allow it" in checked(
        cluster
    )
    cluster.ask(deny=[])
    for image_there, remedy in (
        (f"{IMAGE}:mlless-{'0' * 12}", "must be built again (mlless-nb runtime build k8s)"),
        ("default", "runtime is not set, and Lithops' own image has no mlless_nb: mlless-nb runtime build k8s"),
    ):
        (cluster.home / "lithops.json").write_text(json.dumps(configuration(cluster, image_there)))
        (line,) = [line for line in checked(cluster) if line.startswith("FAIL")]
        assert line.startswith("FAIL image: ")
        assert remedy in line
    config = configuration(cluster, image)
    config["aws_s3"]["storage_bucket"] = "bucket-of-nobody"
    (cluster.home / "lithops.json").write_text(json.dumps(config))
    assert [line.partition(":")[0] for line in checked(cluster)][-1] == "FAIL storage"


def test_what_cannot_start_is_told_before_the_run(cluster: Any, image: str) -> None:
    from cloud.box import REDIS

    def refused(name: str) -> str:
        run = trained(cluster, steps=20, backend=configuration(cluster, name), redis=REDIS, memory_mb=512)
        assert run["whole_s"] < TOLD_S
        return str(run["refused"])

    said = refused(f"{IMAGE}:gone")
    assert said.startswith(
        "backend: the functions could not be deployed: the image registry.box.test/mlless:gone cannot"
    )
    assert "ImagePullBackOff" in said
    assert refused(f"{IMAGE}:mlless-{'0' * 12}").startswith(
        f"runtime='{IMAGE}:mlless-000000000000': must be built again"
    )
    cluster.ask(deny=["create jobs"])
    run = trained(cluster, steps=20, backend=configuration(cluster, image), redis=REDIS, memory_mb=512)
    assert run["whole_s"] < TOLD_S
    assert (run["status"], run["functions_usd"]) == ("failed", 0.0)
    assert re.search(r"could not be \w+: Kubernetes: 403 Forbidden: jobs is forbidden: [^\n]*$", run["reason"])
