"""Runs on the emulated AWS Lambda that outlast their functions: a killed one, and those whose lifetime ends."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cloud.conftest import billed_usd, settled, trained

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
#: A lost supervisor is told within so many seconds.
TOLD_S = 20.0
#: When the supervisor is killed, seconds after it was invoked; the run's clock began at most so many before that.
KILLED_S, LAUNCH_S = 8.0, 2.0
#: Steps of a run that outlasts both a lost supervisor and a lifetime.
STEPS = 2500
#: Links over which a step takes long enough that so few steps outlast a lifetime.
MEGABIT = 80.0


@pytest.fixture(scope="module")
def whole(empty_box: Any) -> dict[str, Any]:
    """The same run on the user's machine, unbroken."""
    run = trained(empty_box, backend="embedded", steps=STEPS)
    assert run.get("status") == "finished", run
    return run


def test_a_killed_supervisor_is_replaced(box: Any, whole: dict[str, Any]) -> None:
    process = box.user(sys.executable, str(Path(__file__).with_name("train.py")), json.dumps({"steps": STEPS}))
    give_up_at = time.monotonic() + 60
    begun: list[dict[str, Any]] = []
    while not (begun and time.time() - begun[0]["at_s"] > KILLED_S) and time.monotonic() < give_up_at:
        begun = [each for each in box.invocations("began")[box.n_before :] if each["calls"] == ["00000"]]
        time.sleep(0.1)
    assert box.ask(kill=begun[0]["request"])
    said, errors = process.communicate(timeout=120)
    run = json.loads(said.splitlines()[-1])
    print("killed", run["time_s"], run["functions_usd"] / billed_usd(box), run["told"])
    assert run.get("status") == "finished", (run, errors[-1000:])
    assert run["digest"] == whole["digest"]
    (lost,) = [each for each in run["told"] if "The supervisor was lost" in each]
    assert float(lost.split()[0]) - KILLED_S < TOLD_S + LAUNCH_S
    assert run["functions_usd"] >= billed_usd(box)


def test_lifetimes_are_passed_by_handing_over(box: Any, whole: dict[str, Any]) -> None:
    """Functions that live 20 s train for longer. Their environments are warm: a start must be short against 20 s."""
    box.ask(set="megabit", value=MEGABIT)
    box.python("-c", WARM)
    box.ask(set="megabit", value=None)
    settled(box)
    box.n_before = len(box.invocations())
    box.ask(timeout=20)
    try:
        run = trained(box, config={"runtime_timeout": 20}, steps=STEPS, wait_s=150)
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
    # On a busy machine supervisors take over more often, and one does so after more steps than the step log keeps.
    assert (run.get("status"), run.get("steps"), run.get("digest")) == ("finished", STEPS, whole["digest"]), run
    assert run["time_s"] > 20
    assert len(ended) >= 8
    assert [each["error"] for each in ended] == [None] * len(ended)
    assert run["functions_usd"] >= 0.97 * billed_usd(box)  # successors that start as the run ends are estimated
