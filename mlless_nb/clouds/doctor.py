"""What a run on the deployment would trip over: one line for each check, with its remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..bus.passwords import filled
from ..bus.urls import check_redis
from ..driver.backends import deployed
from ..driver.backends.deployed import LIFETIME_S, Profile
from ..errors import MllessError
from ..plurals import count
from . import lithops_lambda
from .account import Account, MissingError, open_account
from .deploying import settings
from .deployment_request import LEAST_FUNCTIONS
from .links import sentence
from .policies import function_policy
from .removing import POLICY

AGAIN = "mlless-nb deploy aws"


@dataclass(frozen=True)
class Finding:
    """The answer of one check.

    Parameters
    ----------
    name : str
        What was checked.
    is_good : bool
    text : str
        What was found, and if it is not good what to do.
    """

    name: str
    is_good: bool
    text: str

    def __str__(self) -> str:
        return f"{'ok  ' if self.is_good else 'FAIL'} {self.name}: {self.text}"


def examine(insecure: bool = False) -> list[Finding]:
    """All checks, in the order in which they depend on each other; nothing is invoked or billed but a few requests.

    Parameters
    ----------
    insecure : bool
        Accept a Redis without TLS or password.
    """
    findings: list[Finding] = []

    def check(name: str, ask: Callable[[], str]) -> bool:
        try:
            findings.append(Finding(name, True, ask()))
        except MllessError as error:
            findings.append(Finding(name, False, str(error).removeprefix(f"{name}: ")))
        return findings[-1].is_good

    profiles: list[Profile] = []
    accounts: list[Account] = []
    if check("profile", lambda: _profile(profiles)):
        check("runtime", lambda: _runtime(profiles[0]))
    region = profiles[0].region if profiles else None
    if check("credentials", lambda: _credentials(accounts, profiles, region)) and profiles:
        account, profile = accounts[0], profiles[0]
        check("quota", lambda: _quota(account))
        check("bucket", lambda: _bucket(account, profile))
        check("role", lambda: _role(account, profile))
        check("layer", lambda: _layer(account, profile))
        for memory in profile.memory_mb:
            check(f"function of {memory} MB", lambda memory=memory: _function(account, profile, memory))  # type: ignore[misc]
    if profiles and profiles[0].redis is not None:
        check("redis", lambda: _redis(profiles[0], insecure))
    return findings


class UnfitError(MllessError):
    """A check that fails."""


def _profile(profiles: list[Profile]) -> str:
    found = deployed.find("aws_lambda")
    if found is None:
        raise UnfitError(f"nothing is deployed from this machine: {AGAIN}")
    profiles.append(found)
    return f"account {found.account}, {found.region}"


def _runtime(profile: Profile) -> str:
    if (difference := profile.difference()) is not None:
        raise UnfitError(f"{difference}: {AGAIN}")
    return f"Python {profile.python}, Lithops {profile.lithops}, this mlless_nb"


def _credentials(accounts: list[Account], profiles: list[Profile], region: str | None) -> str:
    account = open_account(region)
    if profiles and account.number != profiles[0].account:
        raise UnfitError(
            f"they are of account {account.number}, and {profiles[0].account} has the deployment: set AWS_PROFILE"
        )
    if profiles and account.user != profiles[0].user:
        raise UnfitError(
            f"they are of {account.name}, and another user deployed, whose functions Lithops does not find: {AGAIN}"
        )
    accounts.append(account)
    return account.name


def _quota(account: Account) -> str:
    concurrency = account.concurrency
    if concurrency < LEAST_FUNCTIONS:
        raise UnfitError(
            f"{count(concurrency, 'function')} at once, and the smallest run has {LEAST_FUNCTIONS}: ask for more of "
            "'Concurrent executions' of AWS Lambda in the console's Service Quotas"
        )
    return f"{concurrency} functions at once: up to {count(concurrency - 1, 'worker')}"


def _bucket(account: Account, profile: Profile) -> str:
    try:
        place = (
            account.call("s3", "get_bucket_location", Bucket=profile.bucket).get("LocationConstraint") or "us-east-1"
        )
    except MissingError:
        raise UnfitError(f"{profile.bucket} is gone: {AGAIN}") from None
    if place != profile.region:
        raise UnfitError(
            f"{profile.bucket} is in {place}, and the functions are in {profile.region}: {AGAIN} --region {place}"
        )
    probe = "mlless-nb/doctor"
    account.call("s3", "put_object", Bucket=profile.bucket, Key=probe, Body=b"")
    account.call("s3", "get_object", Bucket=profile.bucket, Key=probe)
    account.call("s3", "delete_object", Bucket=profile.bucket, Key=probe)
    return f"{profile.bucket} can be written and read"


def _role(account: Account, profile: Profile) -> str:
    name = profile.role.rpartition("/")[2]
    try:
        account.call("iam", "get_role", RoleName=name)
    except MissingError:
        raise UnfitError(f"{name} is gone, and functions could not read their data: {AGAIN}") from None
    try:
        found = account.call("iam", "get_role_policy", RoleName=name, PolicyName=POLICY)["PolicyDocument"]
    except MissingError:
        found = None
    if found != function_policy(account.number, profile.region, profile.bucket, account.partition):
        raise UnfitError(f"{name} does not allow what functions of this mlless_nb do: {AGAIN}")
    return name


def _layer(account: Account, profile: Profile) -> str:
    name, number = profile.layer.split(":")[-2:]
    try:
        account.call("lambda", "get_layer_version", LayerName=name, VersionNumber=int(number))
    except MissingError:
        raise UnfitError(f"{name} is gone: {AGAIN}") from None
    return f"{name}, version {number}"


def _function(account: Account, profile: Profile, memory_mb: int) -> str:
    name = lithops_lambda.function_name(profile.user, profile.namespace, profile.runtime, memory_mb)
    try:
        found = account.call("lambda", "get_function", FunctionName=name)["Configuration"]
    except MissingError:
        raise UnfitError(f"{name} is gone: {AGAIN} --memory {memory_mb}") from None
    if found.get("State", "Active") != "Active":
        raise UnfitError(f"{name} is {found['State']}: wait a minute, or {AGAIN}")
    if settings(found) != (memory_mb, LIFETIME_S, [profile.layer], profile.role):
        raise UnfitError(f"{name} was changed (memory, timeout, layer or role): {AGAIN} --memory {memory_mb}")
    try:
        config = account.call("lambda", "get_function_event_invoke_config", FunctionName=name)
    except MissingError:
        config = {}
    retries = config.get("MaximumRetryAttempts", 2)
    if retries:
        raise UnfitError(f"AWS would start {name} again after a failure, up to {count(retries, 'time')}: {AGAIN}")
    return name


def _redis(profile: Profile, insecure: bool) -> str:
    server = check_redis(filled("redis", str(profile.redis)), insecure)
    if not profile.links:
        return f"version {server.version}, from this machine; functions must reach it, too"
    most_mb = max(profile.links, key=int)
    return f"version {server.version}; {sentence(profile.links[most_mb])} of {most_mb} MB when it was deployed"
