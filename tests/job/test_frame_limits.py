"""Frames that a store does not take: only where a frame may have every parameter, see also `test_combinations`."""

from __future__ import annotations

from typing import Any

import pytest
from job.test_combinations import vast

from mlless_nb import ISP, SGD, Adam, JobError, ModelAveraging, TrainingJob


@pytest.mark.parametrize("changes", [{}, {"optimizer": Adam(0.1)}, {"optimizer": SGD(0.1, momentum=0.9)}])
def test_sparse_updates_of_a_larger_table_go_over_redis(changes: dict[str, Any]) -> None:
    assert TrainingJob(**vast(1 << 29) | changes).workers == 2


@pytest.mark.parametrize(
    "changes",
    [
        {"sync": ISP(0.7)},
        {"codec": "bf16"},
        {"algorithm": ModelAveraging()},
        {"optimizer": SGD(0.1, momentum=0.9, lazy=False)},
        {"optimizer": Adam(0.1, lazy=False)},
    ],
)
def test_updates_that_may_have_every_parameter_do_not(changes: dict[str, Any]) -> None:
    with pytest.raises(JobError) as caught:
        TrainingJob(**vast(1 << 29) | changes)
    assert "store='redis': must be one that takes frames of" in str(caught.value)
    TrainingJob(**vast(1 << 28) | changes)
