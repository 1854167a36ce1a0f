"""The functions' role: they call nothing that it does not allow, and it allows nothing that no run calls.

And the notebook of a run calls nothing that the documented policy does not allow its user.
"""

from __future__ import annotations

from typing import Any

import pytest
from cloud.conftest import settled, trained

from mlless_nb.clouds import policies

pytestmark = pytest.mark.long

#: AWS Lambda itself writes the functions' logs; and an action that nobody has to be allowed.
OF_AWS, FREE = {"logs:CreateLogStream", "logs:PutLogEvents"}, {"sts:GetCallerIdentity"}
#: A function removes the table and objects of a driver that is gone.
IF_KILLED = {"dynamodb:DeleteTable", "s3:DeleteObject"}
#: What the user of every run calls.
RUNS = {"lambda:GetAccountSettings", "lambda:InvokeFunction", "s3:GetBucketLocation", "s3:ListBucket"} | {
    f"s3:{verb}Object" for verb in ("Get", "Put", "Delete")
}


def test_the_role_allows_what_functions_call_and_nothing_else(box: Any) -> None:
    """A run whose functions invoke each other, and one over DynamoDB."""
    box.ask(called=True)
    called, by_user = set[str](), set[str]()
    for options in ({"execution": "events"}, {"store": "dynamodb"}):
        run = trained(box, steps=3, **options)
        assert run.get("status") == "finished", run
        settled(box)
        asked = box.ask(called=True)
        called |= set(asked["ASIAFUNCTION"]) - FREE
        by_user |= set(asked["AKIAUSER"])
        assert box.ask(broken=True) == []
    allowed = {action for each in policies.function_policy("1", "r", "b")["Statement"] for action in each["Action"]}
    documented = {action for each in policies.user_policy()["Statement"] for action in each["Action"]}
    print(sorted(by_user))
    assert by_user <= documented
    # What packs a run, asks for the quota, invokes it, follows it and removes what it leaves.
    assert by_user >= RUNS
    assert called <= allowed
    assert allowed - called == OF_AWS | IF_KILLED
