"""`mlless-nb remove aws` on what runs have left."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import boto3
from clouds.emulator import Aws

from mlless_nb.driver.runs import _Start
from mlless_nb.exchange.protocol import key_prefix
from mlless_nb.exchange.stores import DynamoDBStore
from mlless_nb.storage.objects import MemoryObjects


def test_tables_of_runs_go_and_no_others(cloud: Aws, run: Callable[..., tuple[int, str, str]]) -> None:
    """A run with ``store="dynamodb"`` that was killed with its functions leaves its table."""
    run_id = _Start(cast(Any, SimpleNamespace(name=None)))._run_id
    store = DynamoDBStore(key_prefix(run_id), MemoryObjects())
    store.create()
    store.close()
    client = boto3.client("dynamodb")
    untagged, others = f"mlless-{run_id[:-8]}00000000", "mlless-of-somebody"
    tag = {"Key": "mlless-nb", "Value": "1"}
    for name, tags in ((untagged, []), (others, [tag]), ("table", [tag])):
        client.create_table(
            TableName=name,
            AttributeDefinitions=[{"AttributeName": "k", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "k", "KeyType": "HASH"}],
            BillingMode="PAY_PER_REQUEST",
            Tags=tags,
        )
    there = client.list_tables()["TableNames"]
    assert len(there) == 4
    status, said, _ = run("remove", "aws", "--dry-run")
    assert (status, said.splitlines()[0]) == (0, f"table mlless-{run_id}")
    assert client.list_tables()["TableNames"] == there
    status, said, _ = run("remove", "aws", "--yes")
    assert (status, said.splitlines()[-1]) == (0, f"removed table mlless-{run_id}")
    assert sorted(client.list_tables()["TableNames"]) == sorted([untagged, others, "table"])
    assert run("remove", "aws")[1] == "account 123456789012 has nothing of mlless_nb in us-east-1\n"
