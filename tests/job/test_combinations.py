"""What makes no sense is one line that names a field, its value and what is valid, before anything is billed.

The table has one entry for each reason. The products below it find combinations that nobody thought of.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import itertools
import socket
import subprocess
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mlless_nb
from mlless_nb import (
    ADMM,
    ASP,
    BSP,
    DBW,
    FTRL,
    ISP,
    PMF,
    SGD,
    SSP,
    AdaGrad,
    Adam,
    AdaSync,
    BackupWorkers,
    GradientAveraging,
    JobError,
    KMeans,
    LinearRegression,
    LinearSVM,
    LogisticRegression,
    ModelAveraging,
    NumpyModel,
    ScaleIn,
    SoftmaxRegression,
    Stop,
    TorchModel,
    TrainingJob,
    datasets,
)
from mlless_nb.driver.backends.launcher import LithopsLauncher
from mlless_nb.driver.launch.data_preparation import JobData
from mlless_nb.job.em import EM
from mlless_nb.models.definition import Definition

RNG = np.random.default_rng(7)
X = RNG.normal(size=(400, 5)).astype(np.float32)
SCORES = X @ RNG.normal(size=(5, 3))
RATINGS = datasets.synthetic_ratings(40, 30, 500, rank=2, seed=1)
ROWS, CLASSES = datasets.csr(X), datasets.csr(X, SCORES.argmax(axis=1))
CLICKS = datasets.csr(X, (SCORES[:, 0] > 0).astype(float))
NUMBERS = datasets.csr(X, SCORES[:, 0])

RIDGE = """class Ridge:
    def parameters(self, n_features, seed):
        return {"w": np.zeros(n_features)}

    def loss(self, params, X, y):
        return 0.5 * np.mean((X @ params["w"] - y) ** 2)

    def gradients(self, params, X, y):
        return {"w": X.T @ (X @ params["w"] - y) / len(y)}
"""


def ridge(old: str = "", new: str = "") -> NumpyModel:
    """A model whose source travels, with ``old`` replaced by ``new`` in it."""
    assert old in RIDGE
    source = RIDGE.replace(old, new, 1) if old else new + RIDGE
    return NumpyModel(Definition("Ridge", source, hashlib.sha256(source.encode()).hexdigest()))


MODELS: dict[str, tuple[Any, Any]] = {
    "PMF": (PMF(rank=2), RATINGS),
    "logistic": (LogisticRegression(), CLICKS),
    "svm": (LinearSVM(), CLICKS),
    "linear": (LinearRegression(), NUMBERS),
    "softmax": (SoftmaxRegression(3), CLASSES),
    "k-means": (KMeans(3), ROWS),
    "numpy": (ridge(), NUMBERS),
}
#: What a job may say, by field; the first value of each is the default. "server" has the address of a server.
FIELDS: dict[str, list[Any]] = {
    "algorithm": [None, GradientAveraging(), ModelAveraging(), ModelAveraging(2), ADMM(), EM()],
    "sync": [
        *(BSP(), ISP(0.7), ISP(0.0), SSP(0), SSP(2), ISP(0.5, staleness=2), ISP(0.5, averages="paper")),
        *(ASP(), ASP(shared=True), BackupWorkers(2), DBW(), DBW(gain="blind"), AdaSync(2)),
    ],
    "store": ["redis", "storage", "memcached://localhost", "dynamodb", f"server://:token@localhost/{'0' * 64}"],
    "execution": ["workers", "map-reduce", "events"],
    "pattern": ["auto", "broadcast", "scatter-reduce", "allreduce"],
    "optimizer": [
        None,
        SGD(0.1, momentum=0.9),
        SGD(0.1, per_sample=True),
        SGD(lazy=True),
        Adam(),
        AdaGrad(),
        FTRL(l1=0.1),
    ],
    "codec": ["float32", "bf16", "int8"],
    "partition": ["auto", "rows", "user"],
    "aggregate": ["mean", "sum"],
    "local_steps": [1, 2, 50],
    "scale_in": [ScaleIn(), ScaleIn.off(), ScaleIn(global_minibatch="shrink"), ScaleIn(policy="paper")],
    "workers": [None, 1, 3, 7, 100],
    "minibatch": [None, 1, 20, 10**6],
    "reducers": [None, 1, 2, 10**4],
    "validation": [0.1, None],
    "prices": ["aws-lambda-x86", "ibm-paper"],
}
#: The field of a job that an error's field is in, where it is another one.
ROOTS = {
    "SGD": "optimizer",
    "FTRL": "optimizer",
    "ScaleIn": "scale_in",
    "ISP": "sync",
    "BackupWorkers": "sync",
    "AdaSync": "sync",
}


@pytest.fixture(autouse=True)
def nothing_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """No function is invoked."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a job that makes no sense invokes functions")

    monkeypatch.setattr(LithopsLauncher, "invoke", refuse)


def refused(attempt: Callable[[], Any]) -> JobError:
    """The error of ``attempt``, which is one line that says the field, its value and what is valid."""
    with pytest.raises(JobError) as caught:
        attempt()
    return checked(caught.value)


def checked(error: JobError) -> JobError:
    """``error``, of which this is true."""
    assert error.field
    assert error.valid
    assert str(error).startswith(f"{error.field}=")
    assert str(error).endswith(f": must be {error.valid}")
    assert "\n" not in str(error)
    assert len(str(error)) < 400
    return error


def job(**changes: Any) -> TrainingJob:
    """A small valid job of logistic regression unless ``changes`` say otherwise."""
    model, data = MODELS["logistic"]
    return TrainingJob(**({"model": model, "data": data, "workers": 3, "minibatch": 20} | changes))


def of(name: str, **changes: Any) -> dict[str, Any]:
    """The fields of a job of model ``name``."""
    model, data = MODELS[name]
    return {"model": model, "data": data, **changes}


def vast(n_bytes: int) -> dict[str, Any]:
    """A PMF whose table has at least ``n_bytes``, on a few ratings; no table is made."""
    n_users = n_bytes // (4 * 4096)
    data = datasets.ratings(np.arange(20), np.arange(20) % 3, 1.0 + np.arange(20) % 5, n_users=n_users)
    fields = {"model": PMF(rank=4095), "optimizer": SGD(0.1), "data": data, "workers": 2, "minibatch": 5}
    return {**fields, "partition": "rows", "validation": None, "memory_mb": 10240}


STATELESS = "with execution='map-reduce'"
#: Fields of a job; the field that is refused, and a part of what is said to be valid.
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    # model and algorithm
    (of("PMF", algorithm=ADMM()), "algorithm", "GradientAveraging() or ModelAveraging() with PMF rank 2: not convex"),
    (of("numpy", algorithm=ADMM()), "algorithm", "GradientAveraging() or ModelAveraging() with Ridge: not convex"),
    (of("k-means", algorithm=ADMM()), "algorithm", "left out for k-means, k = 3: only 'em' trains it"),
    (of("k-means", algorithm=ModelAveraging()), "algorithm", "left out for k-means, k = 3: only 'em' trains it"),
    (of("k-means", algorithm=GradientAveraging()), "algorithm", "left out for k-means, k = 3: only 'em' trains it"),
    (
        of("logistic", algorithm=EM()),
        "algorithm",
        "left out with logistic regression, or another one: EM is for KMeans",
    ),
    (of("PMF", algorithm=EM()), "algorithm", "left out with PMF rank 2, or another one: EM is for KMeans"),
    # model and optimiser
    (of("k-means", optimizer=Adam()), "optimizer", "left out with EM, which has none"),
    (of("k-means", optimizer=SGD(1.0, momentum=0.9)), "optimizer", "left out with EM, which has none"),
    ({"optimizer": SGD(per_sample=True)}, "SGD.per_sample", "False with logistic regression: it is for PMF"),
    ({"algorithm": ADMM(), "optimizer": FTRL()}, "optimizer", "SGD(...), Adam(...) or AdaGrad(...) with ADMM"),
    # algorithm and protocol
    ({"algorithm": ADMM(), "sync": ISP(0.7)}, "sync", "BSP() with ADMM"),
    ({"algorithm": ADMM(), "sync": SSP(2)}, "sync", "BSP() with ADMM"),
    ({"algorithm": ModelAveraging(), "sync": SSP(2)}, "sync", "BSP() or ISP(threshold) with ModelAveraging"),
    (of("k-means", sync=ISP(0.7)), "sync", "BSP() with EM"),
    (of("k-means", sync=SSP(2)), "sync", "BSP() with EM"),
    # algorithm and the rest
    ({"algorithm": ADMM(), "codec": "int8"}, "codec", "'float32' with ADMM"),
    ({"algorithm": ADMM(), "aggregate": "sum"}, "aggregate", "'mean' with ADMM"),
    ({"algorithm": ADMM(), "local_steps": 2}, "local_steps", "left out with ADMM"),
    ({"algorithm": ADMM(), "scale_in": ScaleIn(policy="paper")}, "ScaleIn.global_minibatch", "'keep' with ADMM"),
    ({"algorithm": ModelAveraging(), "aggregate": "sum"}, "aggregate", "'mean' with ModelAveraging"),
    ({"algorithm": ModelAveraging(), "local_steps": 2}, "local_steps", "left out with ModelAveraging"),
    (of("k-means", codec="bf16"), "codec", "'float32' with EM"),
    (of("k-means", aggregate="sum"), "aggregate", "left out with EM"),
    (of("k-means", local_steps=2), "local_steps", "left out with EM"),
    (of("k-means", scale_in=ScaleIn(policy="paper")), "ScaleIn.global_minibatch", "'keep' with EM"),
    # protocol, pattern and partition
    ({"sync": SSP(2), "pattern": "allreduce"}, "pattern", "'auto' or 'broadcast' with SSP 2"),
    ({"sync": SSP(2), "pattern": "scatter-reduce"}, "pattern", "'auto' or 'broadcast' with SSP 2"),
    ({"sync": ISP(0.7, staleness=2), "pattern": "allreduce"}, "pattern", "'auto' or 'broadcast' with ISP 0.7 over"),
    (of("PMF", sync=SSP(2), partition="user"), "partition", "'auto' or 'rows' with SSP 2"),
    (of("PMF", sync=ISP(averages="paper"), partition="user"), "partition", "'auto' or 'rows' with ISP(averages="),
    ({"partition": "user"}, "partition", "'auto' or 'rows', or ratings as data"),
    (of("PMF", partition="user", workers=41, minibatch=1), "workers", "at most 40, the users with ratings"),
    # execution
    ({"execution": "map-reduce", "sync": ISP(0.7)}, "sync", f"BSP() {STATELESS}"),
    ({"execution": "map-reduce", "sync": SSP(2)}, "sync", f"BSP() {STATELESS}"),
    ({"execution": "map-reduce", "codec": "int8"}, "codec", f"'float32' {STATELESS}"),
    ({"execution": "map-reduce", "pattern": "allreduce"}, "pattern", f"'auto' {STATELESS}"),
    ({"execution": "map-reduce", "store": "storage"}, "store", f"'redis' {STATELESS}"),
    ({"execution": "map-reduce", "algorithm": ADMM()}, "algorithm", f"GradientAveraging() {STATELESS}"),
    ({"execution": "map-reduce", "algorithm": ModelAveraging()}, "algorithm", f"GradientAveraging() {STATELESS}"),
    ({"execution": "map-reduce", "scale_in": ScaleIn(threshold=0.5)}, "scale_in", f"ScaleIn.off() {STATELESS}"),
    ({"execution": "map-reduce", "reducers": 2}, "reducers", f"None {STATELESS}"),
    (of("PMF", execution="events", partition="user"), "partition", "'rows' or 'auto' with execution='events'"),
    (of("k-means", execution="map-reduce"), "execution", "'workers' with k-means, k = 3: no stage runs EM"),
    (of("k-means", execution="events"), "execution", "'workers' with k-means, k = 3: no stage runs EM"),
    ({"execution": "events", "reducers": 7}, "reducers", "at most 6, the rows of the model's table"),
    ({"reducers": 2}, "reducers", "None with execution='workers'"),
    # numbers of workers
    ({"workers": 400}, "workers", "at most 18, for 18 minibatches (360 training rows in minibatches of 20)"),
    ({"local_steps": 9}, "workers", "at most 2, for 18 minibatches"),
    ({"minibatch": 200}, "workers", "at most 2, for 2 minibatches"),
    ({"local_steps": 19}, "local_steps", "at most 18 local steps, the number of minibatches (360 training rows in"),
    ({"algorithm": ModelAveraging(19)}, "algorithm", "at most 18 local steps, the number of minibatches"),
    # stores
    ({"store": "server"}, "store", "'server://:token@host:7337/fingerprint', as `python -m mlless_nb.server` says"),
    ({"store": "server://localhost"}, "store", "'server://:token@host:7337/fingerprint', as `python"),
    ({"store": "memcached"}, "store", "'memcached://host:11211', or several servers"),
    ({"store": "memcached://10.0.0.7"}, "store", "on this machine, or set insecure=True"),
    ({"store": "dynamodb://frankfurt"}, "store", "'dynamodb', or with a region"),
    ({"store": "disk"}, "store", "one of 'redis', "),
    ({"store": "dynamodb", "prices": "ibm-paper"}, "prices", "one with a price of dynamodb: 'aws-lambda-x86'"),
    (vast(1 << 29) | {"sync": ISP(0.7)}, "store", "this one takes at most 536870912"),
    (vast(1 << 30) | {"store": "dynamodb"}, "store", "this one takes at most 1073741824"),
    (vast(1 << 31) | {"store": "memcached://localhost"}, "store", "this one takes at most 2147483648"),
    (vast(1 << 31) | {"store": f"server://:t@localhost/{'0' * 64}"}, "store", "this one takes at most 2147483648"),
    (vast(1 << 30) | {"memory_mb": 1769}, "memory_mb", "(MB): PMF rank 4095 has"),
    # model and data
    (of("PMF", data=CLICKS), "data", "ratings for PMF"),
    ({"data": RATINGS}, "data", "feature rows with labels for LogisticRegression"),
    ({"data": ROWS}, "data.y", "labels for LogisticRegression"),
    ({"data": CLASSES}, "data.y", ""),
    (of("svm", data=NUMBERS), "data.y", ""),
    (of("softmax", model=SoftmaxRegression(2)), "data.y", ""),
    (of("k-means", model=KMeans(401)), "KMeans.k", "at most 400, the number of rows"),
    (of("k-means", model=KMeans(380)), "KMeans.k", "at most 360, the number of training rows"),
    ({"validation": RATINGS}, "validation", "of the same kind and shape as data"),
    # a model that a user wrote
    (of("numpy", model=ridge("(self, params, X, y)", "(self, params, X, y")), "model", "its source raises SyntaxError"),
    (of("numpy", model=ridge(new="raise RuntimeError('once\\nonly')\n")), "model", "raises RuntimeError: once only"),
    (of("numpy", model=ridge(new="raise SystemExit\n")), "model", "its source raises SystemExit"),
    (of("numpy", model=ridge(new="import of_no_package\n")), "model", "No module named 'of_no_package'"),
    (of("numpy", model=ridge("0.5 * np.mean(", "np.nan * (")), "model", "loss is a finite number"),
    (of("numpy", model=ridge("np.mean(", "np.square(")), "model", "loss is a finite number"),
    (of("numpy", model=ridge("return 0.5", "0.5")), "model", "loss is a finite number; on the first rows it is None"),
    (of("numpy", model=ridge("return 0.5", "return 'low' if len(y) else 0.5")), "model", "it raises ValueError"),
    (of("numpy", model=ridge('"w": X.T', '"w": np.nan * X.T')), "model", "gradient of w is finite"),
    (of("numpy", model=ridge('"w": X.T', '"w": None if len(y) else X.T')), "model", "gradient of w is"),
    (of("numpy", model=ridge('"w": X.T', '"w": [[1], 2] if len(y) else X.T')), "model", "gradient of w is numbers"),
    (of("numpy", model=ridge("return {", "{")), "model", "parameters are a dict of arrays"),
]


@pytest.mark.parametrize(
    ("fields", "field", "valid"), REFUSED, ids=[f"{field}-{number}" for number, (_, field, _) in enumerate(REFUSED)]
)
@pytest.mark.filterwarnings("ignore::mlless_nb.DataWarning")
def test_what_makes_no_sense_is_one_line_when_the_job_is_made(
    fields: dict[str, Any], field: str, valid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a job that is only being made launches something")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    error = refused(lambda: job(**fields))
    assert error.field.partition("[")[0] == field
    assert valid in error.valid


def test_a_torch_model_needs_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    error = refused(lambda: job(model=TorchModel(type("Net", (), {}))))
    assert error.field == "model"
    assert "pip install 'mlless_nb[torch]'" in error.valid


@pytest.mark.parametrize(
    ("fields", "field", "valid"),
    [
        (
            {"backend": "aws_lambda"},
            "redis",
            "functions of this backend can reach, or none with store='storage', which",
        ),
        ({"redis": "redis://localhost"}, "redis", "that functions of 'aws_lambda' reach; this one is on this machine"),
        ({"redis": "unix:///run/redis.sock"}, "redis", "that functions of 'aws_lambda' reach"),
        ({"bus": "amqp://me:planted-secret@127.0.0.1"}, "bus", "that functions of 'aws_lambda' reach"),
        ({"store": "memcached://localhost"}, "store", "that functions of 'aws_lambda' reach"),
        ({"store": f"server://:planted-secret@localhost/{'0' * 64}"}, "store", "that functions of 'aws_lambda' reach"),
        ({"bus": "memory://"}, "bus", "that functions of 'aws_lambda' reach"),
        ({"stop": Stop(target=9.0), "backend": "embedded", "redis": None}, "stop.target", "before any training"),
        ({"budget": 1e-7, "backend": "embedded", "redis": None}, "budget", "what is set aside for 3 workers"),
    ],
    ids=lambda value: None if isinstance(value, dict) else value[:20],
)
def test_what_only_a_launch_finds_is_one_line_before_a_function_is_invoked(
    fields: dict[str, Any], field: str, valid: str
) -> None:
    before = mlless_nb.runs()
    remote: dict[str, Any] = {"backend": "aws_lambda", "redis": "rediss://:planted-secret@redis.example"}
    if fields == {"backend": "aws_lambda"}:
        remote = {}
    made = job(**(remote | fields))
    error = refused(lambda: mlless_nb.train(made))
    assert error.field == field
    assert valid in error.valid
    assert "planted-secret" not in str(error)
    assert mlless_nb.runs() == before


# -- every combination


#: The job that each combination leads to, by model and fields. Following a message leads to a combination that the
#: product has as well, so that each is made once.
FOUND: dict[tuple[str, tuple[tuple[str, str], ...]], TrainingJob] = {}


def accepted(name: str, fields: dict[str, Any]) -> TrainingJob:
    """The job that one gets by following the messages: each names a field that was given, which is then left out."""
    key = name, tuple((field, repr(value)) for field, value in fields.items())
    if key not in FOUND:
        try:
            FOUND[key] = TrainingJob(**of(name, **fields))
        except JobError as error:
            wrong = checked(error).field.partition(".")[0]
            left = {field: value for field, value in fields.items() if field != ROOTS.get(wrong, wrong)}
            if len(left) == len(fields):
                raise AssertionError(f"{error}, but the job says {fields}") from error
            FOUND[key] = accepted(name, left)
    return FOUND[key]


def given_of(names: list[str], values: tuple[Any, ...]) -> dict[str, Any]:
    """The fields that are not the default."""
    return {name: value for name, value in zip(names, values, strict=True) if value != FIELDS[name][0]}


@pytest.mark.parametrize(
    "model", [pytest.param(model, marks=[pytest.mark.long] * (n > 1)) for n, model in enumerate(MODELS)]
)
def test_every_design_is_accepted_or_its_message_leads_to_one_that_is(model: str) -> None:
    names = ["algorithm", "sync", "store", "execution", "pattern"]
    n_whole = 0
    for values in itertools.product(*(FIELDS[name] for name in names)):
        fields = given_of(names, values)
        made = accepted(model, fields)
        n_whole += all(getattr(made, name) == value for name, value in fields.items())
    assert n_whole > 20


@given(st.sampled_from(sorted(MODELS)), st.tuples(*(st.sampled_from(values) for values in FIELDS.values())))
@settings(max_examples=300, deadline=None)
def test_any_job_is_accepted_and_prepared_or_its_message_leads_to_one_that_is(
    model: str, values: tuple[Any, ...]
) -> None:
    made = accepted(model, given_of(list(FIELDS), values))
    assert dataclasses.replace(made) == made
    try:
        prepared = JobData(made).job
    except JobError:
        refused(lambda: JobData(made))
    else:
        assert prepared.optimizer.learning_rate is not None
