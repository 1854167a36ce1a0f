"""Whole runs over each store: the model that Redis gives, a complete bill, and nothing left."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from engine.jobs import PATIENCE_S, digest, finish, job, wait_for_step
from servers import FrameServerProcess, MemcachedProcess

import mlless_nb
from mlless_nb import BSP, ISP, SSP, JobError, Stop, TrainingRun
from mlless_nb.driver.detached.attaching import recorded
from mlless_nb.exchange.seals import SEAL_BYTES
from mlless_nb.exchange.step_report import Report
from mlless_nb.exchange.stores import MemcachedStore, open_store
from mlless_nb.storage.objects import MemoryObjects

SHORT: dict[str, Any] = {"sync": BSP(), "workers": 3, "stop": Stop(steps=8), "pattern": "allreduce"}


#: Frames with reports that arrive in it: those for the leader, in every step.
N_REPORTS = 8 * 2


@functools.cache
def run_on_redis() -> TrainingRun:
    """The same job over Redis."""
    return finish(job(**SHORT))


def on_redis() -> str:
    """The model of the same job over Redis."""
    return digest(run_on_redis())


def check_store(run: TrainingRun, name: str, per_frame: int, *, start_s: int = 0, per_report: int = 0) -> None:
    """Check what the bill says of the store.

    It has the frames that Redis has in the same run, each with ``per_frame`` bytes more, and with ``per_report`` more
    where a report arrives in it.
    """
    store, plain = run.cost.store, run_on_redis().cost.store
    assert store is not None
    assert plain is not None
    assert (plain.name, store.name, store.start_s) == ("redis", name, start_s)
    # Of each step: two frames for the leader, and the sum that two others read.
    assert plain.n_puts > 8 * 3
    assert plain.put_bytes > run.history["sent_bytes"].sum()
    assert plain.got_bytes > run.history["received_bytes"].sum()
    reports = N_REPORTS * per_report
    assert store.put_bytes == plain.put_bytes + plain.n_puts * per_frame + reports
    got_bytes = plain.got_bytes + plain.n_gets * per_frame + reports
    if per_report:  # who publishes looks for the others' frames, and the requests of coordination count, too
        assert store.got_bytes >= got_bytes
        assert min(store.n_puts - plain.n_puts, store.n_gets - plain.n_gets) > 0
    else:
        assert (store.got_bytes, store.n_puts, store.n_gets) == (got_bytes, plain.n_puts, plain.n_gets)
    assert (store.start_usd > 0) == (start_s > 0)
    assert str(store) in str(run.cost)
    assert recorded(run.id).cost.store == store


def test_a_run_over_the_object_storage() -> None:
    run = finish(job(store="storage", **SHORT))
    assert run.status == "finished", run.reason
    check_store(run, "storage", 1, per_report=len(Report().encode()))
    assert run.cost.store is not None
    assert 8 * 3 * 5e-6 < run.cost.store.requests_usd < run.cost.storage
    assert digest(run) == on_redis()
    # Three workers: the leader and two others put a frame each in every step.
    assert run.cost.storage > 8 * 3 * 5e-6
    assert "Everything is shut down" in run.telemetry.state.events[-1].text


def test_a_run_over_memcached(memcached_url: str) -> None:
    run = finish(job(store=memcached_url, **SHORT))
    assert run.status == "finished", run.reason
    check_store(run, "memcached", SEAL_BYTES, start_s=132)
    assert digest(run) == on_redis()
    # The server is billed from its start.
    assert run.cost.memcached == pytest.approx((132 + run.telemetry.state.time_s) * 0.156 / 3600, rel=0.02)
    assert run.cost.total == pytest.approx(sum(run.cost.values()))
    store = open_store(memcached_url, "mlless:", MemoryObjects())
    assert isinstance(store, MemcachedStore)
    assert store.clear() == 0
    store.close()


def test_a_memcached_that_forgets_ends_the_run_and_the_reason_says_so(
    memcached_url: str, memcached_server: MemcachedProcess
) -> None:
    run = mlless_nb.train(job(store=memcached_url, **{**SHORT, "stop": Stop(steps=100_000)}))
    wait_for_step(run, 5)
    while run.telemetry.state.is_live:
        memcached_server.said(b"flush_all\r\n")
    assert run.status == "failed"
    assert "is gone from memcached, which evicts items when its memory is full" in run.reason
    assert "Everything is shut down" in run.telemetry.state.events[-1].text


@pytest.mark.long
def test_a_memcached_that_dies_ends_the_run_and_the_reason_says_so(memcached_program: str, tmp_path: Any) -> None:
    server = MemcachedProcess(memcached_program, tmp_path)
    server.start()
    run = mlless_nb.train(job(store=server.url, **{**SHORT, "stop": Stop(steps=100_000)}))
    wait_for_step(run, 5)
    server.kill()
    run.wait(PATIENCE_S)
    assert run.status == "failed"
    assert f"memcached at 127.0.0.1:{server.port} does not answer" in run.reason


def test_a_run_over_a_frame_server(frame_server: FrameServerProcess) -> None:
    wanted = job(store=frame_server.url, **SHORT)
    run = finish(wanted)
    assert run.status == "finished", run.reason
    check_store(run, "server", SEAL_BYTES, start_s=132)
    assert digest(run) == on_redis()
    assert run.cost.server == pytest.approx((132 + run.telemetry.state.time_s) * 0.085 / 3600, rel=0.02)
    token = frame_server.url.split(":")[2].split("@")[0]
    told = " ".join([repr(wanted), repr(run), run.report(), *(event.text for event in run.telemetry.state.events)])
    assert token not in told


def test_a_run_over_dynamodb(dynamodb: Any) -> None:
    run = finish(job(store="dynamodb", **SHORT))
    assert run.status == "finished", run.reason
    check_store(run, "dynamodb", SEAL_BYTES)
    assert run.cost.store is not None
    assert run.cost.store.requests_usd == run.cost.dynamodb
    assert digest(run) == on_redis()
    assert run.cost.dynamodb > 8 * 3 * 6.25e-7
    assert dynamodb.list_tables()["TableNames"] == []


@pytest.mark.parametrize("store", ["storage", pytest.param("dynamodb", marks=pytest.mark.long)])
def test_a_capped_run_stays_below_its_cap_with_requests_that_cost(store: str, request: pytest.FixtureRequest) -> None:
    if store == "dynamodb":
        request.getfixturevalue("dynamodb")
    least = finish(job(store=store, **{**SHORT, "stop": Stop(steps=1)})).cost.total
    run = finish(job(store=store, **{**SHORT, "stop": Stop(steps=100_000)}, budget=3 * max(least, 0.0005)))
    assert run.status == "capped", run.reason
    assert run.cost.total <= run.telemetry.state.budget_usd


def test_a_store_that_is_down_is_one_line_before_anything_is_launched() -> None:
    with pytest.raises(mlless_nb.ServiceError, match=r"memcached at 127\.0\.0\.1:1 does not answer"):
        mlless_nb.train(job(store="memcached://127.0.0.1:1", **SHORT))


def test_a_leader_needs_workers_at_the_same_step() -> None:
    with pytest.raises(JobError, match=r"pattern='allreduce': must be 'auto' or 'broadcast' with SSP 2"):
        job(**{**SHORT, "sync": SSP(2)})


@pytest.mark.parametrize(
    ("store", "sync", "pattern"),
    [
        ("redis", BSP(), "allreduce"),
        ("storage", ISP(0.7), "auto"),
        pytest.param("redis", ISP(0.7), "allreduce", marks=pytest.mark.long),
        pytest.param("storage", ISP(0.7), "allreduce", marks=pytest.mark.long),
        pytest.param("storage", ISP(0.7), "scatter-reduce", marks=pytest.mark.long),
        pytest.param("storage", SSP(2), "broadcast", marks=pytest.mark.long),
    ],
    ids=str,
)
def test_a_leader_may_leave(store: str, sync: Any, pattern: str) -> None:
    run = mlless_nb.train(job(store=store, sync=sync, pattern=pattern, workers=3, stop=Stop(steps=100_000)))
    wait_for_step(run, 5)
    run.scale_in(worker_id=0)
    while run.telemetry.state.n_workers > 2 and run.telemetry.state.is_live:
        wait_for_step(run, run.telemetry.state.step + 1)
    wait_for_step(run, run.telemetry.state.step + 5)
    run.stop()
    run.wait(PATIENCE_S)
    assert run.status == "stopped", run.reason
    assert run.history["n_workers"][-1] == 2
