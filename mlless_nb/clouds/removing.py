"""What of ours lies in an account, found by names and tags, and its removal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from ..driver.backends import deployed
from ..errors import ServiceError
from ..exchange.stores.dynamodb import TABLE
from ..plurals import count
from .account import Account, MissingError
from .resources import FUNCTION, LAYER, LOGS, TAG, Inventory, bucket_of, role_of

#: Objects that one request deletes.
MOST_OBJECTS = 1000
#: The name of the role's policy.
POLICY = "mlless-nb-function"


def inventory(account: Account) -> Inventory:
    """What lies in the account and region.

    Raises
    ------
    ServiceError
        If AWS does not answer, or the user may not look.
    """
    functions = [each["FunctionName"] for each in account.pages("lambda", "list_functions", "Functions")]
    layers = [each["LayerName"] for each in account.pages("lambda", "list_layers", "Layers")]
    versions = [
        (name, each["Version"])
        for name in layers
        if LAYER.fullmatch(name)
        for each in account.pages("lambda", "list_layer_versions", "LayerVersions", LayerName=name)
    ]
    groups = [
        each["logGroupName"]
        for each in account.pages("logs", "describe_log_groups", "logGroups", logGroupNamePrefix=f"{LOGS}mlless-")
    ]
    role, bucket = role_of(account.region), bucket_of(account.number, account.region)
    has_bucket = has(lambda: account.call("s3", "get_bucket_location", Bucket=bucket)) and _is_ours(account, bucket)
    objects = account.pages("s3", "list_objects_v2", "Contents", Bucket=bucket) if has_bucket else ()
    sizes = [each["Size"] for each in objects]
    return Inventory(
        [name for name in functions if FUNCTION.fullmatch(name)],
        [name for name in groups if FUNCTION.fullmatch(name.removeprefix(LOGS))],
        versions,
        role if has(lambda: account.call("iam", "get_role", RoleName=role)) else None,
        bucket if has_bucket else None,
        len(sizes),
        sum(sizes),
        [each for each in account.pages("dynamodb", "list_tables", "TableNames") if _is_our_table(account, each)],
    )


def has(ask: Callable[[], object]) -> bool:
    """Whether what is asked for is there."""
    with contextlib.suppress(MissingError):
        ask()
        return True
    return False


def _is_ours(account: Account, bucket: str) -> bool:
    """Whether a bucket has our tag: one of this name that somebody else made is left alone."""
    try:
        return TAG in {each["Key"] for each in account.call("s3", "get_bucket_tagging", Bucket=bucket)["TagSet"]}
    except MissingError:
        return False


def _is_our_table(account: Account, name: str) -> bool:
    """Whether a table of DynamoDB has a run's name and our tag, and is not being dropped."""
    if not TABLE.fullmatch(name):
        return False
    with contextlib.suppress(MissingError):  # its run has dropped it
        table = account.call("dynamodb", "describe_table", TableName=name)["Table"]
        tags = account.pages("dynamodb", "list_tags_of_resource", "Tags", ResourceArn=table["TableArn"])
        return table["TableStatus"] != "DELETING" and any(each["Key"] == TAG for each in tags)
    return False


def remove(account: Account, found: Inventory, say: Callable[[str], None]) -> None:
    """Remove ``found`` and the profile; what is gone already is no failure, so that it can be done again.

    Raises
    ------
    ServiceError
        If something cannot be removed; what comes after it is still there.
    """
    for name in found.functions:
        _away(account, "lambda", "delete_function", FunctionName=name)
        say(f"removed function {name}")
    for name in found.log_groups:
        _away(account, "logs", "delete_log_group", logGroupName=name)
        say(f"removed log group {name}")
    for name, number in found.layers:
        _away(account, "lambda", "delete_layer_version", LayerName=name, VersionNumber=number)
        say(f"removed layer {name}, version {number}")
    for name in found.tables:
        _away(account, "dynamodb", "delete_table", TableName=name)
        say(f"removed table {name}")
    if found.role:
        _away(account, "iam", "delete_role_policy", RoleName=found.role, PolicyName=POLICY)
        _away(account, "iam", "delete_role", RoleName=found.role)
        say(f"removed role {found.role}")
    if found.bucket:
        keys = [each["Key"] for each in account.pages("s3", "list_objects_v2", "Contents", Bucket=found.bucket)]
        for start in range(0, len(keys), MOST_OBJECTS):
            batch = {"Objects": [{"Key": key} for key in keys[start : start + MOST_OBJECTS]], "Quiet": True}
            refused = account.call("s3", "delete_objects", Bucket=found.bucket, Delete=batch).get("Errors", ())
            for each in refused:  # the request itself has succeeded
                raise ServiceError(f"bucket: {each['Key']} cannot be deleted: {each.get('Message', each.get('Code'))}")
        _away(account, "s3", "delete_bucket", Bucket=found.bucket)
        say(f"removed bucket {found.bucket} with {count(len(keys), 'object')}")
    profile = deployed.find("aws_lambda")
    if profile is not None and (profile.account, profile.region) == (account.number, account.region):
        deployed.forget()
        say("removed the profile of aws_lambda")


def _away(account: Account, service: str, method: str, **names: object) -> None:
    with contextlib.suppress(MissingError):
        account.call(service, method, **names)
