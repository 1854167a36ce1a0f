"""What a user does after `mlless-nb deploy`, on the emulated AWS Lambda: the checks, and one run with a report."""

from __future__ import annotations

import json
from typing import Any

import pytest
from cloud.conftest import COMMAND, ENDED_S, billed_usd, least_usd, settled

from mlless_nb.clouds.verifying import CAP_USD, STEPS, WORKERS

pytestmark = pytest.mark.long

#: What is checked, beside the functions.
CHECKED = ["profile", "runtime", "credentials", "quota", "bucket", "role", "layer", "redis"]


def test_a_deployment_is_well_and_one_small_run_shows_it(box: Any) -> None:
    from cloud.inside import PASSWORD, REDIS_NAME

    said = box.python("-c", COMMAND, "doctor").splitlines()
    print("\n".join(said))
    assert [line for line in said if not line.startswith("ok   ")] == []
    names = [line.removeprefix("ok   ").partition(": ")[0] for line in said]
    assert [name for name in names if not name.startswith("function of ")] == CHECKED
    assert len(names) > len(CHECKED)
    assert settled(box) == []

    path = box.home / "report.json"
    said = box.python("-c", COMMAND, "verify", "aws", "--report", str(path), wait_s=ENDED_S)
    report, ended = json.loads(path.read_text()), settled(box)
    print(said, report, ended)
    assert (report["is_good"], report["is_same_model"]) == (True, True)
    assert report["there"]["steps"] == STEPS
    assert [each["error"] for each in ended] == [None] * (WORKERS + 1)
    assert said.endswith(f"the model is this machine's\nwrote {path}\n")
    cost = report["there"]["cost_usd"]
    servers_usd = sum(cost.values()) - cost["workers"] - cost["supervisor"]
    assert least_usd(box) <= cost["workers"] + cost["supervisor"]
    assert 0 < max(billed_usd(box) + servers_usd, sum(cost.values())) <= CAP_USD
    for secret in ("123456789012", PASSWORD, REDIS_NAME, "AKIAUSER"):
        assert secret not in path.read_text()
