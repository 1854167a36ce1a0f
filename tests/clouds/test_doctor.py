"""`mlless-nb doctor`: all is well after a deployment, and each check fails where it should, with its remedy."""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Callable

import boto3
import pytest
from clouds.emulator import Aws
from IPython.core.error import UsageError
from servers import free_port

from mlless_nb.clouds import doctor, policies, resources
from mlless_nb.driver.backends import deployed
from mlless_nb.driver.backends.launcher import LithopsLauncher
from mlless_nb.errors import JobError, MllessError
from mlless_nb.exchange.stores import DynamoDBStore
from mlless_nb.magics.commands import perform
from mlless_nb.storage.objects import MemoryObjects

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def profile(run: Command) -> deployed.Profile:
    """A deployment of one function."""
    assert run("deploy", "aws", "--memory", "512")[0] == 0
    found = deployed.find("aws_lambda")
    assert found is not None
    return found


def function_of(profile: deployed.Profile) -> str:
    return str(boto3.client("lambda").list_functions()["Functions"][0]["FunctionName"])


def failures() -> dict[str, str]:
    return {finding.name: finding.text for finding in doctor.examine() if not finding.is_good}


def test_after_a_deployment_all_is_well(profile: deployed.Profile, run: Command, redis_url: str) -> None:
    dataclasses.replace(profile, redis=redis_url).write()
    status, said, _ = run("doctor")
    assert status == 0
    names = ["profile", "runtime", "credentials", "quota", "bucket", "role", "layer", "function of 512 MB", "redis"]
    assert [line.split(": ")[0] for line in said.splitlines()] == [f"ok   {name}" for name in names]


def test_the_magic_prints_the_same(profile: deployed.Profile, capsys: pytest.CaptureFixture[str]) -> None:
    perform("doctor")
    assert capsys.readouterr().out.splitlines() == list(map(str, doctor.examine()))
    with pytest.raises(UsageError, match="%mlless doctor takes no words"):
        perform("doctor aws")


def no_profile(cloud: Aws, profile: deployed.Profile) -> None:
    deployed.forget()


def damaged_profile(cloud: Aws, profile: deployed.Profile) -> None:
    deployed.path_of("aws_lambda").write_text('{"region": 3}')


def another_python(cloud: Aws, profile: deployed.Profile) -> None:
    dataclasses.replace(profile, python="3.1").write()


def another_lithops(cloud: Aws, profile: deployed.Profile) -> None:
    dataclasses.replace(profile, lithops="2.0").write()


def another_version(cloud: Aws, profile: deployed.Profile) -> None:
    dataclasses.replace(profile, sources="0" * 64).write()


def another_account(cloud: Aws, profile: deployed.Profile) -> None:
    dataclasses.replace(profile, account="210987654321").write()


def another_user(cloud: Aws, profile: deployed.Profile) -> None:
    dataclasses.replace(profile, user="AIDASOMEBODY").write()


def small_quota(cloud: Aws, profile: deployed.Profile) -> None:
    cloud.concurrency = 2


def no_bucket(cloud: Aws, profile: deployed.Profile) -> None:
    client = boto3.client("s3")
    for each in client.list_objects_v2(Bucket=profile.bucket)["Contents"]:
        client.delete_object(Bucket=profile.bucket, Key=each["Key"])
    client.delete_bucket(Bucket=profile.bucket)


def bucket_elsewhere(cloud: Aws, profile: deployed.Profile) -> None:
    no_bucket(cloud, profile)
    there = boto3.client("s3", region_name="eu-west-1")
    there.create_bucket(Bucket=profile.bucket, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})


def no_role(cloud: Aws, profile: deployed.Profile) -> None:
    name = profile.role.rpartition("/")[2]
    boto3.client("iam").delete_role_policy(RoleName=name, PolicyName="mlless-nb-function")
    boto3.client("iam").delete_role(RoleName=name)


def no_permissions(cloud: Aws, profile: deployed.Profile) -> None:
    name = profile.role.rpartition("/")[2]
    boto3.client("iam").delete_role_policy(RoleName=name, PolicyName="mlless-nb-function")


def other_permissions(cloud: Aws, profile: deployed.Profile) -> None:
    policy = policies.function_policy(profile.account, profile.region, "another-bucket")
    boto3.client("iam").put_role_policy(
        RoleName=profile.role.rpartition("/")[2], PolicyName="mlless-nb-function", PolicyDocument=json.dumps(policy)
    )


def no_layer(cloud: Aws, profile: deployed.Profile) -> None:
    name, number = profile.layer.split(":")[-2:]
    boto3.client("lambda").delete_layer_version(LayerName=name, VersionNumber=int(number))


def no_function(cloud: Aws, profile: deployed.Profile) -> None:
    boto3.client("lambda").delete_function(FunctionName=function_of(profile))


def changed_function(cloud: Aws, profile: deployed.Profile) -> None:
    boto3.client("lambda").update_function_configuration(FunctionName=function_of(profile), Timeout=30)


def another_role(cloud: Aws, profile: deployed.Profile) -> None:
    trust = json.dumps(policies.trust_policy())
    made = boto3.client("iam").create_role(RoleName="somebody", AssumeRolePolicyDocument=trust)
    boto3.client("lambda").update_function_configuration(FunctionName=function_of(profile), Role=made["Role"]["Arn"])


def retries(cloud: Aws, profile: deployed.Profile) -> None:
    client, name = boto3.client("lambda"), function_of(profile)
    client.delete_function_event_invoke_config(FunctionName=name)
    client.put_function_event_invoke_config(FunctionName=name, MaximumRetryAttempts=1)


def no_retry_setting(cloud: Aws, profile: deployed.Profile) -> None:
    boto3.client("lambda").delete_function_event_invoke_config(FunctionName=function_of(profile))


def another_setting(cloud: Aws, profile: deployed.Profile) -> None:
    client, name = boto3.client("lambda"), function_of(profile)
    client.delete_function_event_invoke_config(FunctionName=name)
    client.put_function_event_invoke_config(FunctionName=name, MaximumEventAgeInSeconds=60)


def no_redis(cloud: Aws, profile: deployed.Profile) -> None:
    dataclasses.replace(profile, redis=f"redis://127.0.0.1:{free_port()}").write()


def plain_redis(cloud: Aws, profile: deployed.Profile) -> None:
    dataclasses.replace(profile, redis="redis://redis.example").write()


@pytest.mark.parametrize(
    ("harm", "name", "remedy"),
    [
        (no_profile, "profile", "nothing is deployed from this machine: mlless-nb deploy aws"),
        (damaged_profile, "profile", r"deployed again \(mlless-nb deploy\): .*aws_lambda.json"),
        (another_python, "runtime", r"its functions have Python 3.1, and this is 3\.\d+: mlless-nb deploy aws"),
        (another_lithops, "runtime", r"its functions have Lithops 2.0, and this is .*: mlless-nb deploy aws"),
        (another_version, "runtime", "its functions have another version of mlless_nb: mlless-nb deploy aws"),
        (
            another_account,
            "credentials",
            "of account 123456789012, and 210987654321 has the deployment: set AWS_PROFILE",
        ),
        (another_user, "credentials", "another user deployed, whose functions Lithops does not find: mlless-nb deploy"),
        (small_quota, "quota", "2 functions at once, and the smallest run has 3: ask for more"),
        (no_bucket, "bucket", "is gone: mlless-nb deploy aws"),
        (bucket_elsewhere, "bucket", "in eu-west-1, and the functions are in us-east-1: mlless-nb deploy aws --region"),
        (no_role, "role", "is gone, and functions could not read their data: mlless-nb deploy aws"),
        (no_permissions, "role", "does not allow what functions of this mlless_nb do: mlless-nb deploy aws"),
        (other_permissions, "role", "does not allow what functions of this mlless_nb do: mlless-nb deploy aws"),
        (no_layer, "layer", "is gone: mlless-nb deploy aws"),
        (no_function, "function of 512 MB", "is gone: mlless-nb deploy aws --memory 512"),
        (changed_function, "function of 512 MB", r"was changed .*: mlless-nb deploy aws --memory 512"),
        (another_role, "function of 512 MB", r"was changed .*: mlless-nb deploy aws --memory 512"),
        (retries, "function of 512 MB", "again after a failure, up to 1 time: mlless-nb deploy aws"),
        (no_retry_setting, "function of 512 MB", "again after a failure, up to 2 times: mlless-nb deploy aws"),
        (another_setting, "function of 512 MB", "again after a failure, up to 2 times: mlless-nb deploy aws"),
        (no_redis, "redis", "does not answer"),
        (plain_redis, "redis", r"rediss://.*\(TLS and a password\), or set insecure=True"),
    ],
)
def test_each_check_fails_where_it_should(
    cloud: Aws, profile: deployed.Profile, harm: Callable[[Aws, deployed.Profile], None], name: str, remedy: str
) -> None:
    harm(cloud, profile)
    found = failures()
    assert list(found) == [name]
    assert re.search(remedy, found[name]), found[name]


@pytest.mark.parametrize(
    "harm",
    [
        no_profile,
        damaged_profile,
        another_version,
        another_user,
        no_bucket,
        no_role,
        other_permissions,
        no_layer,
        no_function,
        changed_function,
        another_role,
        no_retry_setting,
    ],
)
def test_deploying_again_mends_what_doctor_finds(
    cloud: Aws, profile: deployed.Profile, run: Command, harm: Callable[[Aws, deployed.Profile], None]
) -> None:
    """Also in functions of a size that is not named then: they stay in the profile, and runs use them."""
    harm(cloud, profile)
    assert len(failures()) == 1
    assert run("deploy", "aws", "--memory", "1024")[0] == 0
    assert failures() == {}


def test_unknown_keys_fail_the_check_of_credentials(cloud: Aws, profile: deployed.Profile) -> None:
    cloud.enforce(policies.user_policy())
    assert failures() == {
        "credentials": "AWS does not know the access key: run `aws configure` with a key that is active"
    }


def test_exactly_the_documented_permissions_suffice(cloud: Aws, run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """For all that deploy, doctor and remove do; moto looks at actions, for most of them not at resources."""
    for name, value in cloud.enforce(policies.user_policy()).items():
        monkeypatch.setenv(name, value)
    for words in (("deploy", "aws"), ("doctor",), ("remove", "aws", "--yes")):
        status, said, errors = run(*words)
        assert (status, errors) == (0, ""), said


@pytest.mark.parametrize("who", ["user", "functions"])
def test_the_documented_permissions_suffice_for_updates_in_a_table(
    cloud: Aws, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """``store="dynamodb"``: the user makes the table and drops it, functions write and read, and the last drops it."""
    policy = policies.user_policy() if who == "user" else policies.function_policy("123456789012", "us-east-1", "b")
    (tables,) = [each["Resource"] for each in policy["Statement"] if each["Sid"] == "Tables"]
    assert re.fullmatch(r"arn:aws:dynamodb:\*:(\*|123456789012):table/mlless-\*", tables)
    store, key = DynamoDBStore("mlless:{job}:", MemoryObjects()), "mlless:{job}:frame:1:0"
    if who == "functions":
        store.create()
        store.close()
    for name, value in cloud.enforce(policy).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    if who == "user":
        store.check()
        store.create()
    else:
        store.put_many({key: b"frame"})
        (found,) = store.get_many([key])
        assert found is not None
        assert bytes(found) == b"frame"
    assert store.clear() == 1
    store.close()


@pytest.mark.parametrize(
    "action",
    ["lambda:CreateFunction", "lambda:PublishLayerVersion", "iam:CreateRole", "s3:CreateBucket", "logs:CreateLogGroup"],
)
def test_a_permission_that_is_missing_is_named(
    cloud: Aws, run: Command, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    policy = policies.user_policy()
    for statement in policy["Statement"]:
        statement["Action"] = [each for each in statement["Action"] if each != action]
    for name, value in cloud.enforce(policy).items():
        monkeypatch.setenv(name, value)
    status, _, errors = run("deploy", "aws", "--memory", "512")
    assert status == 1
    denied = f"permission: {action} is denied: `mlless-nb policy aws` prints what an administrator has to allow\n"
    assert errors == denied


def no_credentials(cloud: Aws, profile: deployed.Profile) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        del os.environ[name]  # the fixture restores it


def unknown_keys(cloud: Aws, profile: deployed.Profile) -> None:
    cloud.enforce(policies.user_policy())


@pytest.mark.parametrize(
    ("harm", "line"),
    [
        (no_bucket, r"backend='aws_lambda': must be deployed again \(mlless-nb deploy aws\): its bucket .* is gone"),
        (bucket_elsewhere, "its bucket is in eu-west-1, and its functions are in us-east-1"),
        (no_credentials, "credentials: boto3 finds no complete ones"),
        (unknown_keys, "credentials: AWS does not know the access key"),
    ],
)
def test_a_job_that_does_not_reach_its_bucket_is_refused(
    cloud: Aws, profile: deployed.Profile, harm: Callable[[Aws, deployed.Profile], None], line: str
) -> None:
    """Lithops would make a bucket without our tag in the place of one that is gone."""
    there, keys = cloud.names()["buckets"], dict(os.environ)
    harm(cloud, profile)
    with pytest.raises(MllessError, match=line) as refused:
        LithopsLauncher("aws_lambda", 4, 512)
    assert "\n" not in str(refused.value)
    os.environ |= keys
    cloud._post("reset-auth", b"inf")
    assert set(cloud.names()["buckets"]) == set(there) - ({profile.bucket} if harm is no_bucket else set())


def test_a_job_on_functions_of_another_version_is_refused(cloud: Aws, profile: deployed.Profile) -> None:
    another_version(cloud, profile)
    with pytest.raises(JobError, match=r"backend='aws_lambda': must be deployed again .* another version of mlless_nb"):
        deployed.check("aws_lambda", 512)
    profile.write()
    with pytest.raises(JobError, match=r"memory_mb=2048: must be one that is deployed: 512 .*--memory 2048"):
        deployed.check("aws_lambda", 2048)
    deployed.check("aws_lambda", 512)
    deployed.check({"lithops": {"backend": "aws_lambda"}}, 2048)  # the user's own configuration


def test_a_profile_is_read_as_it_was_written_and_anything_else_is_refused(profile: deployed.Profile) -> None:
    path = deployed.path_of("aws_lambda")
    assert path.stat().st_mode & 0o777 == 0o600
    assert deployed.Profile.decode(path.read_bytes()) == profile
    assert resources.namespace_of("0" * 64) not in path.read_text()
    fields = json.loads(path.read_text())
    for name, value in (
        ("memory_mb", []),
        ("memory_mb", ["x"]),
        ("concurrency", True),
        ("role", None),
        ("redis", 3),
        ("links", {"1": [0]}),
    ):
        path.write_text(json.dumps(fields | {name: value}))
        with pytest.raises(JobError, match=rf"deployed again .*its field {name} is not valid"):
            deployed.find("aws_lambda")
    for text in ("", "[]", "{", json.dumps(fields | {"more": 1})):
        path.write_text(text)
        with pytest.raises(JobError, match="it does not describe a deployment"):
            deployed.find("aws_lambda")
