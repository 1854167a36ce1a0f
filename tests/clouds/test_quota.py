"""How many functions the account may run at once: the account itself is asked, before each run."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from clouds.emulator import Aws

from mlless_nb.driver.backends.launcher import LithopsLauncher
from mlless_nb.errors import JobError

Command = Callable[..., tuple[int, str, str]]


def deployed_here(run: Command, *words: str) -> None:
    status, _, errors = run("deploy", "aws", *words)
    assert (status, errors) == (0, "")


def test_a_run_larger_than_the_quota_is_refused_before_anything_is_invoked(cloud: Aws, run: Command) -> None:
    cloud.concurrency = 3
    deployed_here(run, "--memory", "512")
    with pytest.raises(JobError, match=r"workers=3: must be at most 2: aws_lambda runs 3 functions at once"):
        LithopsLauncher("aws_lambda", 4, 512).prepare()


@pytest.mark.long
def test_a_quota_that_was_raised_after_the_deployment_counts(cloud: Aws, run: Command) -> None:
    """Also for Lithops, which would keep back what is more; and it counts functions that have ended."""
    cloud.concurrency = 3
    deployed_here(run, "--memory", "512")
    cloud.concurrency = 5
    launcher = LithopsLauncher("aws_lambda", 4, 512)
    answer = SimpleNamespace(status_code=202, text="", headers={"x-amzn-RequestId": "1"})
    sent: list[Any] = []
    try:
        launcher.prepare()
        assert launcher.cloud is not None
        assert launcher.cloud._deliveries is not None
        launcher.cloud._deliveries._session = SimpleNamespace(send=lambda request: sent.append(request) or answer)
        launcher.cloud._deliveries._patience_s = 1.0
        for _ in range(2):  # the second time for successors
            launcher.invoke(["{}"] * 4)
    finally:
        launcher.close()
    assert len(sent) == 8


def test_the_quota_is_asked_for_before_each_run(cloud: Aws, run: Command) -> None:
    """It may be another one than when the functions were deployed."""
    deployed_here(run, "--memory", "512")
    cloud.concurrency = 3
    launcher = LithopsLauncher("aws_lambda", 4, 512)
    with pytest.raises(JobError, match=r"workers=3: must be at most 2: aws_lambda runs 3 functions at once"):
        launcher.prepare()
