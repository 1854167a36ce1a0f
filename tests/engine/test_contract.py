"""The contract of every combination of model, algorithm, protocol, store and P that a job accepts, on real servers.

A worker dies at a step that is drawn for the combination, and all go on from a checkpoint. The run trains all the same;
the model that it returns has the loss that it told, so that no update was lost and all replicas agree, and where bits
are promised it has those of an undisturbed run on Redis; its bill is whole, and it leaves nothing.

`make test` runs a few in which almost every model, algorithm, protocol and store is once; `make test-long` some in
which any two of them are together that go together; `make test-proof` all others.
"""

from __future__ import annotations

import functools
import re
import tempfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import mortal
import pytest
from engine.designs import (
    ALGORITHMS,
    STEPS,
    STORES,
    SYNCS,
    Design,
    address_of,
    allowed,
    check,
    cover,
    product,
    refusal,
    registered,
)
from engine.jobs import digest, finish
from engine.models import HAS_TORCH, MODELS
from exchange.places import kept_on, listed, run_objects
from folders import paths_below
from servers import S3_BACKEND

from mlless_nb import TrainingJob, TrainingRun

#: Parts of the bill beside workers, supervisor and storage.
SERVERS = {
    "redis": {"redis"},
    "storage": set[str](),  # it needs no Redis
    "memcached": {"redis", "memcached"},
    "dynamodb": {"redis", "dynamodb"},
    "server": {"redis", "server"},
}


def parameters() -> list[Any]:
    """Every allowed design, with the marker of those who run it."""
    # PyTorch takes seconds to import, and the emulator of DynamoDB to answer: that has a run in `test_stores.py`.
    quick = [design for design in allowed() if design.model != "torch" and design.store != "dynamodb"]
    once, in_pairs = cover(quick, 1), cover(allowed(), 2)
    without_torch = pytest.mark.skip(reason="PyTorch is not installed; make test-long TORCH=1")
    markers = {"torch-in-pairs": pytest.mark.long, "torch": pytest.mark.proof}
    left_out = (
        [] if HAS_TORCH else [pytest.param(None, id=name, marks=[m, without_torch]) for name, m in markers.items()]
    )
    return left_out + [
        pytest.param(
            design,
            id=str(design),
            marks=[] if design in once else pytest.mark.long if design in in_pairs else pytest.mark.proof,
        )
        for design in allowed()
    ]


@functools.cache
def undisturbed(design: Design) -> str:
    """The model of a run of ``design`` in which nobody dies, on Redis."""
    return digest(finish(TrainingJob(**replace(design, store="redis").job_fields())))


def with_a_loss(
    design: Design, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any
) -> tuple[TrainingRun, set[str]]:
    """The run of a job of ``design``, a worker of which dies, after what holds anywhere; and the parts of its bill."""
    promised = undisturbed(design) if design.is_exact else None
    number, died = zlib.crc32(str(design).encode()), tmp_path / "died"
    for name, value in mortal.worker(number % design.workers, 3 + number % (STEPS - 3), died).items():
        monkeypatch.setenv(name, value)
    job = TrainingJob(**design.job_fields(**changes))
    run = finish(job)
    check(run, job, n_lost=1)
    assert died.exists()
    (gone_on,) = re.findall(r"training goes on from step (\d+)", told(run))
    assert int(gone_on) > 0
    if promised is not None:
        assert digest(run) == promised
    # no file
    assert [path for path in paths_below(Path(tempfile.gettempdir())) if run.id in path.name] == []
    return run, {component for component, usd in run.cost.items() if usd > 0}


@pytest.mark.parametrize("design", parameters())
def test_a_worker_dies_and_the_contract_holds(
    design: Design,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    address = address_of(design.store, request)
    run, bill = with_a_loss(design, tmp_path, monkeypatch, store=address)
    servers = SERVERS[design.store] - ({"dynamodb"} if design.workers == 1 else set())  # nobody to send anything to
    assert bill == {"workers", "supervisor", "storage"} | servers
    # no frame on a server
    if design.store == "memcached":
        assert listed(address) == []
    elif design.store == "server":
        assert kept_on(address, f"mlless:{{{run.id}}}:") == []
    elif design.store == "dynamodb":
        assert request.getfixturevalue("dynamodb").list_tables()["TableNames"] == []


def on_s3() -> list[Any]:
    """Designs without a Redis whose functions, objects and frames are on S3, with the marker of those who run them."""
    designs = [each for each in allowed() if each.store == "storage" and each.workers > 1 and each.model != "torch"]
    once, in_pairs = cover(designs, 1), cover(designs, 2)
    return [
        pytest.param(design, id=str(design), marks=pytest.mark.long if design in once else pytest.mark.proof)
        for design in designs
        if design in once | in_pairs
    ]


@pytest.mark.parametrize("design", on_s3())
def test_a_worker_dies_and_the_contract_holds_on_s3(
    design: Design, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, s3: Any
) -> None:
    """On an emulator of it, over HTTP. Objects of this machine's own storage are files in a folder."""
    _, bill = with_a_loss(design, tmp_path, monkeypatch, backend=S3_BACKEND)
    assert bill == {"workers", "supervisor", "storage"}
    assert run_objects(s3) == []


def told(run: TrainingRun) -> str:
    """All that a run has told."""
    return " | ".join(event.text for event in run.telemetry.state.events)


def test_every_kind_that_is_registered_is_in_the_contract() -> None:
    examples = {"algorithms": ALGORITHMS, "protocols": SYNCS, "stores": STORES}
    models = {*MODELS, "torch"}  # where PyTorch is not, it has no example
    assert registered() == {"models": models, **{name: {*kinds} for name, kinds in examples.items()}}
    assert {kind for name in examples for kind in examples[name] if kind not in STORES} == {
        one.kind for kinds in (ALGORITHMS, SYNCS) for group in kinds.values() for one in group
    }
    # Who adds a kind, or lets a job accept what it refused, has the new number here.
    assert len(allowed()) == (1050 if HAS_TORCH else 925)


def test_what_is_refused_is_one_line_that_names_what_does_not_go_together() -> None:
    refused = [(design, error) for design in product() if (error := refusal(design)) is not None]
    assert len(refused) + len(allowed()) == len([*product()])
    for design, error in refused:
        assert error.field in ("algorithm", "sync", "BackupWorkers.k"), design
        assert str(error).startswith(f"{error.field}="), design
        assert str(error).endswith(f"must be {error.valid}"), design
        assert "\n" not in str(error), design
