"""The functions' role: they call nothing that it does not allow, and it allows nothing that no run calls."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from cloud.conftest import settled, trained

from mlless_nb.clouds import policies

pytestmark = pytest.mark.long

#: AWS Lambda itself writes the functions' logs; and an action that nobody has to be allowed.
OF_AWS, FREE = {"logs:CreateLogStream", "logs:PutLogEvents"}, {"sts:GetCallerIdentity"}


def test_the_role_allows_what_functions_call_and_nothing_else(box: Any) -> None:
    """A run whose functions invoke each other, and one whose driver is killed before its table is dropped."""
    box.ask(called=True)
    run = trained(box, execution="events", steps=3)
    assert run.get("status") == "finished", run
    settled(box)
    events = set(box.ask(called=True))
    job = json.dumps({"store": "dynamodb", "steps": 1_000_000, "says_step": 2})
    driver = box.user(sys.executable, str(Path(__file__).with_name("train.py")), job, start_new_session=True)
    assert driver.stdout is not None
    said = driver.stdout.readline()
    os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    assert json.loads(said)["step"] >= 2, said
    settled(box)
    table = set(box.ask(called=True))
    print("events", sorted(events), "table", sorted(table))
    allowed = {action for each in policies.function_policy("1", "r", "b")["Statement"] for action in each["Action"]}
    assert (events | table) - FREE == allowed - OF_AWS
