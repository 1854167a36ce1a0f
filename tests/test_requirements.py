"""What a test lacks is a reason to skip it, and where CI is true to fail it."""

from __future__ import annotations

import sys

import pytest
from cloud import box
from servers import missing


@pytest.fixture(autouse=True)
def linux(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which the emulated cloud could be."""
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(box.os, "uname", lambda: type("Machine", (), {"machine": "x86_64"}))
    monkeypatch.setattr(box, "why_not", lambda: None)
    monkeypatch.delenv(box.WITHOUT, raising=False)


@pytest.mark.parametrize(("ci", "ending"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_a_test_that_lacks_something_fails_in_ci(
    monkeypatch: pytest.MonkeyPatch, ci: str, ending: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(ending, match="redis-server is not installed; apt-get install redis-server"):
        missing("redis-server", "apt-get install redis-server")
    with pytest.raises(ending, match="no_such_package is not installed; pip install no_such_package"):
        box.require("no_such_package")
    monkeypatch.setattr(box, "why_not", lambda: "it needs root")
    with pytest.raises(ending, match="no cloud in a box here: it needs root"):
        box.require("pytest")


def test_there_is_no_cloud_in_a_box_on_other_systems_or_where_it_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    box.require("pytest")
    monkeypatch.setenv(box.WITHOUT, "1")
    with pytest.raises(pytest.skip.Exception, match="MLLESS_WITHOUT_BOX is set"):
        box.require("pytest")
    monkeypatch.delenv(box.WITHOUT)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(pytest.skip.Exception, match="it needs Linux on x86-64"):
        box.require("pytest")
