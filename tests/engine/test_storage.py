"""The same job with its objects in S3: a server of its own on loopback, reached through Lithops' own backend."""

from __future__ import annotations

from typing import Any

import pytest
from engine.jobs import digest, finish, job
from servers import S3_BACKEND, S3_BUCKET

from mlless_nb import Stop


@pytest.mark.long
def test_a_run_on_s3_is_the_same_and_leaves_only_the_packed_data(s3: Any) -> None:
    wanted = job(backend=S3_BACKEND, stop=Stop(steps=12), checkpoint_every=5)
    run = finish(wanted)
    assert run.status == "finished", run.reason
    assert run.cost.storage > 0
    assert digest(run) == digest(finish(job(stop=Stop(steps=12), checkpoint_every=5)))
    keys = [entry["Key"] for entry in s3.list_objects_v2(Bucket=S3_BUCKET)["Contents"]]
    left = [key for key in keys if not key.startswith(("mlless-nb/datasets/", "lithops.runtimes/"))]
    assert left == []
    told = " ".join([repr(wanted), repr(run), run.report(), *(event.text for event in run.telemetry.state.events)])
    assert "planted-secret" not in told
