"""A deployment on AWS Lambda: checked first, then made, each resource if it is not there; then noted in a profile."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..bus.passwords import filled
from ..bus.urls import REDIS_FORMS, check_redis, mask_url, require_private
from ..driver import deployed
from ..driver.deployed import LIFETIME_S, Profile
from ..errors import JobError, ServiceError
from ..plurals import count
from ..redaction import in_url
from . import lithops_lambda
from .account import Account
from .links import measured, sentence
from .policies import function_policy, trust_policy
from .removing import POLICY, has
from .resources import LOG_DAYS, LOGS, TAG, Inventory, bucket_of, namespace_of, role_of, tags
from .runtime import WRAPPER, Runtime

#: Memory of a function that AWS Lambda takes, MB.
LEAST_MB, MOST_MB = 128, 10_240
#: Functions of the smallest run: two workers and a supervisor.
LEAST_FUNCTIONS = 3
#: A new role can be used only after some seconds; and a function is made within some.
ROLE_S, FUNCTION_S, LOOK_S = 60.0, 120.0, 1.0
#: An invocation that waits longer in AWS' queue, seconds, is dropped: its run has replaced it.
QUEUED_S = 60


@dataclass(frozen=True)
class Wanted:
    """What is to be there.

    Parameters
    ----------
    memory_mb : sequence of int
        A function for each.
    redis, redis_for_functions : str or None
        URL of the Redis of jobs that name none, and by which functions reach it, if that is another one.
    insecure : bool
        Accept one without TLS or password.
    """

    memory_mb: Sequence[int]
    redis: str | None = None
    insecure: bool = False
    redis_for_functions: str | None = None

    def __post_init__(self) -> None:
        for each in self.memory_mb:
            if not LEAST_MB <= each <= MOST_MB:
                raise JobError("memory", each, f"{LEAST_MB} to {MOST_MB} MB")
        if self.redis_for_functions is not None and self.redis is None:
            raise JobError("redis_for_functions", mask_url(self.redis_for_functions), "given with --redis")
        for url in (self.redis, self.redis_for_functions):  # one that cannot be kept is refused now
            if url is not None:
                without_password(url)


def check(account: Account, wanted: Wanted) -> int:
    """Check what would fail at the first run; returns the account's concurrency.

    Raises
    ------
    JobError, ServiceError
        If the quota is too small, or Redis is not as runs need it.
    """
    concurrency = account.concurrency
    if concurrency < LEAST_FUNCTIONS:
        raise ServiceError(
            f"quota: the account runs {count(concurrency, 'function')} at once in {account.region}, and the smallest "
            f"run has {LEAST_FUNCTIONS}: ask for more of 'Concurrent executions' of AWS Lambda in the console's "
            "Service Quotas"
        )
    if wanted.redis is not None:
        check_redis(filled("redis", wanted.redis), wanted.insecure)
    if wanted.redis_for_functions is not None:
        url = filled("redis_for_functions", wanted.redis_for_functions)
        require_private("redis_for_functions", url, wanted.insecure)
    return concurrency


def without_password(url: str) -> str:
    """``url`` as it may lie in a file: a password in it is left out, one that it names stays named.

    Raises
    ------
    JobError
        If it is none, or a secret is elsewhere in it.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise JobError("redis", mask_url(url), REDIS_FORMS) from None
    user, has_password, password = (parts.username or ""), parts.password is not None, parts.password or ""
    if has_password and not password.startswith("${"):
        host = parts.netloc.rpartition("@")[2]
        url = parts._replace(netloc=f"{user}@{host}" if user else host).geturl()
    if "password=" in urlsplit(url).query:
        raise JobError("redis", mask_url(url), "a URL with its password before the host, not among the options")
    return url


def steps(account: Account, wanted: Wanted, runtime: Runtime, found: Inventory) -> list[tuple[str, bool]]:
    """What `deploy` would do: a sentence each, and whether it is there already."""
    namespace, user = namespace_of(runtime.digest), account.user
    layer = lithops_lambda.layer_name(user, namespace, runtime.python)
    names = [lithops_lambda.function_name(user, namespace, runtime.name, each) for each in wanted.memory_mb]
    bucket, role = bucket_of(account.number, account.region), role_of(account.region)
    size = f"{runtime.unzipped_bytes / 1e6:.1f} MB, {runtime.zipped_bytes / 1e6:.1f} MB zipped"
    return [
        (f"bucket {bucket}, closed to the public", found.bucket == bucket),
        (f"role {role}, for the bucket, logs and successors of functions", found.role == role),
        (f"layer {layer} ({size})", layer in [name for name, _ in found.layers]),
        *(
            (f"function {name} ({memory} MB, {LIFETIME_S} s, no retries)", name in found.functions)
            for name, memory in zip(names, wanted.memory_mb, strict=True)
        ),
    ]


def deploy(
    account: Account,
    wanted: Wanted,
    runtime: Runtime,
    found: Inventory,
    concurrency: int,
    folder: Path,
    say: Callable[[str], None],
) -> Profile:
    """Make what is not there, and write the profile.

    Parameters
    ----------
    account : Account
    wanted : Wanted
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
    names: dict[int, str] = {}
    for memory in wanted.memory_mb:
        names[memory] = name = lithops_lambda.function_name(account.user, namespace, runtime.name, memory)
        _make_log_group(account, name, found)
        if name not in found.functions:
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
        sorted({*names, *_others(account, runtime, found)}),
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


def _others(account: Account, runtime: Runtime, found: Inventory) -> list[int]:
    """The memory of functions of this very layer that an earlier deployment has made: they are there, too."""
    with contextlib.suppress(JobError):  # its profile is damaged
        if (before := deployed.find("aws_lambda")) is not None:
            namespace = namespace_of(runtime.digest)
            names = {
                memory: lithops_lambda.function_name(account.user, namespace, runtime.name, memory)
                for memory in before.memory_mb
            }
            return [memory for memory, name in names.items() if name in found.functions]
    return []


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
    policy = json.dumps(function_policy(account.number, account.region, bucket))
    account.call("iam", "put_role_policy", RoleName=name, PolicyName=POLICY, PolicyDocument=policy)
    return str(account.call("iam", "get_role", RoleName=name)["Role"]["Arn"])


def _layer(account: Account, found: Inventory, runtime: Runtime, namespace: str, say: Callable[[str], None]) -> str:
    """The ARN of the layer's version."""
    name = lithops_lambda.layer_name(account.user, namespace, runtime.python)
    if numbers := [number for layer, number in found.layers if layer == name]:
        newest = account.call("lambda", "get_layer_version", LayerName=name, VersionNumber=max(numbers))
        return str(newest["LayerVersionArn"])
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
            time.sleep(LOOK_S)
    give_up_at = time.monotonic() + FUNCTION_S
    while (state := account.call("lambda", "get_function", FunctionName=name)["Configuration"]["State"]) != "Active":
        if state == "Failed" or time.monotonic() > give_up_at:
            with contextlib.suppress(ServiceError):
                account.call("lambda", "delete_function", FunctionName=name)
            raise ServiceError(f"function {name}: AWS made it {state}, not Active: deploy again")
        time.sleep(LOOK_S)


def _pairs() -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags().items()]
