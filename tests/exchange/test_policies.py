"""A round policy is one file: one that waits for all workers but one is checked by jobs, carried out, and trains."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from mlless_nb import ASP, BSP, PMF, SGD, JobError, LogisticRegression, ScaleIn, Stop, TrainingJob, datasets
from mlless_nb.exchange.policies import CompletedRound, RoundPolicy, Step, base, policy_of, register_policy
from mlless_nb.exchange.stats import NO_STATS
from mlless_nb.job.sync import Sync, register_sync, sync_from_json
from mlless_nb.job.sync import base as protocols
from mlless_nb.job.sync.asp import MOST_AHEAD
from mlless_nb.kernels import encode_update
from mlless_nb.simulate import TWO_CORES, SlowWorkers, simulate
from mlless_nb.validation import specification


@pytest.fixture
def all_but_one(monkeypatch: pytest.MonkeyPatch) -> type[Sync]:
    """The toy, registered for one test."""
    monkeypatch.setattr(protocols, "_registered", dict(protocols._registered))
    monkeypatch.setattr(base, "_registered", dict(base._registered))

    @register_sync
    @specification
    @dataclass(frozen=True)
    class AllButOne(Sync):
        full_every: int = 8
        kind: ClassVar[str] = "all-but-one"
        policy = "all-but-one"  # type: ignore[assignment]
        counts_all = False

        def check(self, job: Any) -> None:
            if job.partition == "user":
                raise JobError("partition", job.partition, f"'rows' with {self}")

        def __str__(self) -> str:
            return "all but one"

    @register_policy("all-but-one")
    class Quorum(RoundPolicy):
        counts_all = False

        def quorum(self, step: int, n_active: int) -> int:
            return n_active if step % self.sync.full_every == 0 else max(n_active - 1, 1)

        @property
        def retention(self) -> int:  # nobody is further behind than the last step that waited for all
            return 2 + int(self.sync.full_every)

        def exchange(self, step: Step) -> list[CompletedRound]:
            done = step.exchange(step.request(self.replica.encode(step.number, step.stats)))
            step.waited_s = done.complete_at - done.published_at
            sums = self.replica.apply(done.slots, done.frames, step.stats)
            return [CompletedRound(step.number, step.epoch, sums)]

    return AllButOne


def job(sync: Sync, **changes: Any) -> TrainingJob:
    """A small job."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 6)).astype(np.float32)
    y = (X @ rng.normal(size=6) + rng.normal(0, 0.3, 900) > 0.2).astype(np.float32)
    fields: dict[str, Any] = {
        "workers": 4,
        "minibatch": 30,
        "stop": Stop(steps=150),
        "scale_in": ScaleIn.off(),
        "validation": datasets.csr(X, y),
        **changes,
    }
    return TrainingJob(LogisticRegression(), SGD(0.5), datasets.csr(X, y), sync=sync, **fields)


def test_a_registered_policy_trains_and_does_not_wait_for_a_straggler(all_but_one: type[Sync]) -> None:
    machine = replace(TWO_CORES, cores=None, stragglers=SlowWorkers({2: 40.0}))
    runs = [simulate(job(sync), machine) for sync in (BSP(), all_but_one())]
    for run in runs:
        assert run.status == "finished", run.reason
        assert run.history["step"][-1] == 150
    bsp, quorum = runs
    # One step in eight waits for the straggler.
    assert quorum.step_s < 0.5 * bsp.step_s
    losses = [run.history["validation_loss"] for run in runs]
    ends = [loss[np.isfinite(loss)][-1] for loss in losses]
    assert ends[1] == pytest.approx(ends[0], rel=0.05)
    assert ends[1] < 0.5 * np.log(2.0)


def test_a_policy_that_waits_for_all_every_time_is_bsp_bit_for_bit(all_but_one: type[Sync]) -> None:
    runs = [simulate(job(sync), TWO_CORES) for sync in (BSP(), all_but_one(1))]  # type: ignore[call-arg]
    np.testing.assert_array_equal(*(run.history["validation_loss"] for run in runs))


def test_a_registered_policy_is_known_everywhere(all_but_one: type[Sync]) -> None:
    sync = all_but_one(5)  # type: ignore[call-arg]
    assert sync_from_json(sync.to_json()) == sync
    with pytest.raises(JobError, match=r"must be BSP\(\), .*BackupWorkers\(k\), DBW\(\), .* or AllButOne\(\.\.\.\)"):
        job("all but one")  # type: ignore[arg-type]
    with pytest.raises(JobError, match="partition='user': must be 'auto' or 'rows' with all but one"):
        TrainingJob(PMF(rank=2), SGD(1.0), datasets.synthetic_ratings(40, 30, 500), sync=sync, partition="user")
    with pytest.raises(JobError, match=r"'nsp'.*'bsp', .*'ssp'"):
        sync_from_json({"kind": "nsp"})


def test_with_a_shared_model_a_worker_waits_for_the_first_time_when_it_is_too_far_ahead() -> None:
    params = np.zeros((2, 1), np.float32)
    told = encode_update(np.empty(0, np.int32), np.empty((0, 1), np.float32), 1, 1, 2, NO_STATS)
    replica = SimpleNamespace(params=params, apply_own=lambda: None, encode_stats=lambda step, stats: told)
    awaited: list[Any] = []

    def wait_for_any(request: Any, keys: list[Any], pay: Any) -> list[Any]:
        awaited.append(keys[0])
        return [told, *[None] * (len(keys) - 1)]

    log = SimpleNamespace(
        put_model=lambda frame: None,
        publish_and_poll=lambda request, keys: (None, [None] * len(keys)),  # the peer has published nothing
        wait_for_any=wait_for_any,
    )
    policy = policy_of("shared-model")(log, replica, ASP(shared=True), lambda n: False, lambda: 0.0)
    for number in range(1, MOST_AHEAD + 4):
        step = SimpleNamespace(number=number, active=[0, 1], epoch=0.0, stats=NO_STATS, slot=0, waited_s=0.0)
        step.request = lambda frame, number=number: SimpleNamespace(step=number, slot=0, peers=[1])
        step.is_last = step.is_checkpoint = lambda: False
        step.leaving, step.learn, step.pay = list, lambda arrival: None, lambda: None
        policy.exchange(step)
        assert awaited == [(str(due), 1) for due in range(1, number - MOST_AHEAD + 1)]
