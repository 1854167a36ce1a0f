"""The adviser's bill against the supervisor's, and the requests that it expects against those that are made."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mlless_nb
from mlless_nb import PMF, SGD, LogisticRegression, ScaleIn, Stop, TrainingJob, datasets
from mlless_nb.adviser import run_requests
from mlless_nb.adviser.advice import as_run, rates_of
from mlless_nb.adviser.constants import constants
from mlless_nb.adviser.frame_requests import frames_nusd
from mlless_nb.adviser.here import UNBILLED_S, bill_nusd
from mlless_nb.adviser.probe import probe
from mlless_nb.adviser.sizes import Sizes
from mlless_nb.money import Rates, price_profile
from mlless_nb.money.budget import Prepaid
from mlless_nb.money.meter import NUSD
from mlless_nb.supervisor.bill import Bill
from mlless_nb.supervisor.checkpoint_times import FIRST_S, CheckpointTimes

RATES = Rates(price_profile("aws-lambda-x86"), 1769)
MB = 1e6


def sizes_of(data_bytes: float, epochs: float = 1.0) -> Sizes:
    return Sizes(epochs, 100, 1, 0.001, 0.0, 1000.0, 4000.0, data_bytes)


@given(n_workers=st.integers(1, 12), start_s=st.floats(0.1, 3.0), trained_s=st.floats(0.0, 100.0))
def test_functions_and_servers_are_billed_as_the_supervisor_bills_them(
    n_workers: int, start_s: float, trained_s: float
) -> None:
    time_s = start_s + trained_s
    prepaid = Prepaid(RATES, 0, lambda: time_s - UNBILLED_S, lambda: 0, with_servers=True)
    bill = Bill(RATES, n_workers, prepaid, 0, began_s=UNBILLED_S)
    for slot in range(n_workers):
        bill.begin(slot, UNBILLED_S)
    sizes = sizes_of(1 * MB)
    requests = run_requests.run_nusd(n_workers, sizes, RATES, trained_s, 1.0)
    assert bill_nusd(n_workers, sizes, RATES, start_s, trained_s) == bill.spent(time_s) + requests


@pytest.mark.parametrize(
    ("data_mb", "n_workers", "epochs", "expected"),
    [
        (1, 1, 1, 1),
        (1, 12, 100, 12),
        (3, 1, 1, 2),  # the index of a bundle, and a run
        (40, 1, 1, 1 + 4),  # a short run, and three of 16 MiB
        (40, 4, 100, 4 * (1 + 2)),
        (600, 2, 1, 2 * (5 + 19)),
        (600, 2, 10, 2 * (5 + 190)),  # more than a worker keeps
    ],
)
def test_workers_read_their_shares_in_runs(data_mb: float, n_workers: int, epochs: float, expected: int) -> None:
    assert run_requests.n_reads(n_workers, sizes_of(data_mb * MB, epochs)) == expected


@given(st.floats(0.0, 100.0), st.integers(0, 200_000), st.integers(0, 10**8), st.floats(1e3, 1e6))
def test_so_many_checkpoints_are_expected_as_a_run_announces(
    trained_s: float, nusd: int, n_bytes: int, nusd_s: float
) -> None:
    times, n_announced = CheckpointTimes(nusd, n_bytes), 0
    looks = 400
    for look in range(looks + 1):
        now_s = trained_s * look / looks
        n_announced += times.is_due(now_s, round(now_s * nusd_s))
    number = CheckpointTimes(nusd, n_bytes).number(trained_s, trained_s * nusd_s)
    # A run looks from time to time, and announces one checkpoint at a time.
    assert n_announced <= number + 1
    assert n_announced >= min(number, 1) or trained_s < 1.1 * FIRST_S
    assert n_announced >= min(number, trained_s / 10) - 1


def test_checkpoints_of_sharded_users_have_the_parameters_of_all_users() -> None:
    """Those of users are not exchanged, but a worker stores them: checkpoints take as long as without shards."""
    ratings = datasets.synthetic_ratings(200, 150, 20_000, rank=3, seed=0)
    job = TrainingJob(PMF(4), data=ratings, workers=2, minibatch=500, optimizer=SGD(4.0), partition="user")
    by_user, by_row = (probe(replace(job, partition=each), 0.01) for each in ("user", "rows"))
    assert by_user.table_bytes < by_row.table_bytes
    trained_s, cores = 1e4, 1e-4  # parts of some kB, stored so slowly that their size matters
    told = [run_requests.run_nusd(2, sizes, RATES, trained_s, cores) for sizes in (by_user, by_row)]
    assert told[0] == told[1]


def test_the_bill_of_a_run_is_the_one_that_its_length_leads_to() -> None:
    """The length itself is not judged, nor how much of the start passes before the functions' interpreter begins."""
    rows = datasets.synthetic_clicks(4000, n_features=500, seed=0)
    job = TrainingJob(
        LogisticRegression(),
        data=rows,
        workers=2,
        minibatch=100,
        validation=None,
        scale_in=ScaleIn.off(),
        stop=Stop(epochs=3),
    )
    began = time.monotonic()
    run = mlless_nb.train(job)
    assert run.wait() == "finished"
    whole_s = time.monotonic() - began
    start_s, end_s = (float(run.history["time_s"][row]) for row in (0, -1))
    spent = float(run.history["spent_usd"][-1])
    told = bill_nusd(2, probe(job, 0.01), RATES, start_s, end_s - start_s) / NUSD
    start = 3 * RATES.function_usd_s * start_s
    late = 3 * RATES.function_usd_s * max(whole_s - end_s, 0.0)  # functions may end late on a busy machine
    assert 0.9 * (told - start) <= spent <= 1.1 * (told + late)


@pytest.mark.parametrize(("store", "fixture"), [("storage", ""), ("memcached", "memcached_url"), ("server", "")])
def test_estimate_and_bill_agree_over_each_store(store: str, fixture: str, request: pytest.FixtureRequest) -> None:
    address = store
    if store != "storage":
        address = request.getfixturevalue(fixture) if fixture else request.getfixturevalue("frame_server").url
    rows = datasets.synthetic_clicks(4000, n_features=500, seed=0)
    job = TrainingJob(
        LogisticRegression(),
        data=rows,
        workers=2,
        minibatch=100,
        validation=None,
        store=address,
        scale_in=ScaleIn.off(),
        stop=Stop(epochs=6),
    )
    run = mlless_nb.train(job)
    assert run.wait() == "finished"
    start_s, end_s = (float(run.history["time_s"][row]) for row in (0, -1))
    sizes, rates = replace(probe(job, 0.01), epochs=6.0), rates_of(job)
    told = bill_nusd(2, sizes, rates, start_s, end_s - start_s) + frames_nusd(job, 2, sizes, rates)
    assert told / NUSD == pytest.approx(run.cost.total, rel=0.2)
    own, redis = (as_run(replace(job, store=each), 2, sizes, constants()) for each in (address, "redis"))
    assert own.usd - redis.usd > 0.5 * run.cost.total, "most of this bill is the store's"


def test_stores_of_a_cloud_are_priced_as_what_they_are() -> None:
    rows = datasets.synthetic_clicks(4000, n_features=500, seed=0)
    job = TrainingJob(LogisticRegression(), data=rows, workers=4, minibatch=100, backend="aws_lambda")
    sizes, known = replace(sizes_of(1 * MB), update_bytes=2000.0), constants()
    redis, dynamodb = (as_run(replace(job, store=store), 4, sizes, known) for store in ("redis", "dynamodb"))
    rounds = sizes.n_rounds(4)
    # A frame of 2000 bytes has two write units, and each of three peers reads one unit.
    assert dynamodb.usd - redis.usd >= rounds * 4 * (2 * 6.25e-7 + 3 * 1.25e-7)
    server = as_run(replace(job, store="memcached://cache:11211", insecure=True), 4, sizes, known)
    assert server.usd - redis.usd == pytest.approx((132 + server.time_s) * 0.156 / 3600, rel=0.2)
