"""Runs on the emulated AWS Lambda that outlast their functions: a killed one, and those whose lifetime ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cloud.conftest import ENDED_S, Unbroken, billed_usd, least_usd, settled, slow_links, trained

pytestmark = pytest.mark.long

#: Makes environments for two functions of each slot.
WARM = """
import boto3
from concurrent.futures import ThreadPoolExecutor
client = boto3.client("lambda")
(name,) = [each["FunctionName"] for each in client.list_functions()["Functions"] if each["MemorySize"] == 1769]
with ThreadPoolExecutor(8) as pool:
    list(pool.map(lambda _: client.invoke(FunctionName=name, Payload=b'{"get_metadata": {}}'), range(8)))
"""
#: A lost supervisor is invoked again within so many seconds, by the clock of the cloud. It takes 15 s on a quiet
#: machine, those of its lease, and would take 60 without one.
REPLACED_S = 40.0
#: Steps that outlast both a lost supervisor and a lifetime over links of so many megabits a second.
STEPS, MEGABIT = 1000, 30.0
#: Chosen by the measured links, it would be another one on a busy machine, with other bits.
PATTERN = "broadcast"
#: Seconds that functions live.
LIFETIME_S = 20


def supervisors(box: Any) -> list[dict[str, Any]]:
    """The beginnings of this test's supervisors: each is the first call of a job."""
    return [each for each in box.invocations("began")[box.n_before :] if each["calls"] == ["00000"]]


def test_a_killed_supervisor_is_replaced(box: Any, unbroken: Unbroken) -> None:
    with slow_links(box, MEGABIT):
        job = json.dumps({"steps": STEPS, "says_step": 1, "pattern": PATTERN})
        process = box.user(sys.executable, str(Path(__file__).with_name("train.py")), job)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["step"] < STEPS
        (first,) = supervisors(box)
        assert box.ask(kill=first["request"])
        said, errors = process.communicate(timeout=ENDED_S)
    run = json.loads(said.splitlines()[-1])
    _, second = supervisors(box)
    (killed,) = [each for each in box.invocations("killed") if each["request"] == first["request"]]
    replaced_s = second["at_s"] - killed["at_s"]
    print("killed", run["time_s"], replaced_s, run["functions_usd"] / billed_usd(box), run["told"])
    assert run.get("status") == "finished", (run, errors[-1000:])
    assert run["digest"] == unbroken(STEPS)["digest"]
    assert len([each for each in run["told"] if "The supervisor was lost" in each]) == 1
    assert replaced_s < REPLACED_S
    assert run["functions_usd"] >= billed_usd(box)


def outlasting(box: Any, steps: int) -> dict[str, Any]:
    """A run of functions that live for `LIFETIME_S`. Their environments are warm: a start must be short against it."""
    with slow_links(box, MEGABIT):
        box.python("-c", WARM)
    settled(box)
    box.n_before = len(box.invocations())
    box.ask(timeout=LIFETIME_S)
    try:
        run = trained(box, config={"runtime_timeout": LIFETIME_S}, steps=steps)
    finally:
        box.ask(timeout=900)
    ended = settled(box)
    print(
        "lifetimes",
        run["time_s"],
        run["functions_usd"] / billed_usd(box),
        run["told"],
        [(each["billed_ms"], each["error"]) for each in ended],
    )
    assert (run.get("status"), run.get("steps")) == ("finished", steps), run
    assert [each["error"] for each in ended] == [None] * len(ended)
    assert run["functions_usd"] >= least_usd(box)
    return run


def test_lifetimes_are_passed_by_handing_over(box: Any, unbroken: Unbroken) -> None:
    run = outlasting(box, STEPS)
    # On a busy machine supervisors take over more often, and one does so after more steps than the step log keeps.
    assert run["digest"] == unbroken(STEPS)["digest"]
    assert run["time_s"] > LIFETIME_S
    assert len(settled(box)) >= 8
