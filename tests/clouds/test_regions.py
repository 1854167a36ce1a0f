"""Regions whose part of AWS is another one: in China, and of the US government."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import boto3
import lithops
import pytest
from clouds.emulator import Aws

from mlless_nb.clouds import policies
from mlless_nb.driver.backends import deployed
from mlless_nb.driver.backends.cloud_functions import CloudFunctions
from mlless_nb.stateless import nested

Command = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("region", "part"), [("cn-north-1", "aws-cn"), pytest.param("us-gov-west-1", "aws-us-gov", marks=pytest.mark.long)]
)
def test_names_are_those_of_the_regions_part_of_aws(
    cloud: Aws, run: Command, monkeypatch: pytest.MonkeyPatch, region: str, part: str
) -> None:
    def resources(policy: dict[str, Any]) -> set[str]:
        found = [each["Resource"] for each in policy["Statement"]]
        names = [name for each in found for name in ([each] if isinstance(each, str) else each)]
        return {":".join(name.split(":")[:2]) for name in names if name != "*"}

    monkeypatch.setenv("AWS_DEFAULT_REGION", region)
    there = cloud.names()
    status, _, errors = run("deploy", "aws", "--memory", "512")
    assert (status, errors) == (0, "")
    profile = deployed.find("aws_lambda")
    assert profile is not None
    assert {":".join(arn.split(":")[:2]) for arn in (profile.role, profile.layer)} == {f"arn:{part}"}
    name = profile.role.rpartition("/")[2]
    policy = boto3.client("iam").get_role_policy(RoleName=name, PolicyName="mlless-nb-function")["PolicyDocument"]
    assert resources(policy) == {f"arn:{part}"}
    assert run("doctor")[0] == 0
    status, said, _ = run("policy", "aws", "--region", region)
    assert resources(json.loads(said)) == {f"arn:{part}"} == resources(policies.user_policy(partition=part))
    assert run("remove", "aws", "--yes")[0] == 0
    assert cloud.names() == there


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("cn-north-1", "lambda.cn-north-1.amazonaws.com.cn"),
        ("us-gov-west-1", "lambda.us-gov-west-1.amazonaws.com"),
        ("eu-west-1", "lambda.eu-west-1.amazonaws.com"),
    ],
)
def test_functions_are_invoked_at_the_host_of_their_region(
    cloud: Aws, monkeypatch: pytest.MonkeyPatch, region: str, host: str
) -> None:
    """By the notebook, and by functions."""
    from lithops.serverless.backends.aws_lambda.aws_lambda import AWSLambdaBackend

    monkeypatch.delenv("AWS_ENDPOINT_URL")

    def executor(**_: Any) -> Any:
        known = {"account_id": "123456789012", "user_id": "AIDAUSER", "user_agent": "test"}
        backend = AWSLambdaBackend(known | {"region": region, "execution_role": "role"}, None)
        parts = {name: SimpleNamespace(stop=lambda: None) for name in ("job_monitor", "invoker")}
        invoked = SimpleNamespace(map=lambda *_, **__: asked.append(backend.host), **parts)
        invoked.compute_handler, invoked.backend = SimpleNamespace(backend=backend), "aws_lambda"
        return invoked

    asked: list[str] = []
    made = executor()
    CloudFunctions(made, 512)
    made.map()
    monkeypatch.setattr(lithops, "FunctionExecutor", executor)
    nested.invoke(print, ["{}"], "w0", 512)
    assert asked == [host, host]
