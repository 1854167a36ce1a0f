"""The documented permissions of a user: each is needed for something that commands and runs do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.client import BaseClient
from clouds.emulator import Aws

from mlless_nb.clouds import policies
from mlless_nb.driver.backends.launcher import LithopsLauncher
from mlless_nb.exchange.protocol import key_prefix
from mlless_nb.exchange.stores import DynamoDBStore
from mlless_nb.storage.objects import MemoryObjects

#: The action of IAM that AWS asks for, of operations that are called otherwise.
ACTIONS = {
    "lambda:Invoke": "lambda:InvokeFunction",
    "s3:DeleteObjects": "s3:DeleteObject",
    "s3:HeadBucket": "s3:ListBucket",
    "s3:ListObjectsV2": "s3:ListBucket",
    "s3:PutPublicAccessBlock": "s3:PutBucketPublicAccessBlock",
}
#: Actions that AWS asks for, too, if an operation has an argument.
WITH = {
    ("lambda:CreateFunction", "Role"): "iam:PassRole",
    ("lambda:CreateFunction", "Tags"): "lambda:TagResource",
    ("iam:CreateRole", "Tags"): "iam:TagRole",
    ("logs:CreateLogGroup", "tags"): "logs:TagResource",
    ("dynamodb:CreateTable", "Tags"): "dynamodb:TagResource",
}


def test_each_documented_permission_is_used(
    cloud: Aws, run: Callable[..., tuple[int, str, str]], redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: set[str] = set()
    plain = BaseClient._make_api_call

    def noting(client: Any, operation: str, arguments: dict[str, Any]) -> Any:
        name = f"{client.meta.service_model.service_name}:{operation}"
        used.add(ACTIONS.get(name, name))
        used.update(action for (asked, argument), action in WITH.items() if asked == name and argument in arguments)
        return plain(client, operation, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", noting)
    assert run("deploy", "aws", "--memory", "512", "--redis", redis_url)[0] == 0
    assert run("doctor")[0] == 0
    launcher = LithopsLauncher("aws_lambda", 4, 512)
    launcher.prepare()
    launcher.close()
    for is_left in (False, True):
        store = DynamoDBStore(key_prefix("20261126-100000-0123abcd"), MemoryObjects())
        store.create()
        if not is_left:
            store.clear()
        store.close()
    assert run("remove", "aws", "--yes")[0] == 0
    documented = {action for each in policies.user_policy()["Statement"] for action in each["Action"]}
    assert documented - used == set()
    assert used - documented == set()
