"""Numbers with their nouns; each sentence here is one that is said of a single thing, too."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from mlless_nb import ModelAveraging, Stop, datasets
from mlless_nb.data.plausibility import doubts_of_ids
from mlless_nb.job.stop_rules import StopRules
from mlless_nb.plurals import all_done, count
from mlless_nb.telemetry.left import words
from mlless_nb.telemetry.live import COLUMNS, History


def test_one_is_one_and_all_else_is_several() -> None:
    assert [count(n, "worker") for n in (0, 1, 2, 1200)] == ["0 workers", "1 worker", "2 workers", "1,200 workers"]
    assert [count(n, "process") for n in (1, 2)] == ["1 process", "2 processes"]
    assert [count(n, "minibatch") for n in (1, 2)] == ["1 minibatch", "2 minibatches"]
    assert [count(text, "epoch") for text in ("1", "1.5", "0.2")] == ["1 epoch", "1.5 epochs", "0.2 epochs"]
    assert [all_done(n, "step") for n in (1, 2)] == ["1 step is done", "all 2 steps are done"]


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (lambda: repr(datasets.ratings([0], [0], [3.0])), "1 rating, 1 user x 1 item>"),
        (lambda: repr(datasets.csr(np.ones((1, 1)), [1.0])), "1 row, 1 feature, 1 non-zero>"),
        (lambda: repr(History(np.zeros((1, len(COLUMNS))))), "<History of 1 step,"),
        (lambda: words({"processes": 1, "keys": 2, "files": 1}), "1 process, 2 keys and 1 temporary file"),
        (lambda: str(ModelAveraging(every=1)), "model averaging every minibatch"),
        (lambda: doubts_of_ids("users", np.full(5, 1500, np.int32), 3000)[0], "1 id is used of 0 to 2999"),
    ],
)
def test_what_is_said_of_one(said: Any, wanted: str) -> None:
    assert wanted in said()


def test_one_evaluation_without_progress() -> None:
    judge = StopRules(dataclasses.asdict(Stop(patience=1)), "RMSE")
    assert judge.observe(1, 0.1, 1.0, 0.9, True) is None
    verdict = judge.observe(2, 0.2, 1.0, 0.95, True)
    assert verdict is not None
    assert verdict.reason == "no better RMSE than 0.9000 in 1 evaluation"
