"""The run of `mlless-nb verify` and its report, on the backend that is here."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from clouds.emulator import Aws

from mlless_nb.clouds import verifying
from mlless_nb.driver.backends import deployed
from mlless_nb.job.execution import is_without_redis


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


@pytest.mark.long
def test_a_deployment_without_redis_is_verified_on_its_bucket(
    cloud: Aws, run: Callable[..., Any], redis_url: str
) -> None:
    status, said, _ = run("deploy", "aws", "--memory", "512")
    assert status == 0
    assert 'it has no Redis: jobs need store="storage", which' in said
    job = verifying.job("aws_lambda")
    assert is_without_redis(job)
    # It is a run like any other, and its model that of one on Redis.
    there = verifying._outcome(dataclasses.replace(job, backend="embedded"))
    here = verifying._outcome(verifying.job("embedded"))
    assert there["status"] == "finished", there
    assert there["model"] == here["model"]

    status, said, _ = run("deploy", "aws", "--memory", "512", "--redis", redis_url)
    assert (status, "no Redis" in said) == (0, False)
    assert deployed.servers_of("aws_lambda")
    assert not is_without_redis(verifying.job("aws_lambda"))
