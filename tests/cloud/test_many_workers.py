"""Twenty-four workers on the emulated AWS Lambda, over links of a gigabit a second and a round trip of a millisecond.

They share the cores of this machine, which those of AWS do not: a step's time is printed beside what it is made of.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cloud.conftest import ENDED_S, billed_usd, least_usd, settled, trained

pytestmark = pytest.mark.proof

WORKERS, MEMORY_MB = 24, 512
MEGABIT, ROUND_TRIP_S = 1000.0, 1e-3
STEPS, FIRST, LAST = 300, 50, 250
#: A budget that a run without another end uses up, US dollars.
CAP_USD = 0.007
#: Makes environments for all functions: on few cores they take longer to start than a run waits for them.
WARM = """
import boto3, sys
from botocore.config import Config
from concurrent.futures import ThreadPoolExecutor
client = boto3.client("lambda", config=Config(read_timeout=300, max_pool_connections=50))
memory, n = int(sys.argv[1]), int(sys.argv[2])
(name,) = [each["FunctionName"] for each in client.list_functions()["Functions"] if each["MemorySize"] == memory]
with ThreadPoolExecutor(n) as pool:
    list(pool.map(lambda _: client.invoke(FunctionName=name, Payload=b'{"get_metadata": {}}'), range(n)))
"""
#: Prints the seconds of a round trip to a Redis.
PING = """
import redis, statistics, sys, time
client, spans = redis.Redis.from_url(sys.argv[1]), []
for _ in range(200):
    began = time.perf_counter()
    client.ping()
    spans.append(time.perf_counter() - began)
print(statistics.median(spans))
"""


@pytest.fixture
def far(box: Any) -> str:
    """A Redis a millisecond away; and the environments of all functions, with links to it."""
    from cloud.box import REDIS
    from cloud.inside import FAR_NAME, REDIS_NAME

    box.ask(set="megabit", value=MEGABIT)
    try:
        box.python("-c", WARM, str(MEMORY_MB), str(WORKERS + 1), wait_s=ENDED_S)
    finally:
        box.ask(set="megabit", value=None)
    box.ask(relay=ROUND_TRIP_S / 2)
    settled(box)
    box.n_before = len(box.invocations())
    return REDIS.replace(REDIS_NAME, FAR_NAME)


def said(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1][-1000:]
    return json.loads(line)


def test_they_train_over_real_links_and_scale_in_and_budget_act(box: Any, far: str) -> None:
    job = {"workers": WORKERS, "memory_mb": MEMORY_MB, "redis": far, "minibatch": 256, "pattern": "broadcast"}
    round_trip_s = float(box.python("-c", PING, far))
    options = json.dumps({**job, "steps": STEPS, "says_step": [FIRST, LAST]})
    process = box.user(sys.executable, str(Path(__file__).with_name("train.py")), options)
    looks = [(said(process)["step"], time.monotonic(), box.ask(cpu_s=True)) for _ in (FIRST, LAST)]
    words, errors = process.communicate(timeout=ENDED_S)
    run = json.loads(words.splitlines()[-1])
    assert (run.get("status"), run.get("steps")) == ("finished", STEPS), (run, errors[-1000:])
    (first, began, (own_before_s, all_before_s)), (last, ended, (own_s, all_s)) = looks
    step_s = (ended - began) / (last - first)
    # On the cores that what runs beside the box has left it.
    cores = (os.cpu_count() or 1) - (all_s - all_before_s - own_s + own_before_s) / (ended - began)
    computing_s = (own_s - own_before_s) / (last - first) / cores
    wire_s = run["moved_bytes"] / WORKERS * 8 / (MEGABIT * 1e6)
    bound_s = computing_s + 1.3 * round_trip_s + wire_s
    figures = {
        "step_ms": step_s * 1e3,
        "computing_ms": computing_s * 1e3,
        "cores": cores,
        "round_trip_ms": round_trip_s * 1e3,
        "wire_ms": wire_s * 1e3,
        "bound_ms": bound_s * 1e3,
        "peak_mb": max(each["peak_mb"] for each in settled(box)),
    }
    print("figures", json.dumps(figures))  # read by benchmarks/lambda_steps.py
    assert [each["error"] for each in settled(box)] == [None] * (WORKERS + 1)
    assert run["functions_usd"] >= least_usd(box)

    box.n_before = len(box.invocations())
    run = trained(box, **job, steps=1_000_000, tuned=True, budget=CAP_USD)
    print(run.get("time_s"), run.get("steps"), run.get("n_workers"), run.get("told"))
    assert run.get("status") == "capped", run
    assert run["n_workers"][0] == WORKERS > run["n_workers"][1]
    servers_usd = sum(run["cost"].values()) - run["functions_usd"]
    assert max(billed_usd(box), run["functions_usd"]) + servers_usd <= CAP_USD
