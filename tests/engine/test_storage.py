"""The same job with its objects in S3: a server of its own on loopback, reached through Lithops' own backend."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from engine.jobs import digest, finish, job
from moto.server import ThreadedMotoServer

from mlless_nb import Stop

BUCKET = "notebooks"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A client of an S3 server with one bucket."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "user",
        "AWS_SECRET_ACCESS_KEY": "planted-secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")
    client.create_bucket(Bucket=BUCKET)
    yield client
    server.stop()


def test_a_run_on_s3_is_the_same_and_leaves_only_the_packed_data(s3: Any) -> None:
    backend = {
        "lithops": {"backend": "localhost", "storage": "aws_s3"},
        "aws": {"access_key_id": "user", "secret_access_key": "planted-secret", "region": "us-east-1"},
        "aws_s3": {"storage_bucket": BUCKET, "region": "us-east-1"},
    }
    wanted = job(backend=backend, stop=Stop(steps=12), checkpoint_every=5)
    run = finish(wanted)
    assert run.status == "finished", run.reason
    assert run.cost.storage > 0
    assert digest(run) == digest(finish(job(stop=Stop(steps=12), checkpoint_every=5)))
    keys = [entry["Key"] for entry in s3.list_objects_v2(Bucket=BUCKET)["Contents"]]
    left = [key for key in keys if not key.startswith(("mlless-nb/datasets/", "lithops.runtimes/"))]
    assert left == []
    told = " ".join([repr(wanted), repr(run), run.report(), *(event.text for event in run.telemetry.state.events)])
    assert "planted-secret" not in told
