"""The run of `mlless-nb verify` and its report, on the backend that is here."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from clouds.emulator import Aws

from mlless_nb.clouds import verifying


def test_the_report_tells_whether_a_small_run_is_as_it_should_be(tmp_path: Path) -> None:
    report = verifying.verify("embedded")
    verifying.write(report, tmp_path / "report.json")
    read = json.loads((tmp_path / "report.json").read_text())
    assert read == report
    assert report["is_good"], report
    assert report["is_same_model"], report
    assert 0 < sum(report["there"]["cost_usd"].values()) <= verifying.CAP_USD
    assert report["there"]["steps"] == verifying.STEPS


def test_nothing_is_run_where_a_check_fails(
    cloud: Aws, run: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    status, said, errors = run("verify", "aws", "--report", str(tmp_path / "report.json"))
    assert (status, said) == (1, "")
    assert errors.startswith("FAIL profile: nothing is deployed from this machine: mlless-nb deploy aws")
    assert not (tmp_path / "report.json").exists()
