"""A deployment on AWS Lambda: checked first, then made, each resource if it is not there; then noted in a profile."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..bus.passwords import filled
from ..driver.backends.deployed import LIFETIME_S, Profile
from ..errors import ServiceError
from ..redaction import in_url
from . import lithops_lambda
from .account import Account
from .deployment_request import DeploymentRequest, deployed_before, without_password
from .links import measured, sentence
from .policies import function_policy, trust_policy
from .removing import POLICY, has
from .resources import LOG_DAYS, LOGS, TAG, Inventory, bucket_of, namespace_of, role_of, tags
from .runtime import WRAPPER, Runtime

#: A new role can be used only after some seconds; a function is made within some; and seconds between two polls of it.
ROLE_S, FUNCTION_S, FUNCTION_POLL_S = 60.0, 120.0, 1.0
#: An invocation that waits longer in AWS' queue, seconds, is dropped: its run has replaced it.
QUEUED_S = 60


def steps(account: Account, wanted: DeploymentRequest, runtime: Runtime, found: Inventory) -> list[tuple[str, bool]]:
    """What `deploy` makes where it is not there: a sentence each, and whether it is."""
    layer = lithops_lambda.layer_name(account.user, namespace_of(runtime.digest), runtime.python)
    bucket, role = bucket_of(account.number, account.region), role_of(account.region)
    arns = _layer_there(account, found, layer), _role_there(account, role) if found.role else None

    def is_there(memory_mb: int, name: str) -> bool:
        if name not in found.functions or arns[0] is None or arns[1] is None:
            return False
        return _is_as_made(account, name, memory_mb, arns[0], arns[1])

    size = f"{runtime.unzipped_bytes / 1e6:.1f} MB, {runtime.zipped_bytes / 1e6:.1f} MB zipped"
    return [
        (f"bucket {bucket}, closed to the public", found.bucket == bucket),
        (f"role {role}, for the bucket, logs and successors of functions", found.role == role),
        (f"layer {layer} ({size})", arns[0] is not None),
        *(
            (f"function {name} ({memory} MB, {LIFETIME_S} s, no retries)", is_there(memory, name))
            for memory, name in _sizes(account, wanted, runtime, found).items()
        ),
    ]


def deploy(
    account: Account,
    wanted: DeploymentRequest,
    runtime: Runtime,
    found: Inventory,
    concurrency: int,
    folder: Path,
    say: Callable[[str], None],
) -> Profile:
    """Make what is not there or not as it should be, and write the profile.

    Parameters
    ----------
    account : Account
    wanted : DeploymentRequest
    runtime : Runtime
    found : Inventory
        What is there.
    concurrency : int
    folder : Path
        For temporary files.
    say : callable
        Takes a sentence for each thing that was made.

    Returns
    -------
    Profile

    Raises
    ------
    ServiceError
        If AWS refuses something, or functions do not reach Redis. What was made stays, and `deploy` can be done again
        or `remove` be called.
    """
    namespace, bucket = namespace_of(runtime.digest), bucket_of(account.number, account.region)
    if found.bucket is None:
        _make_bucket(account, bucket)
        say(f"made bucket {bucket}")
    _close_bucket(account, bucket)
    role = _role(account, found, bucket, say)
    layer = _layer(account, found, runtime, namespace, say)
    handler = lithops_lambda.handler(folder)
    names = _sizes(account, wanted, runtime, found)
    for memory, name in names.items():
        _make_log_group(account, name, found)
        is_there = name in found.functions
        # AWS lets a function decipher its environment by the role that was there when it was made, not by its name.
        if is_there and (found.role is None or not _is_as_made(account, name, memory, layer, role)):
            account.call("lambda", "delete_function", FunctionName=name)
            say(f"removed function {name}, whose memory, timeout, layer or role was another one or gone")
            is_there = False
        if not is_there:
            _make_function(account, name, memory, role, layer, handler, runtime)
            say(f"made function {name}, {memory} MB")
        # A lost worker is replaced by its run: AWS must not start it a second time, nor hours later.
        retries = {"MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": QUEUED_S}
        account.call("lambda", "put_function_event_invoke_config", FunctionName=name, **retries)
        key, note = lithops_lambda.metadata(name, account.region, runtime.modules, runtime.python, LIFETIME_S)
        account.call("s3", "put_object", Bucket=bucket, Key=key, Body=note)
    links: dict[str, list[float]] = {}
    if wanted.redis is not None:
        links = measured(account, names, filled("redis", wanted.redis_for_functions or wanted.redis), wanted.insecure)
        say(f"redis: {sentence(links[str(max(names))])} of {max(names)} MB")
    profile = Profile(
        account.region,
        account.number,
        account.user,
        bucket,
        role,
        layer,
        namespace,
        runtime.name,
        runtime.python,
        lithops_lambda.VERSION,
        runtime.sources,
        list(names),
        concurrency,
        f"/opt/{WRAPPER}",
        _kept(wanted.redis),
        _kept(wanted.redis_for_functions),
        links,
    )
    say(f"wrote {profile.write()}")
    if wanted.redis is not None and in_url(wanted.redis) and profile.redis != wanted.redis:
        say(
            "the password of Redis is kept nowhere: set MLLESS_REDIS_PASSWORD where runs are started, "
            "or `keyring set mlless_nb MLLESS_REDIS_PASSWORD`"
        )
    return profile


def _sizes(account: Account, wanted: DeploymentRequest, runtime: Runtime, found: Inventory) -> dict[int, str]:
    """The functions' names by memory: those that are wanted, and those of this layer of the deployment before."""
    before = deployed_before(account)

    def name_of(memory_mb: int) -> str:
        return lithops_lambda.function_name(account.user, namespace_of(runtime.digest), runtime.name, memory_mb)

    names = {memory: name_of(memory) for memory in (before.memory_mb if before is not None else ())}
    names = {memory: name for memory, name in names.items() if name in found.functions}
    return dict(sorted((names | {memory: name_of(memory) for memory in wanted.memory_mb}).items()))


def settings(function: Mapping[str, Any]) -> tuple[int, int, list[str], str]:
    """Memory (MB), timeout (s), layers and role of a function, as AWS describes it: what a deployment is about."""
    layers = [each["Arn"] for each in function.get("Layers", ())]
    return function["MemorySize"], function["Timeout"], layers, function["Role"]


def _is_as_made(account: Account, name: str, memory_mb: int, layer: str, role: str) -> bool:
    """Whether a function that is there is as it would be made; one of a layer that is gone is not."""
    there = account.call("lambda", "get_function", FunctionName=name)["Configuration"]
    return settings(there) == (memory_mb, LIFETIME_S, [layer], role)


def _kept(url: str | None) -> str | None:
    return None if url is None else without_password(url)


def _make_bucket(account: Account, bucket: str) -> None:
    """Make it and tag it; an empty one without a tag is what was left of an interrupted deployment."""
    is_there = has(lambda: account.call("s3", "get_bucket_location", Bucket=bucket))
    if is_there:
        if any(account.pages("s3", "list_objects_v2", "Contents", Bucket=bucket)):
            raise ServiceError(
                f"bucket: {bucket} is there, holds objects and has no tag {TAG}: it is not of mlless_nb. Empty it, or "
                "use another region or account"
            )
    else:
        elsewhere = {"CreateBucketConfiguration": {"LocationConstraint": account.region}}
        account.call("s3", "create_bucket", Bucket=bucket, **(elsewhere if account.region != "us-east-1" else {}))
    try:
        account.call("s3", "put_bucket_tagging", Bucket=bucket, Tagging={"TagSet": _pairs()})
    except BaseException:
        if not is_there:
            with contextlib.suppress(ServiceError):
                account.call("s3", "delete_bucket", Bucket=bucket)  # `remove` leaves what has no tag
        raise


def _close_bucket(account: Account, bucket: str) -> None:
    names = ("BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets")
    closed = dict.fromkeys(names, True)
    account.call("s3", "put_public_access_block", Bucket=bucket, PublicAccessBlockConfiguration=closed)


def _role(account: Account, found: Inventory, bucket: str, say: Callable[[str], None]) -> str:
    """The ARN of the functions' role."""
    name = role_of(account.region)
    if found.role is None:
        trust = json.dumps(trust_policy())
        account.call("iam", "create_role", RoleName=name, AssumeRolePolicyDocument=trust, Tags=_pairs())
        say(f"made role {name}")
    policy = json.dumps(function_policy(account.number, account.region, bucket, account.partition))
    account.call("iam", "put_role_policy", RoleName=name, PolicyName=POLICY, PolicyDocument=policy)
    return _role_there(account, name)


def _role_there(account: Account, name: str) -> str:
    return str(account.call("iam", "get_role", RoleName=name)["Role"]["Arn"])


def _layer(account: Account, found: Inventory, runtime: Runtime, namespace: str, say: Callable[[str], None]) -> str:
    """The ARN of the layer's version."""
    name = lithops_lambda.layer_name(account.user, namespace, runtime.python)
    if (there := _layer_there(account, found, name)) is not None:
        return there
    made = account.call(
        "lambda",
        "publish_layer_version",
        LayerName=name,
        Description=f"mlless_nb, {runtime.digest}"[:256],
        Content={"ZipFile": runtime.archive.read_bytes()},
        CompatibleRuntimes=[f"python{runtime.python}"],
        CompatibleArchitectures=["x86_64"],
    )
    say(f"made layer {name}")
    return str(made["LayerVersionArn"])


def _layer_there(account: Account, found: Inventory, name: str) -> str | None:
    """The ARN of the newest version of the layer, None if there is none."""
    numbers = [number for layer, number in found.layers if layer == name]
    if not numbers:
        return None
    newest = account.call("lambda", "get_layer_version", LayerName=name, VersionNumber=max(numbers))
    return str(newest["LayerVersionArn"])


def _make_log_group(account: Account, function: str, found: Inventory) -> None:
    """Before the function writes into one, which AWS would make, and keep for ever."""
    name = f"{LOGS}{function}"
    if name not in found.log_groups:
        account.call("logs", "create_log_group", logGroupName=name, tags=tags())
    account.call("logs", "put_retention_policy", logGroupName=name, retentionInDays=LOG_DAYS)


def _make_function(
    account: Account, name: str, memory_mb: int, role: str, layer: str, handler: bytes, runtime: Runtime
) -> None:
    make: dict[str, Any] = {
        "FunctionName": name,
        "Runtime": f"python{runtime.python}",
        "Role": role,
        "Handler": lithops_lambda.HANDLER,
        "Code": {"ZipFile": handler},
        "Timeout": LIFETIME_S,
        "MemorySize": memory_mb,
        "Layers": [layer],
        "Architectures": ["x86_64"],
        "Environment": {"Variables": {"AWS_LAMBDA_EXEC_WRAPPER": f"/opt/{WRAPPER}"}},
        # The other two are those by which Lithops lists its runtimes.
        "Tags": {
            **tags(),
            "runtime_name": runtime.name,
            "lithops_version": lithops_lambda.VERSION,
        },
    }
    give_up_at = time.monotonic() + ROLE_S
    while True:
        try:
            account.call("lambda", "create_function", **make)
            break
        except ServiceError as error:  # "The role defined for the function cannot be assumed by Lambda."
            if "assumed" not in str(error) or time.monotonic() > give_up_at:
                raise
            time.sleep(FUNCTION_POLL_S)
    give_up_at = time.monotonic() + FUNCTION_S
    while (state := account.call("lambda", "get_function", FunctionName=name)["Configuration"]["State"]) != "Active":
        if state == "Failed" or time.monotonic() > give_up_at:
            with contextlib.suppress(ServiceError):
                account.call("lambda", "delete_function", FunctionName=name)
            raise ServiceError(f"function {name}: AWS made it {state}, not Active: deploy again")
        time.sleep(FUNCTION_POLL_S)


def _pairs() -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags().items()]
