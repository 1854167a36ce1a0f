"""`mlless-nb deploy aws` where something is deployed: what it keeps of that, and what it makes again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import boto3
import pytest
from clouds.emulator import Aws

from mlless_nb.driver.backends import deployed

Command = Callable[..., tuple[int, str, str]]
SIZE = ("--memory", "512")


def deployed_here(run: Command, *words: str) -> deployed.Profile:
    status, _, errors = run("deploy", "aws", *words)
    assert (status, errors) == (0, "")
    profile = deployed.find("aws_lambda")
    assert profile is not None
    return profile


@pytest.mark.long
def test_the_redis_of_before_is_kept_until_another_one_or_none_is_given(
    cloud: Aws, run: Command, redis_url: str
) -> None:
    other = redis_url.replace("127.0.0.1", "localhost")
    deployed_here(run, *SIZE, "--redis", redis_url, "--redis-for-functions", other)
    status, said, _ = run("deploy", "aws", "--memory", "1024")
    assert status == 0
    assert f"redis: {redis_url}, as before; --redis none leaves it out\n" in said
    assert deployed.servers_of("aws_lambda") == {"redis": redis_url, "redis_for_functions": other}
    for memory in (512, 1024):
        assert deployed.link_of("aws_lambda", memory, redis_url) is not None
    assert run("doctor")[0] == 0

    deployed_here(run, *SIZE, "--redis-for-functions", redis_url)
    assert deployed.servers_of("aws_lambda") == {"redis": redis_url, "redis_for_functions": redis_url}
    deployed_here(run, *SIZE, "--redis", other)  # the address for functions was that of the one before
    assert deployed.servers_of("aws_lambda") == {"redis": other}
    for words in (("--redis", "none"), ()):
        profile = deployed_here(run, *SIZE, *words)
        assert (profile.redis, profile.redis_for_functions, profile.links) == (None, None, {})


def test_the_redis_of_another_account_is_not_taken_over(cloud: Aws, run: Command, redis_url: str) -> None:
    """Functions of this one would be sent its password."""
    profile = deployed_here(run, *SIZE, "--redis", redis_url)
    dataclasses.replace(profile, account="210987654321").write()
    assert deployed_here(run, *SIZE).redis is None


def test_an_address_for_functions_alone_is_refused(cloud: Aws, run: Command) -> None:
    for words in ((), ("--redis", "none")):
        status, _, errors = run("deploy", "aws", *words, "--redis-for-functions", "rediss://other.example")
        assert (status, errors) == (1, "redis_for_functions='rediss://other.example': must be given with --redis\n")


@pytest.mark.long
def test_a_dry_run_says_what_would_be_made_again(cloud: Aws, run: Command) -> None:
    """Functions hold on to their version of the layer: those of one that is gone are none of another one's."""
    profile = deployed_here(run, *SIZE)
    name, number = profile.layer.split(":")[-2:]
    there = cloud.names()
    boto3.client("lambda").delete_layer_version(LayerName=name, VersionNumber=int(number))
    _, said, _ = run("deploy", "aws", "--dry-run", *SIZE)
    assert [line.split()[1] for line in said.splitlines() if line.startswith("new ")] == ["layer", "function"]
    again = deployed_here(run, *SIZE)
    assert again.layer != profile.layer
    (function,) = boto3.client("lambda").list_functions()["Functions"]
    assert [each["Arn"] for each in function["Layers"]] == [again.layer]
    assert cloud.names() == there


@pytest.mark.long
def test_functions_whose_role_is_gone_are_made_again(cloud: Aws, run: Command) -> None:
    """A new role of the same name is another one: AWS would not start them, since they have an environment."""
    profile = deployed_here(run, *SIZE)
    client, (name,) = boto3.client("lambda"), cloud.names()["functions"]
    function = client.get_function(FunctionName=name)["Configuration"]["FunctionArn"]
    client.tag_resource(Resource=function, Tags={"from": "before"})
    assert deployed_here(run, *SIZE) == profile
    assert "from" in client.get_function(FunctionName=name)["Tags"]
    role = profile.role.rpartition("/")[2]
    boto3.client("iam").delete_role_policy(RoleName=role, PolicyName="mlless-nb-function")
    boto3.client("iam").delete_role(RoleName=role)
    assert deployed_here(run, *SIZE) == profile
    assert "from" not in client.get_function(FunctionName=name)["Tags"]
