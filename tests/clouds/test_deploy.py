"""`mlless-nb deploy aws` and `remove aws` on an emulated account: what is made, that it all goes, what is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from clouds.emulator import Aws

from mlless_nb.clouds import lithops_lambda, policies, resources
from mlless_nb.clouds.account import open_account
from mlless_nb.driver.backends import deployed
from mlless_nb.driver.backends.launcher import LithopsLauncher
from mlless_nb.driver.launch import launch_plan
from mlless_nb.errors import ServiceError
from mlless_nb.job.sync import BSP

Command = Callable[..., tuple[int, str, str]]
NOTHING: dict[str, list[str]] = {"functions": [], "layers": [], "roles": [], "buckets": [], "log groups": []}


def deployed_here(run: Command, *words: str) -> deployed.Profile:
    status, _, errors = run("deploy", "aws", *words)
    assert (status, errors) == (0, "")
    profile = deployed.find("aws_lambda")
    assert profile is not None
    return profile


def test_a_deployment_is_tagged_and_one_command_removes_it_all(cloud: Aws, run: Command) -> None:
    profile = deployed_here(run)
    there = cloud.names()
    assert [len(names) for names in there.values()] == [2, 1, 1, 1, 2]
    client = boto3.client("lambda")
    for name in there["functions"]:
        assert len(name) <= 64
        found = client.get_function(FunctionName=name)
        assert resources.TAG in found["Tags"]
        assert found["Configuration"]["Timeout"] == deployed.LIFETIME_S
        assert [each["Arn"] for each in found["Configuration"]["Layers"]] == [profile.layer]
        assert client.get_function_event_invoke_config(FunctionName=name)["MaximumRetryAttempts"] == 0
    assert resources.TAG in {
        each["Key"] for each in boto3.client("iam").get_role(RoleName=there["roles"][0])["Role"]["Tags"]
    }
    assert resources.TAG in {
        each["Key"] for each in boto3.client("s3").get_bucket_tagging(Bucket=profile.bucket)["TagSet"]
    }
    for group in boto3.client("logs").describe_log_groups()["logGroups"]:
        assert group["retentionInDays"] == resources.LOG_DAYS
        assert resources.TAG in boto3.client("logs").list_tags_log_group(logGroupName=group["logGroupName"])["tags"]

    status, said, _ = run("remove", "aws", "--dry-run")
    assert status == 0
    assert said.endswith("dry run: nothing was removed\n")
    assert cloud.names() == there
    status, _, errors = run("remove", "aws")  # nobody is there to be asked
    assert (status, cloud.names()) == (1, there)
    assert "--yes" in errors

    status, said, _ = run("remove", "aws", "--yes")
    assert status == 0
    assert cloud.names() == NOTHING
    assert deployed.find("aws_lambda") is None
    status, said, _ = run("remove", "aws")
    assert (status, said) == (0, "account 123456789012 has nothing of mlless_nb in us-east-1\n")


def test_a_dry_run_says_what_would_be_made_and_makes_nothing(cloud: Aws, run: Command) -> None:
    status, said, _ = run("deploy", "aws", "--dry-run", "--memory", "512")
    assert status == 0
    assert cloud.names() == NOTHING
    assert deployed.find("aws_lambda") is None
    kinds = [line.split()[1] for line in said.splitlines() if line.startswith("new ")]
    assert kinds == ["bucket", "role", "layer", "function"]
    deployed_here(run, "--memory", "512")
    _, said, _ = run("deploy", "aws", "--dry-run", "--memory", "512")
    assert [line.split()[0] for line in said.splitlines() if line.split()[0] in ("new", "there")] == ["there"] * 4


def test_deploying_again_makes_only_what_is_missing(cloud: Aws, run: Command) -> None:
    profile = deployed_here(run, "--memory", "512")
    first = cloud.names()
    (name,) = first["functions"]
    boto3.client("lambda").delete_function(FunctionName=name)
    boto3.client("iam").delete_role_policy(RoleName=first["roles"][0], PolicyName="mlless-nb-function")
    assert deployed_here(run, "--memory", "512") == profile
    assert cloud.names() == first
    policy = boto3.client("iam").get_role_policy(RoleName=first["roles"][0], PolicyName="mlless-nb-function")
    assert policy["PolicyDocument"] == policies.function_policy("123456789012", "us-east-1", profile.bucket)


def test_what_others_made_stays(cloud: Aws, run: Command) -> None:
    """Also a bucket of our name that has not our tag."""
    name = resources.bucket_of("123456789012", "us-east-1")
    boto3.client("s3").create_bucket(Bucket=name)
    boto3.client("logs").create_log_group(logGroupName="/aws/lambda/mlless-other")
    status, said, _ = run("remove", "aws", "--yes")
    assert (status, said) == (0, "account 123456789012 has nothing of mlless_nb in us-east-1\n")
    assert cloud.names() == NOTHING | {"buckets": [name], "log groups": ["/aws/lambda/mlless-other"]}


@pytest.mark.parametrize("region", ["us-east-1", "eu-west-1"])
def test_a_bucket_of_others_is_not_taken_over(
    cloud: Aws, run: Command, monkeypatch: pytest.MonkeyPatch, region: str
) -> None:
    """In us-east-1, S3 lets one make a bucket that one has. An empty one is what was left of an interrupted command."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", region)
    name, client = resources.bucket_of("123456789012", region), boto3.client("s3")
    elsewhere = {"CreateBucketConfiguration": {"LocationConstraint": region}} if region != "us-east-1" else {}
    client.create_bucket(Bucket=name, **elsewhere)
    client.put_object(Bucket=name, Key="theirs", Body=b"theirs")
    status, _, errors = run("deploy", "aws")
    assert status == 1
    assert errors.startswith(f"bucket: {name} is there, holds objects and has no tag mlless-nb")
    assert run("remove", "aws", "--yes")[0] == 0
    assert client.get_object(Bucket=name, Key="theirs")["Body"].read() == b"theirs"
    client.delete_object(Bucket=name, Key="theirs")
    assert deployed_here(run).bucket == name
    assert run("remove", "aws", "--yes")[0] == 0
    assert cloud.names() == NOTHING


def test_a_bucket_that_cannot_be_tagged_does_not_stay(
    cloud: Aws, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`remove` would leave it, and a second `deploy` could not make it."""
    policy = policies.user_policy()
    for statement in policy["Statement"]:
        statement["Action"] = [each for each in statement["Action"] if each != "s3:PutBucketTagging"]
    with monkeypatch.context() as patch:
        for name, value in cloud.enforce(policy).items():
            patch.setenv(name, value)
        status, _, errors = run("deploy", "aws")
    assert (status, errors.split(" is ")[0]) == (1, "permission: s3:PutBucketTagging")
    cloud._post("reset-auth", b"inf")
    assert cloud.names() == NOTHING


def test_deploying_again_closes_the_bucket_again(cloud: Aws, run: Command) -> None:
    bucket, client = deployed_here(run, "--memory", "512").bucket, boto3.client("s3")
    client.delete_public_access_block(Bucket=bucket)
    deployed_here(run, "--memory", "512")
    assert set(client.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"].values()) == {True}


def test_functions_of_another_size_stay_in_the_profile(cloud: Aws, run: Command) -> None:
    """A job that is told to deploy its size takes none away from others."""
    deployed_here(run, "--memory", "512")
    assert deployed_here(run, "--memory", "1024").memory_mb == [512, 1024]
    for name in cloud.names()["functions"]:
        boto3.client("lambda").delete_function(FunctionName=name)
    assert deployed_here(run, "--memory", "256").memory_mb == [256]


def test_lithops_finds_the_deployment_and_makes_nothing_of_its_own(cloud: Aws, run: Command) -> None:
    """Neither a layer nor a function, nor an invocation that asks what is in the runtime, which moto could not run."""
    profile = deployed_here(run, "--memory", "512")
    there = cloud.names()
    launcher = LithopsLauncher("aws_lambda", 4, 512)
    try:
        assert launcher.lifetime_s == deployed.LIFETIME_S
        assert launcher.place == ("aws_s3", profile.bucket)
        launcher.prepare()
        noted = launcher._executor.invoker.select_runtime("A000", 512)
        assert noted["runtime_timeout"] == deployed.LIFETIME_S
        known = dict(map(tuple, noted["preinstalls"]))
        assert {"mlless_nb", "lithops", "thing", "json"} <= set(known)
        backend = launcher._executor.compute_handler.backend
        name = backend._format_function_name(profile.runtime, 512)
        assert [name] == there["functions"]
        assert backend._get_layer(profile.runtime) == profile.layer
    finally:
        launcher.close()
    assert cloud.names() == there


@pytest.mark.long
@pytest.mark.parametrize("status", [202, 403])
def test_an_invocation_that_is_refused_fails_the_launch(cloud: Aws, run: Command, status: int) -> None:
    """Lithops sends it in a thread whose failure it tells nobody."""
    deployed_here(run, "--memory", "512")
    launcher = LithopsLauncher("aws_lambda", 4, 512)
    answer = SimpleNamespace(
        status_code=status, text='{"Message": "not authorized"}', headers={"x-amzn-RequestId": "1"}
    )
    sent: list[Any] = []
    try:
        assert launcher.cloud is not None
        deliveries = launcher.cloud._deliveries
        assert deliveries is not None
        deliveries._session = SimpleNamespace(send=lambda request: sent.append(request) or answer)
        if status == 202:
            launcher.invoke(["{}", "{}"])
            assert launcher.newest.endswith("-M000")
        else:
            with pytest.raises(ServiceError, match="AWS Lambda accepted 0 of 2: 403: not authorized"):
                launcher.invoke(["{}", "{}"])
        assert launcher.cloud.failures() == []
    finally:
        launcher.close()
    assert len(sent) == 2


def test_a_quota_below_the_smallest_run_is_refused_before_anything_is_made(cloud: Aws, run: Command) -> None:
    cloud.concurrency = 2
    status, _, errors = run("deploy", "aws")
    assert status == 1
    assert errors.startswith(
        "quota: the account runs 2 functions at once in us-east-1, and the smallest run has 3: ask"
    )
    assert cloud.names() == NOTHING


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--memory", "64"], "memory=64: must be 128 to 10240 MB"),
        (["--redis", "redis://:pw@redis.example"], "redis='redis://:***@redis.example': must be rediss://"),
        (["--redis", "rediss://redis.example/?password=pw"], "must be a URL with its password before the host"),
        (["--redis", "rediss://:${NOT_SET}@redis.example"], "there is no environment variable NOT_SET"),
        (["--redis", "rediss://:pw@127.0.0.1:1"], "Redis at rediss://:***@127.0.0.1:1 does not answer"),
        (["--redis", "rediss://:pw@[::1"], "redis='rediss://:***@[::1': must be redis://[:password@]host:6379/0"),
        (["--region", "us east"], "region: none is set, or it is none: give --region"),
    ],
)
def test_bad_input_is_one_line_and_makes_nothing(cloud: Aws, run: Command, words: list[str], line: str) -> None:
    status, _, errors = run("deploy", "aws", *words)
    assert status == 1
    assert line in errors
    assert errors.count("\n") == 1
    assert cloud.names() == NOTHING


def test_without_a_region_or_credentials_is_one_line(cloud: Aws, run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert run("deploy", "aws")[2].startswith("region: none is set")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert run("deploy", "aws")[2].startswith("credentials: boto3 finds no complete ones")
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert run("remove", "aws")[2].startswith("credentials: boto3 finds no complete ones")


def test_a_password_is_not_written_down(cloud: Aws, run: Command, redis_url: str, tmp_path: Path) -> None:
    """But where to find it is; jobs that name no Redis use this one."""
    secret = redis_url.replace("redis://", "redis://:planted-secret@")
    boto = boto3.client("lambda")
    status, _, errors = run("deploy", "aws", "--memory", "512", "--redis", secret)
    if status:  # this Redis has no password
        assert "refuses the user or the password" in errors
        status, _, errors = run("deploy", "aws", "--memory", "512", "--redis", redis_url)
    assert (status, errors) == (0, "")
    assert boto.list_functions()["Functions"]
    assert deployed.servers_of("aws_lambda") == {"redis": redis_url}
    assert "planted-secret" not in "".join(path.read_text() for path in (tmp_path / "config").rglob("*.json"))
    assert deployed.servers_of("embedded") == {}


def test_functions_measure_their_link_to_redis(cloud: Aws, run: Command, redis_url: str) -> None:
    """Each size of them; the notebook's own link is another one."""
    assert deployed.link_of("aws_lambda", 512, redis_url) is None
    profile = deployed_here(run, "--memory", "512", "--memory", "1024", "--redis", redis_url)
    assert list(profile.links) == ["512", "1024"]
    assert [each["redis"] for each in cloud.asked] == [redis_url] * 2
    for memory in (512, 1024):
        link = deployed.link_of("aws_lambda", memory, redis_url)
        assert link is not None
        assert 0 < link[0] < 1 < link[1]
    assert deployed.link_of("aws_lambda", 2048, redis_url) is None
    assert deployed.link_of("aws_lambda", 512, "redis://another.example") is None
    (line,) = [line for line in run("doctor")[1].splitlines() if line.startswith("ok   redis: ")]
    assert re.search(r"[\d.]+ ms and \d+ MB/s from a function of 1024 MB when it was deployed", line)


def test_functions_may_reach_redis_by_another_url_than_the_notebook(cloud: Aws, run: Command, redis_url: str) -> None:
    other = redis_url.replace("127.0.0.1", "localhost")
    words = ["--memory", "512", "--redis-for-functions", other]
    status, _, errors = run("deploy", "aws", *words)
    assert (status, errors) == (1, f"redis_for_functions={other!r}: must be given with --redis\n")
    deployed_here(run, *words, "--redis", redis_url)
    assert [each["redis"] for each in cloud.asked] == [other]
    assert deployed.servers_of("aws_lambda") == {"redis": redis_url, "redis_for_functions": other}


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (
            {"error": "Redis at rediss://r does not answer: timeout"},
            r"redis, asked from a function: .*: timeout; .*VPC",
        ),
        ({"errorMessage": "Unable to import module\nmore"}, r"function mlless-\S+ fails: Unable to import module$"),
        ({"latency_s": 0.0, "bytes_per_s": 1e6}, "it measured nothing: deploy again"),
    ],
)
def test_a_redis_that_functions_do_not_reach_is_told_before_a_run(
    cloud: Aws, run: Command, redis_url: str, said: dict[str, Any], line: str
) -> None:
    cloud.said = said
    status, _, errors = run("deploy", "aws", "--memory", "512", "--redis", redis_url)
    assert status == 1
    assert re.search(line, errors.rstrip("\n"))
    assert errors.count("\n") == 1
    assert deployed.find("aws_lambda") is None
    cloud.said = None
    deployed_here(run, "--memory", "512", "--redis", redis_url)


def test_the_pattern_of_a_run_follows_from_the_link_that_functions_measured(
    cloud: Aws, run: Command, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed_here(run, "--memory", "512", "--redis", redis_url)
    plan = object.__new__(launch_plan.LaunchPlan)
    plan._services = SimpleNamespace(launcher=SimpleNamespace(is_local=False), embedded=None)  # type: ignore[assignment]
    monkeypatch.setattr(launch_plan, "exchanged_bytes", lambda *_: (1e6, 4e6))
    monkeypatch.setattr(launch_plan, "growth", lambda *_: 0.5)
    asked: list[tuple[float, ...]] = []
    monkeypatch.setattr(
        launch_plan.pattern, "scatter_from", lambda *all, growth: asked.append((*all[-2:], growth)) or 0
    )
    for memory in (512, 1024):
        job = SimpleNamespace(
            sync=BSP(),
            pattern="auto",
            store="redis",
            backend="aws_lambda",
            workers=8,
            memory_mb=memory,
            redis=redis_url,
        )
        plan._scatter_from(job, None, "run")  # type: ignore[arg-type]
    measured = deployed.link_of("aws_lambda", 512, redis_url)
    assert measured is not None
    assert asked == [(*measured, 0.5), (*launch_plan.CLOUD_LINK, 0.5)]


def test_policies_name_each_action_once_and_only_what_is_ours(cloud: Aws, run: Command) -> None:
    status, said, _ = run("policy", "aws")
    policy: dict[str, Any] = json.loads(said)
    assert (status, policy) == (0, policies.user_policy())
    actions = [action for each in policy["Statement"] for action in each["Action"]]
    assert len(actions) == len(set(actions))
    assert not [action for action in actions if "*" in action]
    anywhere = {action for each in policy["Statement"] if each["Resource"] == "*" for action in each["Action"]}
    assert anywhere == {
        "sts:GetCallerIdentity",
        "lambda:GetAccountSettings",
        "lambda:ListFunctions",
        "lambda:ListLayers",
        "logs:DescribeLogGroups",
        "dynamodb:ListTables",
    }
    account = open_account()
    name = lithops_lambda.function_name(account.user, resources.namespace_of("ab" * 32), "default-runtime-v311", 1024)
    assert resources.FUNCTION.fullmatch(name)
    assert resources.LAYER.fullmatch(lithops_lambda.layer_name(account.user, resources.namespace_of("ab" * 32), "3.11"))
