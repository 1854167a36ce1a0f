"""A cloud that takes connections and does not answer is told of soon, as an error with the remedy."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import SimpleNamespace

import boto3
import pytest
from clouds.emulator import Aws

from mlless_nb.clouds import account
from mlless_nb.driver.backends import bucket
from mlless_nb.errors import ServiceError

#: Longest silence that a user may meet, seconds.
MOST_S = 20.0


@pytest.fixture
def silent(cloud: Aws, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The credentials of an account whose servers say nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.getsockname()[1]}")
        yield


def test_what_a_command_asks_first_gives_up(silent: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert account.TRIES * max(account.CONNECT_S, account.QUESTION_S) < MOST_S
    monkeypatch.setattr(account, "QUESTION_S", 0.01)
    with pytest.raises(ServiceError, match="network: sts:GetCallerIdentity got no answer from region 'us-east-1'"):
        account.open_account()
    opened = account.Account("us-east-1", "123456789012", "user", "arn:aws:iam::123456789012:user/me", boto3.Session())
    with pytest.raises(ServiceError, match="network: lambda:GetAccountSettings got no answer"):
        _ = opened.concurrency
    with pytest.raises(ServiceError, match="network: iam:ListRoles got no answer"):
        list(opened.pages("iam", "list_roles", "Roles"))


def test_what_a_run_asks_first_gives_up(silent: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert bucket.TRIES * max(bucket.CONNECT_S, bucket.ANSWER_S) < MOST_S
    monkeypatch.setattr(bucket, "ANSWER_S", 0.01)
    with pytest.raises(ServiceError, match="network: s3:GetBucketLocation got no answer from region 'us-east-1'"):
        bucket.require_bucket(SimpleNamespace(region="us-east-1", bucket="mlless-nb-objects"))  # type: ignore[arg-type]
