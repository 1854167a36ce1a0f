"""A job is checked field by field when it is made: one clear line, and nothing was launched."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import socket
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mlless_nb
from mlless_nb import (
    BSP,
    ISP,
    PMF,
    SGD,
    SSP,
    AdaGrad,
    Adam,
    Budget,
    BudgetError,
    JobError,
    LogisticRegression,
    ScaleIn,
    Stop,
    TrainingJob,
    datasets,
)

RATINGS = datasets.synthetic_ratings(30, 20, 300, rank=2, seed=1)
NAN, INFINITE = math.nan, math.inf
#: An integer that no float can hold.
VAST = 10**400


def make(**changes: Any) -> TrainingJob:
    """A small valid job unless ``changes`` say otherwise."""
    fields: dict[str, Any] = {"model": PMF(2), "optimizer": SGD(0.1), "data": RATINGS, "minibatch": 30}
    return TrainingJob(**(fields | changes))


@pytest.fixture(autouse=True)
def nothing_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making a job, right or wrong, starts no process and no thread, and speaks to no server."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a job that is only being made launches something")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(threading.Thread, "start", refuse)


WRONG: list[tuple[str, list[Any], str]] = [
    ("model", ["pmf", None, PMF, 20, SGD(0.1)], "PMF"),
    ("optimizer", ["sgd", SGD, 0.1, PMF(2)], "SGD"),
    ("data", [None, "movielens", [1, 2], np.zeros(3), {"users": []}], "datasets"),
    ("sync", ["bsp", None, BSP, 0.7, 0], "BSP"),
    ("stop", [None, 10, "10 epochs", {"epochs": 10}, Stop], "Stop"),
    ("workers", [0, -1, 1.0, 2.5, "4", True, NAN, [4]], "integer >= 1 or None"),
    ("minibatch", [0, -6250, 10.0, "all", True, NAN], "integer >= 1 or None"),
    ("seed", [-1, 0.0, "0", None, False, NAN], "integer >= 0"),
    ("eval_every", [0, -1, 1.5, "10", True], "integer >= 1 or None"),
    ("checkpoint_every", [0, -1, 1.5, "10", True], "integer >= 1 or None"),
    ("memory_mb", [0, 127, 10_241, 1769.0, "1769", None, True], "between 128 and 10240"),
    ("aggregate", ["median", "", None, 1, "Mean"], "'mean' or 'sum'"),
    ("codec", ["float16", "", None, 16], "'float32' or 'bf16' or 'int8'"),
    ("pattern", ["all", "", None, True], "'auto' or 'broadcast' or 'scatter-reduce' or 'allreduce'"),
    ("partition", ["item", "", None, 2], "'auto' or 'rows' or 'user'"),
    ("schedule", ["cosine", "", None, True], "'auto' or 'constant'"),
    ("local_steps", [0, -1, 1.5, True, None, "2"], "an integer >= 1"),
    ("name", ["", " ", "a b", "9lives", "a/b", "-a", "x" * 65, "ä", "a\n", 7, b"a", ["a"]], ""),
    ("prices", ["free", "", None, 0, ["aws-lambda-x86"], "AWS-LAMBDA-X86"], "'aws-lambda-x86'"),
    ("validation", [0, 1, 0.0, 1.0, -0.1, 1.5, NAN, INFINITE, True, "0.1", [0.1]], "fraction between 0 and 1"),
    ("redis", [b"", 6379, [], [6379], ["redis://a", None], ("redis://a",), {}], "redis://"),
    ("bus", [5672, b"amqp://a", ["amqp://a"], {}], "string or None"),
    ("backend", [None, 1, ["embedded"], b"embedded"], "'embedded'"),
    ("speculation", [None, 0, 1.4, -3, NAN, INFINITE, "on", True, [3]], "'off', or a number >= 1.5"),
    ("insecure", [None, 0, 1, "yes"], "True or False"),
]


@pytest.mark.parametrize(
    ("field", "value", "valid"),
    [(field, value, valid) for field, values, valid in WRONG for value in values],
    ids=lambda value: repr(value)[:30],
)
def test_a_wrong_field_is_named_with_its_value_and_what_is_valid(field: str, value: Any, valid: str) -> None:
    with pytest.raises(JobError) as caught:
        make(**{field: value})
    error = caught.value
    assert error.field == field
    may_be_secret = field in ("redis", "bus", "backend")
    assert may_be_secret or error.value is value
    value = error.value
    assert valid in error.valid
    shown = repr(value) if len(repr(value)) <= 80 else f"{repr(value)[:38]}...{repr(value)[-39:]}"
    assert str(error) == f"{field}={shown}: must be {error.valid}"
    assert "\n" not in str(error)
    assert isinstance(error, ValueError)


@pytest.mark.parametrize("usd", [0, -1, 0.0, -0.25, NAN, INFINITE, -INFINITE, VAST, "0.25", True, [], {}])
def test_a_wrong_budget_is_refused(usd: Any) -> None:
    for attempt in (lambda: Budget(usd), lambda: make(budget=usd)):
        with pytest.raises(BudgetError, match=r"budget=.*must be a finite number of US dollars > 0") as caught:
            attempt()
        assert caught.value.field == "budget"
        assert caught.value.value is usd
    with pytest.raises(BudgetError):
        Budget(None)  # type: ignore[arg-type]


STOP_RULES: list[tuple[str, list[Any], str]] = [
    ("target", [0, -1.0, NAN, INFINITE, VAST, "0.9", True, [0.9]], "finite number > 0 or None"),
    ("epochs", [0, -1, NAN, INFINITE, VAST, "10", True], "finite number > 0 or None"),
    ("time_s", [0, -1, NAN, INFINITE, "60", True], "finite number > 0 or None"),
    ("steps", [0, -1, 1.5, 10.0, "10", True, NAN], "integer >= 1 or None"),
    ("patience", [0, -1, 1.5, "3", True, NAN], "integer >= 1 or None"),
    ("confirmations", [0, -1, 1.5, "3", True, NAN, None], "integer >= 1"),
]
SPECIFICATIONS: list[tuple[Callable[..., Any], str, list[Any]]] = [
    (PMF, "rank", [0, -1, 2.0, "20", None, True, 4097]),
    (PMF, "l2", [-0.1, NAN, INFINITE, VAST, "0", True]),
    (PMF, "biases", [1, 0, None, "yes"]),
    (PMF, "standardize", [1, 0, None, "yes"]),
    (PMF, "init_scale", [-0.1, NAN, INFINITE, "0.1", None, True]),
    (LogisticRegression, "l2", [-0.1, NAN, INFINITE, VAST, "0", True]),
    (LogisticRegression, "scale", [1, 0, None, "yes"]),
    (SGD, "learning_rate", [0, -0.1, NAN, INFINITE, VAST, "0.1", True]),
    (SGD, "momentum", [-0.1, 1, 1.5, NAN, "0.9", None, True]),
    (SGD, "nesterov", [1, None, "yes", True]),  # True needs momentum
    (SGD, "decay", [-0.1, NAN, INFINITE, "0", None, True]),
    (SGD, "lazy", [1, None, "yes", "Auto"]),
    (Adam, "learning_rate", [0, -0.1, NAN, INFINITE, VAST, "0.1", True]),
    (Adam, "b1", [-0.1, 1, NAN, "0.9", None, True]),
    (Adam, "b2", [-0.1, 1, NAN, "0.9", None, True]),
    (Adam, "eps", [0, -1e-8, NAN, INFINITE, "0", None, True]),
    (AdaGrad, "learning_rate", [0, -0.1, NAN, INFINITE, VAST, "0.1", True]),
    (AdaGrad, "eps", [0, -1e-8, NAN, INFINITE, "0", None, True]),
    (AdaGrad, "decay", [-0.1, NAN, INFINITE, "0", None, True]),
    (ISP, "threshold", [-0.1, NAN, INFINITE, VAST, "0.7", None, True, [0.7]]),
    (ISP, "staleness", [-1, 0.5, 101, NAN, "1", None, True, [1]]),
    (ISP, "averages", [0, 1, None, "yes", "Paper"]),
    (SSP, "staleness", [-1, 2.0, 101, 10**30, INFINITE, "3", None, False, [3]]),
    (ScaleIn, "interval_s", [0, -1, NAN, INFINITE, VAST, "20", None, True]),
    (ScaleIn, "horizon_s", [0, -1, NAN, INFINITE, VAST, "10", None, True]),
    (ScaleIn, "threshold", [-0.1, 1.1, NAN, VAST, "0.5", None, True]),
    (ScaleIn, "knee", ["elbow", None, 1, ["slope"]]),
    (ScaleIn, "enabled", [0, 1, None, "yes"]),
]


@pytest.mark.parametrize(
    ("rule", "value", "valid"),
    [(rule, value, valid) for rule, values, valid in STOP_RULES for value in values],
    ids=lambda value: repr(value)[:30],
)
def test_a_wrong_stop_rule_is_named(rule: str, value: Any, valid: str) -> None:
    with pytest.raises(JobError, match=rf"^stop\.{rule}=.*: must be ") as caught:
        Stop(**{rule: value})
    assert (caught.value.field, caught.value.value) == (f"stop.{rule}", value) or value != value
    assert valid in caught.value.valid


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [(kind, field, value) for kind, field, values in SPECIFICATIONS for value in values],
    ids=lambda value: getattr(value, "__name__", repr(value)[:30]),
)
def test_a_wrong_specification_is_named(kind: Callable[..., Any], field: str, value: Any) -> None:
    with pytest.raises(JobError) as caught:
        kind(**{field: value})
    assert caught.value.field == f"{kind.__name__}.{field}"  # type: ignore[attr-defined]
    assert caught.value.value is value
    assert caught.value.valid


@pytest.mark.parametrize(
    "kind", [TrainingJob, Stop, Budget, PMF, LogisticRegression, SGD, Adam, ISP, SSP, BSP, ScaleIn]
)
def test_an_unknown_field_is_refused(kind: Callable[..., Any]) -> None:
    with pytest.raises(JobError, match=r"\.whatever=4: must be (named one of|left out)") as caught:
        kind(whatever=4)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: PMF(rnak=3),
            "PMF.rnak=3: must be named one of rank, l2, biases, init_scale, standardize; is rank meant?",
        ),
        (lambda: SGD(lr=1), "; is learning_rate meant?"),
        (lambda: Budget(), "Budget.usd=None: must be given; there are usd"),
        (lambda: ISP(0.7, threshold=0.5), "ISP.threshold=0.5: must be given once"),
        (lambda: LogisticRegression(0.1, True, 3), "LogisticRegression='3 values': must be at most 2: l2, scale"),
        (lambda: BSP(3), "BSP='1 value': must be left out: there are no fields"),
        (
            lambda: TrainingJob(PMF(), epochs=3),
            "TrainingJob.epochs=3: must be named one of model, optimizer",
        ),
        (lambda: TrainingJob(PMF(), epochs=3), "; is Stop(epochs=...) meant?"),
        (lambda: TrainingJob(PMF(), batch_size=3), "; is minibatch meant?"),
        (lambda: TrainingJob(rediss="redis://:hidden@a"), "TrainingJob.rediss=<class 'str'>: must be named one of"),
    ],
)
def test_a_call_that_does_not_fit_names_what_would(call: Callable[[], object], says: str) -> None:
    with pytest.raises(JobError, match=re.escape(says)) as caught:
        call()
    assert isinstance(caught.value, TypeError)
    assert "hidden" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_first_wrong_field_is_found_whatever_else_is_wrong() -> None:
    with pytest.raises(JobError, match=r"^workers=0"):
        make(workers=0, minibatch=-1, budget="a lot", name="no name")


def test_an_error_can_be_made_again_from_its_parts() -> None:
    error = BudgetError("budget", 0.1, "more")
    kind, arguments = error.__reduce__()
    assert str(kind(*arguments)) == str(error)


def test_long_values_are_shown_shortened() -> None:
    with pytest.raises(JobError) as caught:
        make(name="x" * 1000)
    assert len(str(caught.value)) < 250


def test_no_secret_of_a_backend_is_shown() -> None:
    job = make(backend={"lithops": {"backend": "aws_lambda"}, "aws": {"secret_access_key": "hidden"}})
    assert "hidden" not in job.describe() + repr(job)
    assert "backend='aws_lambda'" in repr(job)
    job = make(redis=["redis://:hidden@a", "rediss://:hidden@b"], bus="amqp://me:hidden@c")
    assert "hidden" not in job.describe() + repr(job)


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("redis", ["redis://:hidden@a/0", b"redis://:hidden@b/0"], "['redis://:***@a/0', <class 'bytes'>]"),
        ("redis", {"url": "redis://:hidden@a"}, "<class 'dict'>"),
        ("redis", ("redis://:hidden@a",), "<class 'tuple'>"),
        ("bus", ["amqp://me:hidden@a", "amqp://me:hidden@b"], "['amqp://me:***@a', 'amqp://me:***@b']"),
        ("bus", b"amqp://me:hidden@a", "<class 'bytes'>"),
        ("backend", [{"key": "hidden"}], "[<class 'dict'>]"),
        ("backend", {"lithops": "hidden"}, "<class 'dict'>"),
    ],
)
def test_no_secret_is_told_of_a_wrong_field(field: str, value: Any, shown: str) -> None:
    with pytest.raises(JobError) as caught:
        make(**{field: value})
    assert str(caught.value).startswith(f"{field}={shown}: must be ")
    assert "hidden" not in f"{caught.value!r} {caught.value.value}"


def test_valid_jobs_say_what_they_are() -> None:
    job = make(budget=0.25, sync=ISP(0.7), name="first_run-2", redis="redis://localhost:6379/0")
    assert (job.cap_usd, job.redis_urls) == (0.25, ["redis://localhost:6379/0"])
    assert make(budget=Budget(2)).cap_usd == 2
    assert make().cap_usd is None
    assert make().redis_urls is None
    assert job.describe() == "PMF rank 2 · generated ratings (synthetic) · ISP 0.7"
    with pytest.raises(dataclasses.FrozenInstanceError):
        job.workers = 5  # type: ignore[misc]


def test_a_run_with_no_end_in_sight_ends_once_it_has_settled_or_after_many_epochs() -> None:
    assert make().stop_rules == Stop(epochs=223)  # 2,000 steps of one worker, nine an epoch
    assert make(minibatch=5).stop_rules == Stop(epochs=50)
    assert make(validation=None).stop_rules == Stop(epochs=40)  # 400 steps, ten an epoch
    assert make(validation=None, minibatch=5).stop_rules == Stop(epochs=10)
    assert make(budget=1.0).stop_rules == Stop()
    assert make(stop=Stop(steps=3)).stop_rules == Stop(steps=3)
    assert [make(**fields).ends_settled for fields in ({}, {"validation": None}, {"budget": 1.0})] == [
        True,
        False,
        False,
    ]
    assert not make(stop=Stop(steps=3)).ends_settled
    assert Stop().is_empty
    assert not Stop(patience=1).is_empty


def test_train_takes_a_job_only() -> None:
    with pytest.raises(JobError, match="job='PMF': must be a TrainingJob"):
        mlless_nb.train("PMF")  # type: ignore[arg-type]


def test_numpy_scalars_are_numbers() -> None:
    made = TrainingJob(
        PMF(rank=np.int64(2), l2=np.float32(0.5)),
        SGD(np.float32(0.5), nesterov=np.bool_(True), momentum=np.float64(0.5)),
        RATINGS,
        sync=ISP(np.float32(0.5)),
        workers=np.int64(1),
        minibatch=np.int32(4),
        seed=np.uint8(3),
        budget=np.float32(0.5),
        validation=np.float32(0.5),
        stop=Stop(steps=np.int64(5), epochs=np.float32(0.5)),
    )
    specs = (made.model, made.optimizer, made.sync, made.stop)
    assert json.loads(json.dumps([dataclasses.asdict(spec) for spec in specs]))
    assert type(made.workers) is int
    assert made.cap_usd == 0.5
