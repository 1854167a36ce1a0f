"""Files in the object storage: what makes no sense whatever the rows are is refused before functions read them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from job.test_combinations import CLICKS, RATINGS, REFUSED, job, nothing_is_launched, of, refused  # noqa: F401

from mlless_nb import (
    ADMM,
    DBW,
    ISP,
    PMF,
    SGD,
    SSP,
    Adam,
    AdaSync,
    BackupWorkers,
    KMeans,
    LogisticRegression,
    ModelAveraging,
    ScaleIn,
    StoredFiles,
)

FILES = StoredFiles("bucket/rows/", "csv")
#: Fields whose check reads rows; "at most" so many says what depends on their number.
OF_ROWS = {"data", "data.y", "model", "validation", "memory_mb"}
WHATEVER_THE_ROWS = [
    (fields, field, valid)
    for fields, field, valid in REFUSED
    if field not in OF_ROWS and "at most" not in valid and not isinstance(fields.get("model"), PMF)
]


def stored(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields, with files in the place of rows."""
    return {**fields, "data": FILES}


def test_most_of_the_reasons_have_nothing_to_do_with_the_rows() -> None:
    assert len(WHATEVER_THE_ROWS) > 40


@pytest.mark.parametrize(
    ("fields", "field", "valid"),
    [
        *WHATEVER_THE_ROWS,
        (of("PMF"), "data", "ratings for PMF"),
        ({"validation": RATINGS}, "validation", "feature rows with labels for LogisticRegression"),
        ({"sync": BackupWorkers(9)}, "BackupWorkers.k", "at most 3, the number of workers"),
        ({"sync": AdaSync(9)}, "AdaSync.first", "at most 3, the number of workers"),
        ({"sync": BackupWorkers(9), "workers": None}, "BackupWorkers.k", "at most 4, the number of workers"),
        ({"sync": BackupWorkers(2), "codec": "int8"}, "codec", "'float32' with backup workers"),
        ({"sync": DBW()}, "sync", "DBW(gain='blind') with the default optimiser"),
        ({"sync": DBW(), "optimizer": Adam()}, "sync", "DBW(gain='blind') with Adam"),
        ({"sync": DBW(), "scale_in": ScaleIn(threshold=0.5)}, "scale_in", "ScaleIn.off() with DBW"),
    ],
)
def test_what_makes_no_sense_whatever_the_rows_are_is_refused_before_they_are_read(
    fields: dict[str, Any], field: str, valid: str
) -> None:
    error = refused(lambda: job(**stored(fields)))
    assert error.field == field
    assert valid in error.valid


@pytest.mark.parametrize(
    "fields",
    [
        {"workers": None, "minibatch": None},
        {"workers": 400},
        {"algorithm": ADMM(), "optimizer": SGD()},
        {"algorithm": ModelAveraging(2), "sync": ISP(0.7)},
        {"sync": DBW(), "optimizer": SGD()},
        {"sync": BackupWorkers(3), "workers": None},
        {"execution": "events", "reducers": 7},
        {"execution": "map-reduce"},
        of("k-means", model=KMeans(401)),
        of("numpy"),
    ],
    ids=str,
)
def test_what_the_rows_decide_is_left_open_until_they_are_counted(fields: dict[str, Any]) -> None:
    made = job(**stored(fields))
    assert {name: getattr(made, name) for name in fields if name != "data"} == {
        name: value for name, value in fields.items() if name != "data"
    }
    assert made.algorithm is fields.get("algorithm")
    assert dataclasses.replace(made) == made


@pytest.mark.parametrize(
    ("fields", "field", "valid"),
    [
        ({"algorithm": ADMM(), "sync": SSP(2)}, "sync", "BSP() with ADMM"),
        ({"workers": 400}, "workers", "at most 20, for 20 minibatches (400 training rows in"),
        (of("PMF"), "validation", "ratings for PMF"),
    ],
)
def test_if_only_the_validation_set_is_stored_the_training_rows_are_checked(
    fields: dict[str, Any], field: str, valid: str
) -> None:
    error = refused(lambda: job(**fields, validation=FILES))
    assert error.field == field
    assert valid in error.valid
    made = job(model=LogisticRegression(), data=CLICKS, validation=FILES)
    assert dataclasses.replace(made) == made
