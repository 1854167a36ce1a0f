"""The charts of one iteration of a stateless run."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import pytest

from mlless_nb import CommandError
from mlless_nb.widgets.workflow import workflow


def entry(stage: str, index: int, at_s: float, *objects: list[Any], attempt: int = 0, error: str = "") -> Any:
    return {
        "step": 3,
        "stage": stage,
        "index": index,
        "attempt": attempt,
        "launched_at_s": at_s,
        "began_at_s": at_s + 0.01,
        "ended_at_s": at_s + 0.05,
        "error": error,
        "objects": list(objects),
    }


def trace() -> list[Any]:
    update = ["put", "runs/a/step-000000003/update-00000-00000", 0.03, 0.04, 2000]
    return [
        entry("update", 0, 0.0, ["get", "runs/a/step-000000002/model", 0.01, 0.02, 500], update),
        {**entry("update", 1, 0.0, error="lost")},
        entry("update", 1, 0.1, attempt=1),
        entry("reduce", 0, 0.2, ["get", *update[1:]]),
    ]


def test_both_charts_are_valid_and_name_what_happened() -> None:
    charts = workflow(trace())
    flow, gantt = ("".join(ET.fromstring(chart).itertext()) for chart in (charts.flow, charts.gantt))
    assert "2 workers" in flow
    assert "1 lost" in flow
    assert "1 get" in flow
    assert "2.0 kB" in flow
    assert "worker 1 (2)" in gantt
    assert charts.flow in charts._repr_html_()


def test_a_lost_function_without_times_is_drawn() -> None:
    lost = {name: value for name, value in trace()[1].items() if name not in ("began_at_s", "ended_at_s", "objects")}
    assert 'class="lost"' in workflow([*trace(), lost]).gantt


def test_a_step_that_is_not_there_is_refused() -> None:
    with pytest.raises(CommandError, match="step=7"):
        workflow(trace(), 7)
