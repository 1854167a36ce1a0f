"""Runs on the emulated AWS Lambda: the same model as on this machine, the bill, and what is refused or told."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cloud.conftest import Unbroken, billed_usd, busy, deploy, least_usd, settled, trained

pytestmark = pytest.mark.long

#: What is left on the user's Redis and in the bucket, apart from packed data, which later runs use again.
LEFT = """
import boto3, json, redis, sys
bucket = "mlless-nb-123456789012-us-east-1"
keys = [each["Key"] for each in boto3.client("s3").list_objects_v2(Bucket=bucket).get("Contents", [])]
print(json.dumps([sorted(key for key in keys if "/datasets/" not in key and not key.startswith("lithops.runtimes/")),
                  [key.decode() for key in redis.Redis.from_url(sys.argv[1]).keys("*")]]))
"""
#: Steps of runs that are to finish; of those whose bill is compared: what a runtime takes to end is little of them.
STEPS, BILLED_STEPS = 200, 1000
#: A function that did not start is told within so many seconds, half of it on a quick machine: found by its leases,
#: it would be told after 90.
TOLD_S = 40.0


#: What replaces lines of the functions' entry: those of 512 MB need more than they have, others miss a package.
BROKEN = {
    "from __future__ import annotations\n": (
        "import os\n"
        "if os.environ['AWS_LAMBDA_FUNCTION_MEMORY_SIZE'] != '512':\n"
        "    import a_package_that_is_not_there\n"
    ),
    "    invocation = Message.decode(checked(payload))\n": (
        "    invocation = [Message.decode(checked(payload)), b'x' * (600 << 20)][0]\n"
    ),
}
#: As above, for the functions of runs with 30 steps.
TOO_LARGE = {
    "    invocation = Message.decode(checked(payload))\n": (
        "    invocation = [Message.decode(checked(payload)), b'x' * ((300 << 20) * ('\"steps\":30' in payload))][0]\n"
    ),
}


@contextlib.contextmanager
def patched(box: Any, changes: Mapping[str, str]) -> Iterator[None]:
    """The functions' entry with ``changes``."""
    (layers,) = {each["layers"] for name, each in box.ask(functions=True).items() if name.startswith("mlless-")}
    path = Path(layers) / "python/mlless_nb/function/entry.py"
    whole = path.read_text()
    text = whole
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    try:
        yield
    finally:
        path.write_text(whole)
        box.ask(forget=True)


def test_three_workers_train_cold_and_warm(box: Any, unbroken: Unbroken) -> None:
    from cloud.box import REDIS

    for is_cold in (True, False):
        box.n_before = len(box.invocations())
        run = trained(box, steps=BILLED_STEPS)
        assert (run.get("status"), run.get("steps")) == ("finished", BILLED_STEPS), run
        assert run["digest"] == unbroken(BILLED_STEPS)["digest"]
        ended = settled(box)
        assert [each["is_cold"] for each in ended] == [is_cold] * 4
        assert [each["error"] for each in ended] == [None] * 4
        billed = billed_usd(box)
        print("cold" if is_cold else "warm", run["functions_usd"] / billed, run["time_s"], run["whole_s"], ended)
        assert 0.95 * billed <= run["functions_usd"] <= 1.05 * billed
        assert any(f"3 of 3 workers started: 3 {'cold' if is_cold else 'warm'} within" in text for text in run["told"])
    assert box.ask(broken=True) == []
    assert json.loads(box.python("-c", LEFT, REDIS)) == [[], []]


def test_a_quota_that_is_too_small_is_refused_before_anything_is_invoked(box: Any) -> None:
    box.ask(set="quota", value=3)
    run = trained(box)
    assert run["refused"] == "workers=3: must be at most 2: aws_lambda runs 3 functions at once"
    assert not [each for each in box.ask(requests=True) if each.endswith("/invocations")]


def test_functions_that_cannot_start_are_told_of_with_the_cause(box: Any) -> None:
    """Two runs at once: the functions of one miss a package, those of the other have too little memory."""
    causes = {
        1769: "could not start: ModuleNotFoundError: No module named 'a_package_that_is_not_there'",
        512: "ran out of memory: memory_mb=512 is too small for this job",
    }
    with patched(box, BROKEN), ThreadPoolExecutor(len(causes)) as pool:
        runs = list(pool.map(lambda memory_mb: trained(box, workers=2, memory_mb=memory_mb), causes))
    ended = settled(box)
    for run, (memory_mb, cause) in zip(runs, causes.items(), strict=True):
        assert run.get("status") == "failed", run
        assert cause in run["reason"]
        own = [each for each in ended if each["memory_mb"] == memory_mb]
        print(memory_mb, run["ended_at_s"] - min(each["at_s"] for each in own), run["reason"])
        assert run["ended_at_s"] - min(each["at_s"] for each in own) < TOLD_S
        assert run["functions_usd"] >= sum(each["usd"] for each in own) > 0


def test_the_smallest_functions_train_and_tell_of_too_little_memory(box: Any, unbroken: Unbroken) -> None:
    """Two runs at once with 128 MB for each function: those of the longer one need more than they have."""
    from cloud.box import REDIS

    deploy(box, "--redis", REDIS, "--memory", "128")
    settled(box)
    box.ask(forget=True)
    box.n_before = len(box.invocations())
    with patched(box, TOO_LARGE), ThreadPoolExecutor(2) as pool:
        small, large = pool.map(lambda steps: trained(box, memory_mb=128, steps=steps), (20, 30))
    ended = settled(box)
    print("128 MB", small, large, ended)
    assert (small.get("status"), small.get("digest")) == ("finished", unbroken(20)["digest"]), small
    assert large.get("status") == "failed", large
    assert "ran out of memory: memory_mb=128 is too small for this job" in large["reason"]
    assert large["ended_at_s"] - ended[0]["at_s"] < TOLD_S
    assert large["functions_usd"] > 0
    assert small["functions_usd"] + large["functions_usd"] >= billed_usd(box)


def test_functions_with_a_third_of_a_core_are_not_ended_by_their_budget(box: Any, unbroken: Unbroken) -> None:
    with busy(box):
        run = trained(box, steps=STEPS, memory_mb=512)
    assert (run.get("status"), run.get("digest")) == ("finished", unbroken(STEPS)["digest"]), run
    ended = settled(box)
    print("512 MB", run["time_s"], run["functions_usd"] / billed_usd(box), ended)
    assert [(each["error"], each["attempt"]) for each in ended] == [(None, 0)] * 4  # nobody was replaced
    assert run["functions_usd"] >= least_usd(box)


def test_deploying_is_not_billed_as_training(box: Any, unbroken: Unbroken) -> None:
    """With a configuration of the user's own Lithops deploys the function, which takes a while."""
    remove = (
        "import boto3, os, shutil\nshutil.rmtree(os.path.expanduser('~/.lithops'))\n"
        "client, s3 = boto3.client('lambda'), boto3.client('s3')\n"
        "bucket = 'mlless-nb-123456789012-us-east-1'\n"
        "listed = client.list_functions()['Functions']\n"
        "names = [each['FunctionName'] for each in listed if each['MemorySize'] == 1769]\n"
        "for name in names:\n    client.delete_function(FunctionName=name)\n"
        "for each in s3.list_objects_v2(Bucket=bucket, Prefix='lithops.runtimes/')['Contents']:\n"
        "    if names[0] in each['Key']:\n        s3.delete_object(Bucket=bucket, Key=each['Key'])\n"
    )
    box.python("-c", remove)
    run = trained(box, config={"runtime": "default"}, steps=STEPS)
    assert (run.get("status"), run.get("digest")) == ("finished", unbroken(STEPS)["digest"]), run
    deployed, *_ = settled(box)
    assert deployed["calls"] is None
    assert run["time_s"] < run["whole_s"] - deployed["billed_ms"] / 1000
    made = [each for each in box.ask(requests=True) if each.startswith("PUT") and each.endswith("event-invoke-config")]
    assert made
    assert run["functions_usd"] >= least_usd(box) - deployed["usd"]
