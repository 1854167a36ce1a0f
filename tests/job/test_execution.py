"""Which jobs may run on stateless functions: what outlives a step is refused in one line."""

from __future__ import annotations

from typing import Any

import pytest
from engine.jobs import job

from mlless_nb import BSP, ISP, SSP, JobError, ScaleIn


@pytest.mark.parametrize("execution", ["map-reduce", "events"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sync", ISP(0.7)),
        ("sync", SSP(3)),
        ("codec", "int8"),
        ("scale_in", ScaleIn(threshold=0.5)),
        ("partition", "user"),
        ("pattern", "scatter-reduce"),
        ("store", "storage"),
    ],
)
def test_what_outlives_a_step_is_refused(execution: str, field: str, value: Any) -> None:
    with pytest.raises(JobError) as refused:
        job(**{"sync": BSP(), "execution": execution, field: value})
    assert refused.value.field == field
    assert "\n" not in str(refused.value)


def test_defaults_that_are_for_workers_are_replaced() -> None:
    made = job(sync=BSP(), execution="map-reduce", scale_in=ScaleIn())
    assert made.partition == "rows"
    assert not made.scale_in.enabled


def test_an_unknown_execution_names_the_valid_ones() -> None:
    with pytest.raises(JobError, match="'workers' or 'map-reduce' or 'events'"):
        job(execution="lambda")
