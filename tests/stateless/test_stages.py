"""The stages of a stateless step in one process: they compute what workers under BSP do, also if repeated."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import numpy as np
from engine.threads import OBJECTS, OPTIMIZERS, RATES, Job, jobs, train
from hypothesis import given, settings
from hypothesis import strategies as st

from mlless_nb import BSP, PMF
from mlless_nb.bus.messages import Invocation
from mlless_nb.exchange import Plan
from mlless_nb.job.stop_rules import Verdict
from mlless_nb.models import model_from_json
from mlless_nb.stateless.events import EVENTS
from mlless_nb.stateless.function_reports import FunctionReports
from mlless_nb.stateless.functions import MAP_REDUCE
from mlless_nb.stateless.judge import Judge
from mlless_nb.stateless.keys import model_key
from mlless_nb.stateless.messages import Call, Done
from mlless_nb.stateless.stage import Made, Stage
from mlless_nb.storage.checkpoint import Progress
from mlless_nb.storage.objects import MemoryObjects


class Platform:
    """Runs calls one after the other, each of them ``times`` times; counts in memory, and pays for everything."""

    def __init__(self, job: Job, times: int) -> None:
        self.job = job.invocation(0)
        self.objects = MemoryObjects()
        self.objects.blobs |= {key: blob for key, blob in OBJECTS.blobs.items() if key.startswith("datasets/")}
        self.calls: list[Call] = []
        self._times, self._counted = times, defaultdict(set)
        manifest = job.manifests[0]
        params = model_from_json(self.job.model).init(manifest.shape, manifest.mean, self.job.seed)
        self.objects.put(model_key("job", 0), Progress(params).encode())

    def count(self, name: str, index: int) -> tuple[bool, int]:
        seen = self._counted[name]
        is_new = index not in seen
        seen.add(index)
        return is_new, len(seen)

    def log(self) -> Any:
        """What the stages ask of the coordinator."""
        return SimpleNamespace(
            count=self.count,
            read_plan=Plan,
            alive=lambda roles: [True],
            reserve=lambda nusd, least, name: nusd,
            now_s=lambda: 0.0,
        )

    def do(self, call: Call) -> Made:
        """Run a call, repeatedly; returns what it made first."""
        stages = EVENTS if call.n_reducers else MAP_REDUCE
        job = dataclasses.replace(self.job, slot=call.index)
        stage = Stage(call, job, self.objects, self.log(), self.calls.extend)
        made, *_ = [stages[call.stage](stage) for _ in range(self._times)]
        return made

    def call(self, stage: str, step: int, index: int, judge: Judge, n_reducers: int = 0) -> Call:
        key = model_key("job", step - 1)
        about = judge.rate_factor, judge.evaluates_next
        return Call(vars(self.job), stage, step, index, 0, 0, 0.0, key, *about, n_reducers=n_reducers)


def map_reduce(platform: Platform) -> Verdict:
    """Train as the driver of a map-reduce run does."""
    judge = Judge(platform.job)
    while True:
        step = judge.step + 1
        for slot in range(platform.job.n_workers):
            platform.do(platform.call("update", step, slot, judge))
        made = platform.do(platform.call("reduce", step, 0, judge))
        if verdict := judge.observe(made.stats, has_emerged=made.has_emerged):
            return verdict


def events(platform: Platform, n_reducers: int) -> Verdict:
    """Let functions invoke each other until one says that the run ends."""
    platform.calls.append(platform.call("launch", 1, 0, Judge(platform.job), n_reducers))
    ended: Verdict | None = None
    while platform.calls:
        made = platform.do(platform.calls.pop(0))
        ended = ended or made.verdict
    assert ended is not None
    return ended


@settings(max_examples=12)
@given(jobs(st.just(BSP())), st.integers(1, 2), st.integers(0, 4))
def test_every_job_has_the_bits_of_workers(job: Job, times: int, n_reducers: int) -> None:
    job = dataclasses.replace(job, leaves={}, scatter_from=0, has_leader=False, by_user=False)
    workers = train(job).workers
    platform = Platform(job, times)
    verdict = events(platform, n_reducers) if n_reducers else map_reduce(platform)
    assert verdict.status == "finished"
    last = Progress.decode(platform.objects.blobs[model_key("job", job.steps)])
    assert (last.step, last.n_steps, last.n_updates) == (job.steps, job.steps, job.steps * job.local_steps)
    np.testing.assert_array_equal(last.params, workers[0].last_params)


def test_a_function_that_was_lost_once_counted_has_the_next_stage_started_by_its_successor() -> None:
    platform = Platform(Job(PMF(rank=2), OPTIMIZERS[0], BSP(), 2, 1, "mean", {}), 1)
    first, last = (platform.call("update", 1, slot, Judge(platform.job), 3) for slot in (0, 1))
    platform.do(first)
    assert not platform.calls
    platform.do(last)
    platform.calls.clear()  # what it invoked is lost, too
    platform.do(last)
    assert not platform.calls  # a duplicate
    platform.do(dataclasses.replace(last, attempt=1))
    assert [call.index for call in platform.calls if call.stage == "reduce"] == [0, 1, 2]


def test_losses_that_were_stored_lead_to_the_same_course() -> None:
    job = dataclasses.replace(_ratings_job(), ends_settled=True, schedule="auto", eval_every=1)
    draws = np.random.default_rng(0)
    sums = [(float(loss), 1.0, float(loss), 1.0) for loss in 1.0 + 0.01 * draws.random(40)]
    whole = Judge(job)
    for stats in sums:
        resumed = Judge(job, **whole.to_json())
        for judge in (whole, resumed):
            judge.observe(stats, has_emerged=True)
        assert vars(resumed) | {"_rules": 0, "_schedule": 0, "_model": 0} == vars(whole) | {
            "_rules": 0,
            "_schedule": 0,
            "_model": 0,
        }
    assert whole.best_step == int(np.argmin([loss for loss, *_ in sums]))
    assert whole.kept_step(2.0, has_failed=False) == whole.best_step
    assert whole.kept_step(0.0, has_failed=False) == 40


def test_a_report_counts_once_and_a_lost_function_is_billed_with_its_grant() -> None:
    job = _ratings_job()
    reports = FunctionReports(job, RATES)
    first = Call(vars(job), "update", 1, 0, 0, 500, 0.0, "model")
    reports.launch(first)
    done = Done("update", 1, 0, 0, 1, 0.0, 0.1, 0.2, 80, 30)
    assert [reports.take(done), reports.take(done)] == [True, False]
    assert not reports.take(dataclasses.replace(done, attempt=7))  # nobody has invoked it
    again = dataclasses.replace(first, index=1)
    reports.launch(again)
    reports.lose(again.task)
    bill = reports.costs_nusd(0.0, 7)
    assert (bill["workers"], bill["storage"]) == (50 + 500, 37)
    assert reports.take(dataclasses.replace(done, index=1))  # it was only late
    assert reports.costs_nusd(0.0, 0)["workers"] == 100
    assert [entry["error"] for entry in reports.take_trace()] == ["", "lost", ""]


def _ratings_job() -> Invocation:
    return Job(PMF(rank=2), OPTIMIZERS[0], BSP(), 2, 60, "mean", {}).invocation(0)
