"""What happens when something dies, and what is left afterwards: real processes, real kill -9."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis
from engine.jobs import PATIENCE_S, finish, job, wait_for_step
from servers import RedisProcess

import mlless_nb
from mlless_nb import BSP, ISP, CommandError, ScaleIn, ServiceError, Stop
from mlless_nb.driver import driver
from mlless_nb.driver.backends.launcher import LithopsLauncher
from mlless_nb.driver.ending import teardown
from mlless_nb.driver.servers import embedded_redis
from mlless_nb.driver.servers.services import Services

LONG = Stop(steps=1_000_000)
pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks at processes through /proc")


def function_processes(run_group: int) -> dict[int, int]:
    """Process ids of the functions of one process group by slot (-1: the supervisor)."""
    found: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if os.getpgid(int(folder.name)) != run_group:
                continue
            opened = [os.readlink(link) for link in folder.glob("fd/*")]
        except OSError:
            continue
        for path in opened:
            call = re.search(r"/(\d{5})/job_stats\.txt$", path)
            if call:
                found[int(call[1]) - 1] = int(folder.name)
    return found


def group_of(run: mlless_nb.TrainingRun) -> int:
    """The process group of a live run's functions."""
    (group,) = run._send.__self__._services.launcher.process_groups  # type: ignore[union-attr]
    return int(group)


def services_of(run: mlless_nb.TrainingRun) -> Services:
    """What a live run stands on."""
    return run._send.__self__._services  # type: ignore[union-attr,no-any-return]


def is_gone(group: int) -> bool:
    """Whether no process of ``group`` is left."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


def traces_of(run: mlless_nb.TrainingRun) -> list[str]:
    """Every file and folder that a live run makes on this machine, but for what is kept on purpose (packed data)."""
    services = run._send.__self__._services  # type: ignore[union-attr]
    paths = [*services.launcher.temporary_paths, services.launcher.folder_of(f"runs/{run.id}")]
    return paths if services._watchdog is None else [*paths, str(services._watchdog.folder)]


def left_of(paths: list[str]) -> list[str]:
    """Which of ``paths`` are there."""
    return [path for path in paths if os.path.exists(path)]


def eventually(condition: object, within_s: float = 60.0) -> bool:
    """Whether ``condition()`` comes true in time."""
    give_up_at = time.monotonic() + within_s
    while not condition():  # type: ignore[operator]
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.05)
    return True


def digest(run: mlless_nb.TrainingRun) -> str:
    """What tells a run's model from any other."""
    params = run.model.params
    return hashlib.sha256(b"".join(params[name].tobytes() for name in sorted(params))).hexdigest()


#: A run that is long enough to be disturbed, and the same for each protocol in which bits are promised.
STEADY = {"stop": Stop(steps=1000), "scale_in": ScaleIn.off(), "checkpoint_every": 40}
SYNCS = {"BSP": BSP(), "ISP": ISP(0.7)}


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, str]:
    """Digests of the models of runs that nothing disturbs."""
    return {name: digest(finish(job(sync=sync, **STEADY))) for name, sync in SYNCS.items()}


@pytest.mark.long
@pytest.mark.parametrize(
    ("sync", "victims"),
    [("ISP", [0]), ("ISP", [-1])]
    + [("BSP", victims) for victims in ([2], [0], [-1, 1], [0, 1, 2, 3], [-1, 0, 1, 2, 3])],
)
def test_what_is_killed_is_replaced_and_the_model_is_that_of_an_undisturbed_run(
    sync: str, victims: list[int], undisturbed: dict[str, str]
) -> None:
    run = mlless_nb.train(job(sync=SYNCS[sync], **STEADY))
    wait_for_step(run, 50)
    group, traces, processes = group_of(run), traces_of(run), function_processes(group_of(run))
    assert left_of(traces)
    for slot in victims:
        os.kill(processes[slot], signal.SIGKILL)
    assert run.wait(PATIENCE_S) == "finished", run.reason
    assert digest(run) == undisturbed[sync]
    assert run.history["step"].tolist() == list(range(1, 1001))
    told = " ".join(event.text for event in run.telemetry.state.events)
    for slot in victims:
        assert ("supervisor was lost" if slot < 0 else f"{slot}") in told, told
    if victims != [-1]:
        assert re.search(r"lost.*; workers? [\d, ]+ replaced; training goes on from step \d+", told), told
    assert run.cost.total > 0
    assert eventually(lambda: is_gone(group))  # a killed process is there until its parent has asked for it
    assert not left_of(traces)


@pytest.mark.long
@pytest.mark.parametrize("budget", [None, 0.02])
def test_a_worker_that_is_lost_again_and_again_ends_the_run_with_its_newest_model(budget: float | None) -> None:
    run = mlless_nb.train(job(stop=LONG, checkpoint_every=5, scale_in=ScaleIn.off(), budget=budget))
    wait_for_step(run, 20)
    lost: set[int] = set()

    def kill_next() -> bool:
        """Kill each function of slot 2 that appears; whether the run has ended."""
        if not run.telemetry.state.is_live:
            return True
        try:
            nonce = services_of(run).log.at_work([2]).get(2, "")
        except Exception:  # the run ends meanwhile
            return True
        pid = int(nonce.partition("-")[0] or 0)
        if pid and pid not in lost:
            lost.add(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return False

    assert eventually(kill_next, PATIENCE_S)
    run.wait(PATIENCE_S)
    assert "the model is that of step" in run.reason
    assert run.model.predict([0], [0]).shape == (1,)
    if budget is None:
        assert run.status == "failed"
        assert "after 3 restarts the run is no further than step" in run.reason
        assert len(lost) >= 4
    else:  # it may end first
        assert run.status in ("failed", "capped")
        assert 0 < run.cost.total <= budget
        assert len(lost) >= 2


@pytest.mark.long
@pytest.mark.parametrize("budget", [None, 1.0])
@pytest.mark.parametrize("fault", ["paused", "emptied", "restarted"])
def test_a_redis_that_pauses_or_forgets_costs_time_and_no_bit(
    fault: str, budget: float | None, undisturbed: dict[str, str], own_redis: RedisProcess
) -> None:
    run = mlless_nb.train(job(sync=ISP(0.7), redis=own_redis.url, budget=budget, **STEADY))
    wait_for_step(run, 50)
    assert own_redis.process is not None
    if fault == "paused":
        os.kill(own_redis.process.pid, signal.SIGSTOP)
        time.sleep(2.0)
        os.kill(own_redis.process.pid, signal.SIGCONT)
    elif fault == "emptied":
        redis.Redis.from_url(own_redis.url).flushall()
    else:
        own_redis.kill()
        own_redis.start()
    assert run.wait(PATIENCE_S) == "finished", run.reason
    assert digest(run) == undisturbed["ISP"]
    assert run.history["step"].tolist() == list(range(1, 1001))
    if fault != "paused":
        assert any("training goes on from" in event.text for event in run.telemetry.state.events)
    assert not redis.Redis.from_url(own_redis.url).keys("*")
    assert budget is None or run.cost.total <= budget


@pytest.mark.long
def test_functions_hand_over_before_their_lifetime_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = LithopsLauncher.__init__

    def short_lived(self: LithopsLauncher, *arguments: object, **options: object) -> None:
        plain(self, *arguments, **options)  # type: ignore[arg-type]
        self.lifetime_s = 60.0  # a fifth of it is enough for a successor to start, on a busy machine, too

    monkeypatch.setattr(LithopsLauncher, "__init__", short_lived)
    steps = Stop(time_s=100.0)
    run = mlless_nb.train(job(sync=ISP(0.7), stop=steps, scale_in=ScaleIn.off()))
    assert run.wait(2 * PATIENCE_S) == "finished", run.reason
    told = [event.text for event in run.telemetry.state.events]
    assert sum("handed over" in text for text in told) >= 4, told
    assert not any("replaced" in text for text in told), told
    n = len(run.history["step"])
    assert run.history["step"].tolist() == list(range(1, n + 1))


@pytest.mark.parametrize("end", ["finished", "stopped", "failed"])
def test_nothing_is_left_after_a_run(end: str, redis_url: str) -> None:
    client = redis.Redis.from_url(redis_url)
    known = set(client.keys("*"))
    stop = Stop(steps=400) if end == "finished" else LONG
    learning_rate = 1e9 if end == "failed" else 1.0
    run = mlless_nb.train(job(optimizer=mlless_nb.SGD(learning_rate), stop=stop, redis=redis_url))
    traces = traces_of(run)
    if end == "stopped":
        wait_for_step(run, 3)
        run.stop()
    assert run.wait(PATIENCE_S) == end
    assert run.telemetry.state.events[-1].text.endswith("Everything is shut down")
    assert set(client.keys("*")) == known
    assert not left_of(traces)
    assert mlless_nb.driver.servers.embedded_redis._shared is None


def fail(*_: object, **__: object) -> None:
    """Stands for a part that does not do its own."""
    raise ServiceError("planted")


@pytest.mark.parametrize("n_failures", [2, pytest.param(10**6, marks=pytest.mark.long)])
def test_a_model_is_asked_for_again_and_never_removed_unread(n_failures: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teardown, "FETCH_PAUSE_S", 0.0)
    run = mlless_nb.train(job(stop=LONG))
    wait_for_step(run, 5)
    launcher, failures = services_of(run).launcher, iter(range(n_failures))
    folder, get = launcher.folder_of(f"runs/{run.id}"), launcher.objects.get
    launcher.objects.get = lambda key: get(key) if next(failures, None) is None else fail()  # type: ignore[assignment,method-assign]
    run.stop()
    assert run.wait(PATIENCE_S) == "stopped"
    assert embedded_redis._shared is None
    if n_failures == 2:
        assert run.model.predict([0], [0]).shape == (1,)
        assert not os.path.exists(folder)
    else:
        assert f"planted) and is left in {folder}" in run.reason
        assert "model" in os.listdir(folder)
        shutil.rmtree(folder)


def test_a_run_ends_whatever_fails_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    run = mlless_nb.train(job(stop=LONG, name="stubborn"))
    wait_for_step(run, 5)
    services, group = services_of(run), group_of(run)
    for part, step in ((services.bus, "close"), (services.log, "delete"), (teardown, "keep")):
        monkeypatch.setattr(part, step, fail)
    monkeypatch.setattr("threading.excepthook", lambda _: None)  # of `keep`
    run.stop()
    assert run.wait(PATIENCE_S) == "stopped"
    assert "planted" in run.reason
    assert run.model.predict([0], [0]).shape == (1,)
    assert is_gone(group)
    assert embedded_redis._shared is None
    assert run in mlless_nb.runs()


def test_a_failure_at_the_driver_ends_the_functions_in_good_order(monkeypatch: pytest.MonkeyPatch) -> None:
    kills: list[object] = []
    monkeypatch.setattr(LithopsLauncher, "kill", kills.append)
    run = mlless_nb.train(job(stop=LONG, budget=1.0))
    wait_for_step(run, 5)
    group, traces = group_of(run), traces_of(run)

    def fails(*_: object) -> None:  # not a server's refusal, which would be asked again
        raise ValueError("planted")

    monkeypatch.setattr(driver.UpdateFeed, "take", fails)
    assert run.wait(PATIENCE_S) == "failed"
    assert "planted" in run.reason
    assert is_gone(group)
    assert not kills
    assert not left_of(traces)
    assert 0 < run.cost.total <= 1.0


def test_the_shared_server_forgets_the_functions_of_an_ended_run() -> None:
    server = embedded_redis.acquire_shared()
    try:
        assert finish(job()).status == "finished"
        assert (server.folder / "cleanup").read_text() == ""
    finally:
        embedded_redis.release(server)


CELL = """
import sys, time
sys.path.insert(0, {tests!r})
import mlless_nb
from engine.jobs import job, wait_for_step
from engine.test_faults import group_of, traces_of
from mlless_nb import Stop
run = mlless_nb.train(job(stop=Stop(steps=10**6), redis={redis!r}))
wait_for_step(run, 5)
print(run.id, group_of(run), *traces_of(run), flush=True)
time.sleep({sleep_s})
"""


@pytest.mark.parametrize(
    ("death", "server"),
    [
        ("kill -9", "embedded"),
        pytest.param("exit", "redis", marks=pytest.mark.long),
        pytest.param("kill -9", "redis", marks=pytest.mark.long),
        pytest.param("exit", "embedded", marks=pytest.mark.long),
    ],
)
def test_nothing_is_left_when_the_driver_dies(
    death: str, server: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("redis_url") if server == "redis" else None
    sleep_s = 600 if death == "kill -9" else 0
    code = CELL.format(tests=str(Path(__file__).parents[1]), redis=url, sleep_s=sleep_s)
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert child.stdout is not None
    run_id, group, *traces = child.stdout.readline().split()
    if death == "kill -9":
        assert left_of(traces)
        with pytest.raises(CommandError, match="is live in another process"):
            mlless_nb.attach(run_id)
        child.kill()
    assert child.wait(30) == (-signal.SIGKILL if death == "kill -9" else 0)
    assert eventually(lambda: is_gone(int(group)))
    assert eventually(lambda: not left_of(traces)), left_of(traces)
    if url is not None:
        assert eventually(lambda: not redis.Redis.from_url(url).keys("*"))
    found = mlless_nb.attach(run_id)
    assert found.status == ("failed" if death == "kill -9" else "stopped"), found.reason
    assert found.reason.endswith("and its model went with it") or death == "exit"
    steps = found.history["step"].tolist()
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) >= 4
    assert found.cost.total > 0


def test_a_redis_that_is_not_there_is_told_before_anything_starts() -> None:
    with pytest.raises(ServiceError, match="redis"):
        mlless_nb.train(job(redis="redis://127.0.0.1:1/0"))
    assert all(not run.is_live for run in mlless_nb.runs())


def test_a_training_run_over_rabbitmq(rabbitmq_url: str) -> None:
    run = mlless_nb.train(job(stop=LONG, bus=rabbitmq_url))
    wait_for_step(run, 5)
    run.scale_in(1)
    seen = 0
    while run.telemetry.state.n_workers > 3:
        seen = run.telemetry.wait_for_change(seen, PATIENCE_S)
    run.stop()
    assert run.wait(PATIENCE_S) == "stopped"
    assert run.cost.broker > 0
    assert run.history["step"].tolist() == list(range(1, len(run.history["step"]) + 1))


@pytest.mark.long
def test_updates_over_two_redis_shards(redis_url: str) -> None:
    base = redis_url.rsplit("/", 1)[0]
    one = finish(job(redis=f"{base}/0"))
    two = finish(job(redis=[f"{base}/0", f"{base}/1"]))
    assert two.status == one.status == "finished"
    for name, array in one.model.params.items():
        assert (two.model.params[name] == array).all()
