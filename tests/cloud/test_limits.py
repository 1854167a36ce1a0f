"""The box itself: what a function may do in it is what it may do on AWS Lambda."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from cloud.cgroup import CORE_MB

pytestmark = pytest.mark.long

#: Makes the function, with the names that the tests format in.
MAKE = """
import boto3, io, json, sys, zipfile
blob = io.BytesIO()
with zipfile.ZipFile(blob, "w") as archive:
    entry = zipfile.ZipInfo("own.py")
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, sys.argv[2])
client = boto3.client("lambda")
name = sys.argv[1]
client.create_function(FunctionName=name, Runtime="python3.11", Role="arn:aws:iam::1:role/r", Handler="own.run",
                       Code={"ZipFile": blob.getvalue()}, MemorySize=256, Timeout=4)
"""
INVOKE = MAKE + "print(client.invoke(FunctionName=name, Payload=b'{}')['Payload'].read().decode())\n"
SEES = """
import os, pathlib, socket, resource
FOLDERS = ("/", "/opt", "/var/task", "/tmp")
def tried(action):
    try:
        return str(action())
    except Exception as error:
        return type(error).__name__
def run(event, context):
    outside = lambda where: socket.create_connection(where, 2)
    return {
        "uid": os.getuid(),
        "write": [tried(lambda: pathlib.Path(each, "x").write_text("x")) for each in FOLDERS],
        "shm": os.path.exists("/dev/shm"),
        "home": os.path.exists("/root") or os.path.exists("/home"),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "outside": [tried(lambda: outside(where)) for where in (("192.0.2.1", 443), ("10.77.0.4", 22))],
        "aws": tried(lambda: outside(("lambda.us-east-1.amazonaws.com", 443)).getpeername()[0]),
        "processes": len([each for each in os.listdir("/proc") if each.isdigit()]),
        "left_s": context.get_remaining_time_in_millis() / 1000,
    }
"""


def invoked(box: Any, name: str, code: str, script: str = INVOKE) -> Any:
    return json.loads(box.python("-c", script, name, code) or "null")


def test_a_function_sees_what_it_may_see(empty_box: Any) -> None:
    seen = invoked(empty_box, "sees", SEES)
    assert 0 < seen.pop("left_s") <= 4
    assert seen.pop("processes") == 2  # the sandbox's first one and the runtime
    refused = "OSError"  # a file system that is read-only
    assert seen == {
        "uid": 993,
        "write": [refused, refused, refused, "1"],
        "shm": False,
        "home": False,
        "files": 1024,
        "outside": ["OSError", "ConnectionRefusedError"],
        "aws": "10.77.0.2",
    }


@pytest.mark.parametrize(
    ("name", "code", "error"),
    [
        ("slow", "import time\ndef run(event, context):\n    time.sleep(60)\n", "Task timed out after 4.00 seconds"),
        ("large", "def run(event, context):\n    return len(b'x' * (400 << 20))\n", "signal: killed"),
        ("broken", "import not_there\n", "No module named 'not_there'"),
    ],
)
def test_limits_hold(empty_box: Any, name: str, code: str, error: str) -> None:
    assert error in invoked(empty_box, name, code)["errorMessage"]
    assert error in empty_box.invocations()[-1]["error"]


def test_a_function_has_a_share_of_a_core_by_its_memory(empty_box: Any) -> None:
    burns = """
import time
def run(event, context):
    began, used = time.monotonic(), time.process_time()
    while time.monotonic() - began < 2:
        pass
    return (time.process_time() - used) / (time.monotonic() - began)
"""
    share = invoked(empty_box, "burns", burns)
    print("share of a core", share)
    assert share < 1.3 * 256 / CORE_MB  # of the last of twenty periods it may have all that it is given in one


def test_an_event_that_fails_is_tried_twice_again_unless_the_function_says_otherwise(empty_box: Any) -> None:
    send = "client.invoke(FunctionName=name, InvocationType='Event', Payload=b'{}')\n"
    once = "client.put_function_event_invoke_config(FunctionName=name, MaximumRetryAttempts=0)\n"
    failing = "def run(event, context):\n    raise ValueError\n"
    empty_box.ask(set="retry_after_s", value=0.0)
    for name, script, n_tries in (("thrice", MAKE + send, 3), ("once", MAKE + once + send, 1)):
        invoked(empty_box, name, failing, script)
        give_up_at = time.monotonic() + 60
        while time.monotonic() < give_up_at:
            tries = [each["attempt"] for each in empty_box.invocations() if each["function"] == name]
            if len(tries) == n_tries:
                break
            time.sleep(0.05)
        time.sleep(0.2)
        assert [each["attempt"] for each in empty_box.invocations() if each["function"] == name] == list(range(n_tries))


def test_environments_are_used_again_and_know_what_was_before(empty_box: Any) -> None:
    counts = "calls = []\ndef run(event, context):\n    calls.append(1)\n    return len(calls)\n"
    assert invoked(empty_box, "counts", counts) == 1
    again = "import boto3\nprint(boto3.client('lambda').invoke(FunctionName='counts')['Payload'].read().decode())\n"
    assert json.loads(empty_box.python("-c", again)) == 2
    assert [each["is_cold"] for each in empty_box.invocations()[-2:]] == [True, False]


def test_what_exceeds_the_quota_is_refused_or_waits(empty_box: Any) -> None:
    empty_box.ask(set="quota", value=0)
    refused = invoked(
        empty_box,
        "waits",
        "def run(event, context):\n    return 1\n",
        MAKE
        + """
try:
    client.invoke(FunctionName=name)
except client.exceptions.TooManyRequestsException:
    print("true")
client.invoke(FunctionName=name, InvocationType='Event')
""",
    )
    assert refused
    n_before = len(empty_box.invocations())
    empty_box.ask(set="quota", value=1000)
    give_up_at = time.monotonic() + 60
    while len(empty_box.invocations()) == n_before and time.monotonic() < give_up_at:
        time.sleep(0.05)
    assert empty_box.invocations()[-1]["function"] == "waits"
