"""A job that is handed over to another process is the same job there, with the same rows."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import numpy as np
import pytest
from models.test_numpy_model import Perceptron

import mlless_nb
from mlless_nb import (
    ADMM,
    BSP,
    DBW,
    FTRL,
    ISP,
    PMF,
    SGD,
    Adam,
    KMeans,
    LogisticRegression,
    NumpyModel,
    ScaleIn,
    Stop,
    StoredFiles,
    TrainingJob,
    datasets,
)
from mlless_nb.driver.detached import handover
from mlless_nb.driver.detached.detached import is_wanted
from mlless_nb.errors import DecodeError, JobError
from mlless_nb.frames.names import digest_of
from mlless_nb.job.algorithm import DecidedSteps
from mlless_nb.job.limits import AllottedBudget


class Mine(PMF):
    """A model of a notebook, which other processes cannot know."""


RNG = np.random.default_rng(0)
RATINGS = datasets.synthetic_ratings(30, 20, 400, rank=2, seed=0)
CLICKS = datasets.csr(RNG.normal(size=(80, 3)), RNG.integers(0, 2, 80))
FRAME = {
    "who": np.array([f"user {number % 7}" for number in range(80)], object),
    "what": np.arange(80) % 11,
    "stars": RNG.normal(size=80),
    "label": np.array(["yes", "no"] * 40, object),
}
FILMS = datasets.ratings(FRAME, user="who", item="what", rating="stars")
PEOPLE = datasets.table({name: FRAME[name] for name in ("who", "stars", "label")}, label="label")


def copy_of(job: TrainingJob) -> TrainingJob:
    file = io.BytesIO()
    handover.write(file, job, other=7)
    file.seek(0)
    copied, more = handover.read(file)
    assert more == {"other": 7}
    assert file.read() == b""
    return copied


@pytest.mark.parametrize(
    "job",
    [
        TrainingJob(PMF(2), data=RATINGS),
        TrainingJob(PMF(2), SGD(2.0, momentum=0.9), RATINGS, ISP(0.7, staleness=2), 3, 0.2, Stop(epochs=2, target=0.5)),
        TrainingJob(LogisticRegression(l2=0.1), FTRL(), CLICKS, validation=CLICKS, scale_in=ScaleIn.off(), detach=True),
        TrainingJob(LogisticRegression(), data=CLICKS, algorithm=ADMM(), sync=BSP(), workers=2, name="name"),
        TrainingJob(LogisticRegression(), Adam(0.1), CLICKS, DBW(gain="blind"), workers=4, validation=None),
        TrainingJob(NumpyModel(Perceptron), data=CLICKS, codec="bf16", workers=2),
        TrainingJob(PMF(3), data=FILMS, detach=True),
        TrainingJob(LogisticRegression(l2=0.2), data=PEOPLE, detach=True),
        TrainingJob(KMeans(3), data=datasets.csr(RNG.normal(size=(80, 3)))),
        TrainingJob(LogisticRegression(), data=StoredFiles("bucket/part-", "libsvm", functions=3)),
        TrainingJob(
            PMF(2), data=RATINGS, redis=["redis://:${SECRET}@a", "redis://b"], bus="amqp://c",
            budget=AllottedBudget(0.5), insecure=True,
            backend={"lithops": {"backend": "aws_lambda"}, "aws": {"region": "x"}},
        ),
    ],
    ids=lambda job: f"{type(job.model).__name__}-{type(job.algorithm).__name__}",
)  # fmt: skip
def test_it_is_the_same_job(job: TrainingJob) -> None:
    copied = copy_of(job)
    for entry in dataclasses.fields(job):
        ours, theirs = getattr(job, entry.name), getattr(copied, entry.name)
        assert type(ours) is type(theirs), entry.name
        if entry.name in ("data", "validation") and not isinstance(ours, (float, StoredFiles, type(None))):
            assert ours.fingerprint() == theirs.fingerprint()
            vars(theirs).pop("_fingerprint")
            assert ours.fingerprint() == theirs.fingerprint()
            assert (ours.name, ours.shape, ours.is_synthetic) == (theirs.name, theirs.shape, theirs.is_synthetic)
            assert digest_of(ours.names) == digest_of(theirs.names)
        else:
            assert ours == theirs, entry.name
    assert repr(copied) == repr(job)
    assert isinstance(copied.local_steps, DecidedSteps) == isinstance(job.local_steps, DecidedSteps)


def test_what_cannot_be_handed_over_is_told(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("label,x\n" + "1,2\n0,3\n" * 50)
    streamed = TrainingJob(LogisticRegression(), data=datasets.csv(tmp_path / "rows.csv"))
    with pytest.raises(
        JobError, match=r"detach=True: must be False with data that is read from its file .* StoredFiles"
    ):
        copy_of(streamed)
    with pytest.raises(JobError, match=r"detach=True: must be False with model=.*, whose class is not of mlless_nb"):
        copy_of(TrainingJob(Mine(2), data=RATINGS))
    with pytest.raises(JobError, match="detach=True: must be False with a backend= of other values"):
        copy_of(TrainingJob(PMF(2), data=RATINGS, backend={"lithops": {"backend": "localhost"}, "x": {1}}))


def test_by_default_runs_outlive_the_notebook_elsewhere_but_not_here(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("label,x\n" + "1,2\n0,3\n" * 50)
    here = TrainingJob(PMF(2), data=RATINGS)
    elsewhere = dataclasses.replace(here, backend="aws_lambda")
    streamed = TrainingJob(LogisticRegression(), data=datasets.csv(tmp_path / "rows.csv"), backend="aws_lambda")
    assert [is_wanted(job) for job in (here, elsewhere, streamed)] == [False, True, False]
    assert is_wanted(dataclasses.replace(here, detach=True))
    assert not is_wanted(dataclasses.replace(elsewhere, detach=False))
    assert is_wanted(dataclasses.replace(streamed, detach=True))  # and then it is told


def test_a_data_directory_that_takes_no_socket_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    with pytest.raises(JobError, match="detach=True: must be False where the data directory takes no socket"):
        mlless_nb.train(TrainingJob(PMF(2), data=RATINGS, detach=True))


def test_what_was_cut_off_is_refused() -> None:
    file = io.BytesIO()
    handover.write(file, TrainingJob(PMF(2), data=RATINGS))
    with pytest.raises(DecodeError, match="ends after"):
        handover.read(io.BytesIO(file.getvalue()[:-1]))
    with pytest.raises(DecodeError, match="is damaged"):
        handover.read(io.BytesIO(b"{}\n"))
