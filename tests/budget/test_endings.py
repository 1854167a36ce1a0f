"""Fifty endings of runs, and what is left after each: no process, no key, no queue, no temporary file."""

from __future__ import annotations

import math
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
import redis
from budget.observer import PATIENCE_S
from budget.trial import Trial
from folders import paths_below

import mlless_nb
from mlless_nb.bus.base import TOPICS

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")
FOR_EVER: dict[str, Any] = {"stop": {"steps": 10**6}}
#: How a run may end, the statuses that it may end with, and what the driver is told. "killed": it says nothing more.
ENDINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "its steps are done": ("finished", {"stop": {"steps": 40}}),
    "its epochs are done": ("finished", {"stop": {"epochs": 3}}),
    "its time is over": ("finished", {"stop": {"time_s": 1.0}}),
    "its target is reached": ("finished", {"stop": {"target": 0.99}}),
    "its patience is over": ("finished", {"stop": {"patience": 1, "steps": 10**6}}),
    "stopped": ("stopped", {**FOR_EVER, "then": "stop"}),
    "stopped at once": ("stopped", {**FOR_EVER, "then": "stop", "at": 0}),
    "capped": ("capped", {"cap": 0.002}),
    "capped before it began": ("capped", {"cap": "least"}),
    "refused for its budget": ("refused", {"cap": 1e-9}),
    "refused for its bus": ("refused", {"bus": "amqp://guest:guest@127.0.0.1:1/%2F"}),
    "diverged": ("failed", {**FOR_EVER, "learning_rate": 1e9}),
    "interrupted": ("killed", {**FOR_EVER, "then": "be interrupted", "signal": signal.SIGINT}),
    "driver terminated": ("killed", {**FOR_EVER, "then": "be interrupted", "signal": signal.SIGTERM}),
    "driver killed": ("killed", {**FOR_EVER, "then": "be interrupted", "signal": signal.SIGKILL}),
    "driver killed at the start": ("killed", {**FOR_EVER, "then": "be interrupted", "signal": signal.SIGKILL, "at": 0}),
    "driver and functions killed": (
        "killed",
        {**FOR_EVER, "then": "be interrupted", "signal": signal.SIGKILL, "kills": [0, 1, -1]},
    ),
    "driver returns": ("killed", {**FOR_EVER, "then": "return"}),
    "driver fails": ("killed", {**FOR_EVER, "then": "raise"}),
    "driver exits at once": ("killed", {**FOR_EVER, "then": "die"}),
    "a worker lost": ("finished", {"stop": {"steps": 600}, "then": "go on", "kills": [1]}),
    "the supervisor lost": ("finished", {"stop": {"steps": 600}, "then": "go on", "kills": [-1]}),
    "all functions lost": ("finished", {"stop": {"steps": 600}, "then": "go on", "kills": [0, 1, -1]}),
    "a worker lost again and again": ("failed", {**FOR_EVER, "then": "go on", "hunts": 1}),
    "a worker left": ("finished", {"stop": {"steps": 200}, "then": "scale in"}),
}
#: Without Redis and with functions that live for a step: no further servers, so once each.
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "without Redis": ("finished", {"stop": {"steps": 10}, "store": "storage"}),
    "without Redis, stopped": ("stopped", {**FOR_EVER, "store": "storage", "then": "stop"}),
    "without Redis, driver killed": (
        "killed",
        {**FOR_EVER, "store": "storage", "then": "be interrupted", "signal": signal.SIGKILL},
    ),
    "map-reduce": ("finished", {"stop": {"steps": 3}, "execution": "map-reduce", "sync": "BSP"}),
    "map-reduce, driver killed": (
        "killed",
        {**FOR_EVER, "execution": "map-reduce", "sync": "BSP", "then": "be interrupted", "signal": signal.SIGKILL},
    ),
}
#: Seconds after the end of the driver within which all processes are gone: they are killed, whatever they are doing, so
#: that it takes a busy machine little longer than an idle one.
GONE_S = 5.0
#: Those that `make test-long` runs; all others are campaigns.
LONG = {"interrupted", "driver killed at the start", "driver and functions killed"}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Everything temporary of these runs; the first one packs the data, which stays on purpose."""
    with tempfile.TemporaryDirectory(prefix="mlless-endings-") as name, pytest.MonkeyPatch.context() as patch:
        (Path(name) / "tmp").mkdir()
        patch.setenv("XDG_DATA_HOME", f"{name}/data")
        patch.setenv("TMPDIR", f"{name}/tmp")
        for told in ({"stop": {"steps": 1}}, {"stop": {"steps": 1}, "workers": 2}):
            with Trial(**told) as trial:
                assert trial.finish()["status"] == "finished"
        yield Path(name) / "tmp"


def files_of(folder: Path) -> set[str]:
    """All files and folders below ``folder`` that are not kept on purpose: packed data, Lithops' copy of itself.

    Neither is the folder that holds those of all runs: Lithops removes it with the last object in it, a watchdog leaves
    it to other runs.
    """
    found = {str(path.relative_to(folder)) for path in paths_below(folder)}
    kept = {path for path in found if "/mlless-nb/data" in path or path.endswith("/mlless-nb/runs")}
    return {path for path in found - kept if not path.startswith("mlless-trial-")}


def queues_of(url: str, run_id: str) -> list[str]:
    """The run's queues on the broker."""
    found = []
    for topic in TOPICS:
        with pika.BlockingConnection(pika.URLParameters(url)) as connection:
            try:
                connection.channel().queue_declare(f"mlless.{run_id}.{topic}", passive=True)
                found.append(topic)
            except pika.exceptions.ChannelClosedByBroker:
                pass
    return found


def hunt(trial: Trial, slot: int) -> None:
    """Kill every function of ``slot`` until the run ends."""
    while trial.driver.poll() is None:
        trial.observer.wait(lambda: trial.observer.functions(slot) or trial.driver.poll() is not None, 1.0)
        trial.kill(slot)


def end(trial: Trial, told: dict[str, Any]) -> dict[str, Any]:
    """Let the trial end as it was ``told``; what the driver said."""
    if "then" in told:
        assert trial.observer.wait(lambda: trial.has_said("step"), PATIENCE_S)
    if "signal" in told:
        trial.driver.send_signal(told["signal"])
    for slot in told.get("kills", ()):
        trial.kill(slot)
    if "hunts" in told:
        hunt(trial, told["hunts"])
    return trial.finish()


def outlived_s(trial: Trial) -> float:
    """How long the last process of a trial that has ended lived after its driver, seconds, by the system's word."""
    died_s = {life.pid: life.died_s or math.inf for life in trial.observer.lives}
    return max(died_s.values()) - died_s[trial.driver.pid]


def check(told: dict[str, Any], status: str, folder: Path, redis_url: str | None, bus_url: str | None) -> None:
    """Let a run end, and look for what is left of it."""
    client = redis.Redis.from_url(redis_url) if redis_url is not None else None
    servers = {"redis": redis_url, "bus": bus_url} | {name: told[name] for name in ("bus",) if name in told}
    told = {"workers": 2, **told, **servers}
    if told.get("cap") == "least":
        with Trial(**told | {"cap": 1e-9}) as refused:
            told["cap"] = refused.least_usd()
    files, keys = files_of(folder), set(client.keys("*")) if client is not None else set()
    with Trial(**told) as trial:
        said = end(trial, told)
        assert said.get("status", "killed") == status, said
        run_id = next((line["run"] for line in trial.lines if "run" in line), None)
        spans = trial.observer.spans()
        assert spans or status == "refused" or told.get("at") == 0
        slowest_s = outlived_s(trial)
        print(f"{said.get('reason', 'killed')}: the last process ended {slowest_s:.2f} s after the driver")
        assert slowest_s <= GONE_S
    if status in ("finished", "stopped", "capped", "failed"):
        assert said["events"][-1].endswith("Everything is shut down")
        assert not any(said["left"].values()), said["left"]
        assert {"processes", "queues", "files"} <= said["left"].keys()
    if bus_url is not None and run_id is not None and status == "killed":
        mlless_nb.clean(redis=bus_url)  # a broker keeps queues until they expire; its password is not kept
    assert run_id is None or bus_url is None or queues_of(bus_url, run_id) == []
    # After a killed driver its watchdog cleans up.
    give_up_at = time.monotonic() + PATIENCE_S
    while (left := left_of(files, keys, folder, client)) and time.monotonic() < give_up_at:
        time.sleep(0.05)
    assert not left


def left_of(files: set[str], keys: set[bytes], folder: Path, client: Any) -> list[object]:
    """What there is now and was not there before."""
    new: list[object] = sorted(files_of(folder) - files)
    return new + sorted(set(client.keys("*")) - keys) if client is not None else new


def marked(endings: dict[str, Any], long: set[str]) -> list[Any]:
    """Parameters of a test: those of ``long`` run in the long tests, the others in `make test-proof`."""
    return [pytest.param(name, marks=pytest.mark.long if name in long else pytest.mark.proof) for name in endings]


@pytest.mark.parametrize("name", marked(ENDINGS, LONG))
def test_nothing_is_left_after_a_run_on_redis(name: str, folder: Path, redis_url: str) -> None:
    status, told = ENDINGS[name]
    check(told, status, folder, redis_url, None)


@pytest.mark.proof
@pytest.mark.parametrize("name", ENDINGS)
def test_nothing_is_left_after_a_run_over_rabbitmq(name: str, folder: Path, redis_url: str, rabbitmq_url: str) -> None:
    status, told = ENDINGS[name]
    check(told, status, folder, redis_url, rabbitmq_url)


@pytest.mark.proof
@pytest.mark.parametrize("name", OTHERS)
def test_nothing_is_left_after_a_run_of_another_kind(name: str, folder: Path) -> None:
    status, told = OTHERS[name]
    check(told, status, folder, None, None)
