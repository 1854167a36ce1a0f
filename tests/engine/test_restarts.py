"""A run whose workers die and are replaced ends with the bits of one in which nobody died."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from engine.crashing import Crash, crashes, run
from engine.threads import RATINGS, Job, jobs
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mlless_nb import BSP, ISP, PMF, SGD, SSP, Adam, BackupWorkers
from mlless_nb.job.sync import Sync

LOCKSTEP = st.sampled_from([BSP(), ISP(0.0), ISP(0.05), ISP(0.7), ISP(3.0)])
BY_USER = Job(PMF(rank=2), SGD(0.2, momentum=0.9), ISP(0.7), 3, 11, "mean", {}, by_user=True)


@st.composite
def disturbed(draw: st.DrawFn, syncs: st.SearchStrategy[Sync]) -> tuple[Job, list[Crash]]:
    """A job, and where its workers die; nobody leaves, because when somebody does depends on the time."""
    job = dataclasses.replace(draw(jobs(syncs)), leaves={}, codec=draw(st.sampled_from(["float32", "bf16", "int8"])))
    job = dataclasses.replace(job, steps=draw(st.integers(3, 14)))
    return job, draw(crashes(job))


@settings(max_examples=60, deadline=None)
@given(disturbed(LOCKSTEP))
@example((BY_USER, [Crash(1, 7, False), Crash(2, 9, True)]))
@example((dataclasses.replace(BY_USER, sync=BSP(), optimizer=Adam(0.02), by_user=False), [Crash(0, 10, True)]))
@example((dataclasses.replace(BY_USER, scatter_from=2), [Crash(0, 15, False), Crash(1, 3, True)]))
def test_the_bits_are_those_of_a_run_in_which_nobody_died(disturbed: tuple[Job, list[Crash]]) -> None:
    job, deaths = disturbed
    plain, mended = run(job, []), run(job, deaths)
    assert plain.n_restarts == 0
    for one, other in zip(plain.bits, mended.bits, strict=True):
        np.testing.assert_array_equal(one, other)
    assert {slot: end.step for slot, end in mended.ends.items()} == {slot: end.step for slot, end in plain.ends.items()}
    for end in mended.ends.values():
        assert (end.validation_sum, end.kept_sum) == (
            plain.ends[end.slot].validation_sum,
            plain.ends[end.slot].kept_sum,
        )


@pytest.mark.parametrize(("sync", "share"), [(SSP(2), 0.05), (ISP(0.7, staleness=2), 0.05), (BackupWorkers(2), 0.75)])
@pytest.mark.parametrize("crash", [Crash(0, 6, False), Crash(2, 9, True)])
def test_runs_whose_workers_do_not_wait_for_each_other_end_too(sync: Sync, share: float, crash: Crash) -> None:
    """Their models differ by a small share of what training changes; with backup workers, by the updates dropped."""
    job = dataclasses.replace(BY_USER, sync=sync, by_user=False, optimizer=SGD(0.2), steps=14)
    plain, mended = run(job, []), run(job, [crash])
    assert mended.n_restarts == 1
    assert all(end.step == 14 for end in mended.ends.values())
    assert np.isfinite(mended.model.params).all()
    start = job.model.init(RATINGS.shape, RATINGS.mean, seed=3)
    changed = np.linalg.norm(plain.model.params - start)
    assert np.linalg.norm(mended.model.params - plain.model.params) < share * changed
