"""Whole runs with ``store="storage"`` and no Redis: the bits of Redis, no server, all ends, nothing is left."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from engine.jobs import PATIENCE_S, digest, finish, job, wait_for_step
from engine.test_faults import eventually, function_processes, group_of, is_gone, left_of, services_of, traces_of
from exchange.places import run_objects
from servers import S3_BACKEND

import mlless_nb
from mlless_nb import BSP, ISP, SSP, BackupWorkers, JobError, ScaleIn, ServiceError, Stop

LONG = Stop(steps=1_000_000)
DONE = "Everything is shut down"


@functools.cache
def on_redis(sync: Any, pattern: str) -> str:
    """The model of the same job over Redis."""
    return digest(finish(job(sync=sync, pattern=pattern, stop=Stop(steps=40))))


@pytest.mark.parametrize(
    ("sync", "pattern"),
    [
        (ISP(0.7), "scatter-reduce"),
        pytest.param(BSP(), "broadcast", marks=pytest.mark.long),
        pytest.param(ISP(0.7), "broadcast", marks=pytest.mark.long),
        pytest.param(BSP(), "allreduce", marks=pytest.mark.long),
        pytest.param(BackupWorkers(4), "auto", marks=pytest.mark.long),
    ],
    ids=str,
)
def test_a_run_without_a_redis_gives_the_same_bits(sync: Any, pattern: str) -> None:
    run = finish(job(store="storage", sync=sync, pattern=pattern, stop=Stop(steps=40)))
    assert run.status == "finished", run.reason
    assert digest(run) == on_redis(sync, pattern)
    assert len(run.history["step"]) == 40
    assert run.cost.redis == 0
    # Each of four workers writes a frame in every step.
    assert run.cost.storage > 40 * 4 * 5e-6
    assert run.cost.total == pytest.approx(sum(run.cost.values()))
    assert run.telemetry.state.events[-1].text.endswith(DONE)


@pytest.mark.parametrize(
    "sync",
    [
        ISP(0.5, staleness=1),
        *(pytest.param(sync, marks=pytest.mark.long) for sync in (SSP(2), mlless_nb.ASP(), BackupWorkers(2))),
    ],
    ids=str,
)
def test_protocols_in_which_workers_are_apart_train(sync: Any) -> None:
    run = finish(job(store="storage", sync=sync, stop=Stop(steps=60)))
    assert run.status == "finished", run.reason
    assert len(run.history["step"]) == 60
    assert run.history["loss"][-1] < run.history["loss"][0]
    assert run.telemetry.state.events[-1].text.endswith(DONE)


def test_no_server_is_started() -> None:
    run = mlless_nb.train(job(store="storage", stop=LONG))
    wait_for_step(run, 10)
    services = services_of(run)
    assert services.redis_urls == []
    assert services.embedded is None
    assert mlless_nb.driver.servers.embedded_redis._shared is None
    traces = traces_of(run)
    run.stop()
    assert run.wait(PATIENCE_S) == "stopped"
    assert not left_of(traces)


def test_a_storage_that_refuses_requests_of_the_driver_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """One refused request ended the run."""
    run = mlless_nb.train(job(store="storage", stop=LONG))
    wait_for_step(run, 10)
    objects = services_of(run).launcher.objects
    get, refused = objects.get, list[str]()

    def refusing(key: str, *span: int) -> bytes:
        if "/mail/" not in key and len(refused) < 5:  # the bus has a patience of its own
            refused.append(key)
            raise ServiceError("object storage: slow down (503)")
        return get(key, *span)

    monkeypatch.setattr(objects, "get", refusing)
    assert eventually(lambda: len(refused) >= 5)  # threads that ask at once may be refused one more
    wait_for_step(run, int(run.telemetry.state.step) + 10)
    run.stop()
    assert run.wait(PATIENCE_S) == "stopped", run.reason
    assert run.telemetry.state.events[-1].text.endswith(DONE)


@pytest.mark.parametrize("sync", [BSP(), pytest.param(SSP(2), marks=pytest.mark.long)], ids=str)
def test_a_capped_run_stays_below_its_cap(sync: Any) -> None:
    least = finish(job(store="storage", sync=sync, stop=Stop(steps=1))).cost.total
    run = finish(job(store="storage", sync=sync, stop=LONG, budget=3 * max(least, 0.001)))
    assert run.status == "capped", run.reason
    assert run.cost.total <= run.telemetry.state.budget_usd
    assert run.telemetry.state.events[-1].text.endswith(DONE)


@pytest.mark.long
def test_a_budget_may_be_set_while_it_runs() -> None:
    run = mlless_nb.train(job(store="storage", stop=LONG))
    wait_for_step(run, 5)
    run.budget = 0.02
    assert run.wait(PATIENCE_S) == "capped", run.reason
    assert run.cost.total <= 0.02


@pytest.mark.long
@pytest.mark.parametrize("victims", [[2], [-1]])
def test_what_is_lost_is_replaced_and_the_bits_stay(victims: list[int]) -> None:
    steady: dict[str, Any] = {"sync": ISP(0.7), "stop": Stop(steps=250), "checkpoint_every": 20}
    plain = finish(job(scale_in=ScaleIn.off(), **steady))
    run = mlless_nb.train(job(store="storage", scale_in=ScaleIn.off(), **steady))
    wait_for_step(run, 40)
    group, traces, processes = group_of(run), traces_of(run), function_processes(group_of(run))
    for slot in victims:
        os.kill(processes[slot], signal.SIGKILL)
    assert run.wait(PATIENCE_S) == "finished", run.reason
    assert digest(run) == digest(plain)
    assert run.history["step"].tolist() == list(range(1, 251))
    assert eventually(lambda: is_gone(group))  # a killed process is there until its parent has asked for it
    assert not left_of(traces)


@pytest.mark.long
def test_a_supervisor_that_takes_over_with_a_budget_has_the_money_to_read_the_step_log() -> None:
    """It was granted what a start costs, made a request for each step at once, and ended at its grant."""
    run = mlless_nb.train(job(store="storage", workers=2, stop=Stop(steps=600), checkpoint_every=50, budget=1.0))
    wait_for_step(run, 400)
    os.kill(function_processes(group_of(run))[-1], signal.SIGKILL)
    assert run.wait(PATIENCE_S) == "finished", run.reason
    assert run.history["step"].tolist() == list(range(1, 601))
    told = [event.text for event in run.telemetry.state.events]
    assert sum("The supervisor was lost" in text for text in told) == 1


OWNER = """
import sys
sys.path.insert(0, {tests!r})
import mlless_nb
from engine.jobs import job, wait_for_step
from engine.test_faults import group_of, traces_of
from mlless_nb import Stop
run = mlless_nb.train(job(store="storage", stop=Stop(steps=1_000_000), backend={backend!r}))
wait_for_step(run, 10)
print(group_of(run), *traces_of(run), sep="\\n", flush=True)
sys.stdin.read()
"""


def killed_owner(backend: Any, tmp_path: Path) -> tuple[int, list[str]]:
    """Start a run in a process of its own and kill that; the group of its functions and its traces."""
    script = tmp_path / "owner.py"
    script.write_text(OWNER.format(tests=str(Path(__file__).parents[1]), backend=backend))
    with subprocess.Popen(
        [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as owner:
        assert owner.stdout is not None
        group = int(owner.stdout.readline())
        traces = []
        while not traces or "mlless-watch" not in traces[-1]:
            traces.append(owner.stdout.readline().strip())
            assert traces[-1]
        owner.kill()
    return group, traces


@pytest.mark.long
def test_a_killed_notebook_leaves_nothing(tmp_path: Path) -> None:
    group, traces = killed_owner("embedded", tmp_path)
    assert eventually(lambda: is_gone(group) and not left_of(traces), 60.0), left_of(traces)


@pytest.mark.long
def test_a_killed_notebook_leaves_nothing_in_a_bucket(s3: Any, tmp_path: Path) -> None:
    group, traces = killed_owner(S3_BACKEND, tmp_path)
    assert eventually(lambda: is_gone(group) and not left_of(traces), 60.0), left_of(traces)
    assert run_objects(s3) == []


@pytest.mark.long
def test_a_run_on_s3_without_a_redis(s3: Any) -> None:
    run = finish(job(store="storage", backend=S3_BACKEND, stop=Stop(steps=8), sync=BSP(), workers=2))
    assert run.status == "finished", run.reason
    assert digest(run) == digest(finish(job(stop=Stop(steps=8), sync=BSP(), workers=2)))
    assert run_objects(s3) == []
    assert run.telemetry.state.events[-1].text.endswith(DONE)


def test_a_storage_that_writes_on_no_condition_is_one_line(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlless_nb.storage.conditional import S3Conditional

    monkeypatch.setattr(S3Conditional, "_add_headers", lambda self, params, **_: None)  # as if it ignored them
    with pytest.raises(JobError, match=r"store='storage': must be 'storage' with redis='redis://\.\.\.'") as caught:
        mlless_nb.train(job(store="storage", backend=S3_BACKEND))
    assert "\n" not in str(caught.value)
    assert run_objects(s3) == []


@pytest.mark.long
def test_a_url_of_a_redis_keeps_the_coordination_there(redis_url: str) -> None:
    run = mlless_nb.train(job(store="storage", redis=redis_url, stop=LONG))
    wait_for_step(run, 3)
    assert services_of(run).redis_urls == [redis_url]
    run.stop()
    assert run.wait(PATIENCE_S) == "stopped"
    assert run.cost.redis > 0
