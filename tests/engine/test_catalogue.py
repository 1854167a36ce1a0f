"""Faults of the catalogue in docs/reliability.md that have no file of their own: real servers, real processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
from audit import unpickling
from engine.jobs import PATIENCE_S, digest, finish, job, ratings, wait_for_step
from engine.test_faults import eventually, group_of, is_gone, services_of
from servers import RabbitProcess, RedisProcess, Relay

import mlless_nb
from mlless_nb import BSP, ISP, SGD, NumpyModel, ServiceError, Stop, datasets
from mlless_nb.driver.backends.launcher import LithopsLauncher
from mlless_nb.driver.launch import invocations
from mlless_nb.storage.run_objects import newest_whole

STEADY: dict[str, Any] = {"sync": ISP(0.7), "stop": Stop(steps=600), "checkpoint_every": 40}
DONE = "Everything is shut down"


@pytest.fixture(scope="module")
def undisturbed() -> str:
    """Digest of the model of the steady job."""
    return digest(finish(job(**STEADY)))


def told(run: mlless_nb.TrainingRun) -> str:
    """All that a run has told."""
    return " | ".join(event.text for event in run.telemetry.state.events)


class Mortal:
    """Least squares; at its 60th step one worker waits until it may go on, and then dies if it is to."""

    def parameters(self, n_features: int, seed: int) -> dict[str, Any]:
        self.n_calls = 0
        return {"w": np.zeros(n_features)}

    def loss(self, params: dict[str, Any], X: Any, y: Any) -> Any:
        return 0.5 * np.mean((X @ params["w"] - y) ** 2)

    def gradients(self, params: dict[str, Any], X: Any, y: Any) -> dict[str, Any]:
        import os
        import signal
        import time

        self.n_calls = getattr(self, "n_calls", 0) + 1
        folder = os.environ.get("MORTAL_FOLDER", "")
        if folder and self.n_calls == 60:
            try:
                os.close(os.open(folder + "/chosen", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                give_up_at = time.monotonic() + 100.0
                while not os.path.exists(folder + "/go") and time.monotonic() < give_up_at:
                    time.sleep(0.01)
                if os.path.exists(folder + "/dies"):
                    os.kill(os.getpid(), signal.SIGKILL)
        return {"w": X.T @ (X @ params["w"] - y) / len(y)}


@pytest.mark.parametrize("moment", ["before it publishes", "after it has published"])
def test_a_worker_dies(moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    X = rng.normal(size=(1200, 5)).astype(np.float32)
    data = datasets.csr(X, X @ rng.normal(size=5))
    fields: dict[str, Any] = {"model": NumpyModel(Mortal), "data": data, "optimizer": SGD(0.05), "workers": 3}
    fields |= {"minibatch": 60, "sync": BSP(), "stop": Stop(steps=150), "checkpoint_every": 31}  # one each 25 steps
    plain = finish(job(**fields))
    monkeypatch.setenv("MORTAL_FOLDER", str(tmp_path))
    if moment == "before it publishes":
        (tmp_path / "dies").touch()
    run = mlless_nb.train(job(**fields))
    assert eventually((tmp_path / "chosen").exists, PATIENCE_S)
    objects = services_of(run).launcher.objects
    assert eventually(
        lambda: newest_whole(objects, run.id).checkpoint.step == 50, PATIENCE_S
    )  # it is stored beside the steps
    if moment == "before it publishes":
        (tmp_path / "go").touch()
    else:
        log = services_of(run).log
        client, prefix = redis.Redis.from_url(services_of(run).redis_urls[0]), f"mlless:{{{run.id}}}:arrivals:60"
        assert eventually(lambda: client.hlen(prefix) == 2, PATIENCE_S)  # the others wait for the one that stands still
        victim = int(client.hkeys(prefix)[0])
        os.kill(int(log.at_work([victim])[victim].partition("-")[0]), signal.SIGKILL)
        assert eventually(lambda: "was lost" in told(run), PATIENCE_S)
        (tmp_path / "go").touch()
    assert run.wait(PATIENCE_S) == "finished", run.reason
    assert digest(run) == digest(plain)
    assert "training goes on from step 50" in told(run)
    assert run.history["step"].tolist() == list(range(1, 151))


@pytest.mark.proof
def test_two_runs_on_one_redis_have_their_own_bits(redis_url: str, undisturbed: str) -> None:
    one = mlless_nb.train(job(redis=redis_url, **STEADY))
    other = mlless_nb.train(job(redis=redis_url, **STEADY | {"sync": BSP(), "stop": Stop(steps=200)}))
    assert [run.wait(PATIENCE_S) for run in (one, other)] == ["finished", "finished"]
    assert digest(one) == undisturbed
    assert digest(other) == digest(finish(job(**STEADY | {"sync": BSP(), "stop": Stop(steps=200)})))
    assert not redis.Redis.from_url(redis_url).keys("*")


def test_a_redis_that_gets_full_ends_the_run_with_its_model(own_redis: RedisProcess) -> None:
    run = mlless_nb.train(job(redis=own_redis.url, **STEADY | {"stop": Stop(steps=10**6)}))
    wait_for_step(run, 100)
    group = group_of(run)
    redis.Redis.from_url(own_redis.url).config_set("maxmemory", "1mb")
    assert run.wait(PATIENCE_S) == "failed"
    assert "maxmemory" in run.reason, run.reason
    assert "the model is that of step" in run.reason, run.reason
    assert eventually(lambda: is_gone(group))


@pytest.mark.proof
def test_a_redis_that_stays_away_ends_the_run_with_its_model(own_redis: RedisProcess) -> None:
    run = mlless_nb.train(job(redis=own_redis.url, **STEADY | {"stop": Stop(steps=10**6)}))
    wait_for_step(run, 100)
    group = group_of(run)
    own_redis.kill()
    assert run.wait(2 * PATIENCE_S) == "failed"
    assert "the model is that of step" in run.reason, run.reason
    assert eventually(lambda: is_gone(group))


@pytest.mark.proof
@pytest.mark.rabbitmq
def test_no_message_waits_for_its_acknowledgement(rabbitmq_program: str, tmp_path: Path) -> None:
    server = RabbitProcess(rabbitmq_program, tmp_path)
    with open(tmp_path / "rabbitmq.conf", "a") as conf:
        conf.write("consumer_timeout = 10000\n")  # looked at once a minute
    try:
        server.start()
        run = finish(job(bus=server.url, sync=BSP(), workers=2, stop=Stop(time_s=130.0)))
        assert run.status == "finished", run.reason
        assert "lost" not in told(run)
    finally:
        server.stop()


@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_packed_data_that_is_lost_is_named(harm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    data, invoke = ratings(3950 + len(harm)), LithopsLauncher.invoke
    harmed: list[str] = []

    def harm_first(self: LithopsLauncher, payloads: list[str]) -> None:
        if not harmed:
            packed = Path(self.folder_of("datasets"))
            harmed.append(max((path for path in packed.rglob("*") if path.is_file()), key=os.path.getmtime).name)
            for path in (path for path in packed.rglob(harmed[0]) if harm == "missing"):
                path.unlink()
            for path in packed.rglob(harmed[0]):
                path.write_bytes(path.read_bytes()[:-50])
        invoke(self, payloads)

    monkeypatch.setattr(LithopsLauncher, "invoke", harm_first)
    run = finish(job(data=data))
    assert run.status == "failed"
    assert f"is {harm}" in run.reason, run.reason
    assert "packed data" in run.reason
    assert DONE in run.telemetry.state.events[-1].text


AN_HOUR_LATER = """
import time
_time = time.time
time.time = lambda: _time() + 3600.0
exec(open({audit!r}).read())
"""


@pytest.mark.proof
def test_the_clocks_of_functions_may_be_an_hour_off(
    undisturbed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = str(Path(unpickling.__file__).with_name("sitecustomize.py"))
    (tmp_path / "sitecustomize.py").write_text(AN_HOUR_LATER.format(audit=audit))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    run = finish(job(budget=0.1, **STEADY))
    assert run.status == "finished", run.reason
    assert digest(run) == undisturbed
    assert 0 < run.cost.total < 0.1
    assert run.history["time_s"][-1] < 600.0


@pytest.mark.proof
def test_a_function_that_never_starts_is_invoked_again(undisturbed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    invoke, dropped = LithopsLauncher.invoke, list[str]()

    def drop_one(self: LithopsLauncher, payloads: list[str]) -> None:
        if not dropped:
            dropped.append(payloads.pop(2))
        invoke(self, payloads)

    monkeypatch.setattr(invocations, "LEASE_S", 2.0)
    monkeypatch.setattr(LithopsLauncher, "invoke", drop_one)
    run = finish(job(**STEADY))
    assert run.status == "finished", run.reason
    assert "Worker 1 did not start; worker 1 replaced" in told(run)
    assert digest(run) == undisturbed


def test_functions_that_cannot_be_invoked_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def throttled(self: LithopsLauncher, payloads: list[str]) -> None:
        raise ServiceError("backend: the functions could not be invoked: 429 Too Many Requests")

    monkeypatch.setattr(LithopsLauncher, "invoke", throttled)
    run = finish(job())
    assert run.status == "failed"
    assert "429" in run.reason
    assert DONE in run.telemetry.state.events[-1].text
    assert run.cost.workers == 0


@pytest.mark.proof
def test_a_redis_that_fails_over_to_its_replica(
    redis_program: str, tmp_path: Path, relay: Callable[[int], Relay], undisturbed: str
) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    first, second = RedisProcess(redis_program, tmp_path / "first"), RedisProcess(redis_program, tmp_path / "second")
    try:
        first.start()
        second.start()
        replica = redis.Redis.from_url(second.url)
        replica.replicaof("127.0.0.1", first.port)
        network = relay(first.port)
        assert eventually(lambda: replica.info("replication")["master_link_status"] == "up", PATIENCE_S)
        run = mlless_nb.train(job(redis=f"redis://127.0.0.1:{network.port}/0", **STEADY))
        wait_for_step(run, 100)
        first.kill()
        replica.replicaof("NO", "ONE")
        network.turn_to(second.port)
        assert run.wait(PATIENCE_S) == "finished", run.reason
        assert digest(run) == undisturbed
        assert "training goes on from" in told(run)
        assert not replica.keys("*")
    finally:
        first.kill()
        second.kill()


def test_the_private_redis_is_started_again(undisturbed: str) -> None:
    run = mlless_nb.train(job(**STEADY))
    wait_for_step(run, 100)
    with redis.Redis.from_url(services_of(run).redis_urls[0]) as client:
        os.kill(client.info("server")["process_id"], signal.SIGKILL)
    assert run.wait(PATIENCE_S) == "finished", run.reason
    assert digest(run) == undisturbed
    assert "training goes on from" in told(run)
    assert run.telemetry.state.events[-1].text.endswith(DONE)


def test_a_worker_that_dies_as_it_starts_is_seen_to_die(undisturbed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invocations, "LEASE_S", 1000.0)  # no lease says it in time
    run = mlless_nb.train(job(**STEADY))
    log = services_of(run).log
    assert eventually(lambda: log.at_work([0]), PATIENCE_S)
    os.kill(int(log.at_work([0])[0].partition("-")[0]), signal.SIGKILL)
    assert run.wait(PATIENCE_S) == "finished", run.reason
    assert digest(run) == undisturbed
    assert "Worker 0 was lost" in told(run)


@pytest.mark.long
def test_a_run_that_was_restored_is_concluded_without_its_supervisor(
    own_redis: RedisProcess, undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LithopsLauncher, "has_died", lambda *_: False)  # the workers end before it is missed
    run = mlless_nb.train(job(redis=own_redis.url, **STEADY))
    wait_for_step(run, 100)
    redis.Redis.from_url(own_redis.url).flushall()
    assert eventually(lambda: "training goes on from" in told(run), PATIENCE_S)
    seen: list[str] = []  # a second look may find that it has just ended
    assert eventually(lambda: bool(seen.extend(services_of(run).log.at_work([-1]).values()) or seen), PATIENCE_S)
    os.kill(int(seen[0].partition("-")[0]), signal.SIGKILL)
    assert run.wait(PATIENCE_S) == "finished", run.reason
    assert digest(run) == undisturbed
    assert run.history["step"].tolist() == list(range(1, 601))


@pytest.mark.proof
def test_redis_and_functions_are_lost_at_once(undisturbed: str) -> None:
    run = mlless_nb.train(job(**STEADY))
    wait_for_step(run, 100)
    assert eventually(lambda: set(services_of(run).log.at_work([-1, 2])) == {-1, 2}, PATIENCE_S)
    with redis.Redis.from_url(services_of(run).redis_urls[0]) as client:
        victims = [int(nonce.partition("-")[0]) for nonce in services_of(run).log.at_work([-1, 2]).values()]
        for process in (*victims, client.info("server")["process_id"]):
            os.kill(process, signal.SIGKILL)
    assert run.wait(PATIENCE_S) == "finished", run.reason
    assert digest(run) == undisturbed
    assert "The supervisor was lost and invoked again" in told(run)
    assert run.telemetry.state.events[-1].text.endswith(DONE)


@pytest.mark.parametrize("interpreter", ["the test run's", pytest.param("its own", marks=pytest.mark.long)])
def test_functions_outlive_the_process_that_started_them(
    undisturbed: str, interpreter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if interpreter == "its own":  # as outside of tests
        monkeypatch.setenv("MLLESS_TEST", "another environment than that of the test run's interpreter")
    run = mlless_nb.train(job(**STEADY))
    wait_for_step(run, 50)
    (group,) = services_of(run).launcher.process_groups
    os.kill(group, signal.SIGKILL)
    wait_for_step(run, 150)
    os.kill(int(services_of(run).log.at_work([1])[1].partition("-")[0]), signal.SIGKILL)
    assert run.wait(PATIENCE_S) == "finished", run.reason
    assert digest(run) == undisturbed
    assert "Worker 1 was lost" in told(run)
    assert "Every function was lost" not in told(run)
    assert eventually(lambda: is_gone(group))


@pytest.mark.long
def test_a_run_is_stopped_whose_lost_worker_is_never_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invocations, "LEASE_S", 2.0)
    run = mlless_nb.train(job(**STEADY | {"stop": Stop(steps=10**6)}))
    wait_for_step(run, 60)
    monkeypatch.setattr(LithopsLauncher, "invoke", lambda *_: None)
    os.kill(int(services_of(run).log.at_work([1])[1].partition("-")[0]), signal.SIGKILL)
    assert eventually(lambda: "worker 1 replaced" in told(run), PATIENCE_S)
    run.stop()
    assert run.wait(PATIENCE_S) == "stopped", run.reason
    assert run.reason.startswith("stopped by you; the model is that of step ")
    assert run.model.predict([0], [0]).shape == (1,)
    assert told(run).endswith(DONE)


@pytest.mark.proof
def test_a_supervisor_whose_end_nobody_sees_is_found_by_its_lease(
    undisturbed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(invocations, "LEASE_S", 2.0)
    monkeypatch.setattr(LithopsLauncher, "has_died", lambda *_: False)
    run = mlless_nb.train(job(**STEADY | {"stop": Stop(steps=10**6)}))
    wait_for_step(run, 50)
    log = services_of(run).log
    supervisor = log.at_work([-1])[-1]
    os.kill(int(supervisor.partition("-")[0]), signal.SIGKILL)
    assert eventually(lambda: log.at_work([-1]).get(-1, supervisor) != supervisor, PATIENCE_S)
    step = run.telemetry.state.step
    wait_for_step(run, int(step) + 50)
    run.stop()
    assert run.wait(PATIENCE_S) == "stopped", run.reason
    assert "The supervisor was lost and invoked again" in told(run)
    steps = run.history["step"].tolist()
    assert steps == list(range(1, len(steps) + 1))


@pytest.mark.proof
def test_rabbitmq_is_cut_off_for_longer_than_anybody_waits_in_a_call(
    rabbitmq_server: RabbitProcess, rabbitmq_url: str, relay: Callable[[int], Relay]
) -> None:
    network = relay(rabbitmq_server.port)
    run = mlless_nb.train(
        job(
            bus=rabbitmq_url.replace(f":{rabbitmq_server.port}/", f":{network.port}/"),
            **STEADY | {"stop": Stop(steps=10**6)},
        )
    )
    wait_for_step(run, 50)
    network.go_silent()
    time.sleep(25.0)
    step = run.telemetry.state.step
    network.come_back()
    wait_for_step(run, int(step) + 100)
    run.stop()
    assert run.wait(PATIENCE_S) == "stopped", run.reason
    assert "lost" not in told(run)
    steps = run.history["step"].tolist()
    assert steps == list(range(1, len(steps) + 1))
