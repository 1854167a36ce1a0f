"""Functions of a cloud that are told to end: who is waited for, and for how long."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace
from typing import Any

import pytest

from mlless_nb.driver.ending import last_functions
from mlless_nb.driver.ending.last_functions import abort_functions


class Cloud:
    """A run of a supervisor and two workers; what each look finds: who is at work, settled, has a lease; and notes."""

    def __init__(self, *looks: tuple[str, str, str, bool], has_redis: bool = True, leaves_notes: bool = True) -> None:
        self._looks, self.told, self.n_listings = list(looks), list[tuple[Any, ...]](), 0
        log = SimpleNamespace(abort=lambda *words: self.told.append(words))
        log.at_work = lambda slots: {slot: "7-a-0.0" for slot in slots if str(slot) in self._looks[0][0].split()}
        log.settled = lambda slots: {slot for slot in slots if str(slot) in self._looks[0][1].split()}
        log.alive = self._alive
        cloud = SimpleNamespace(have_ended=self._have_ended, leaves_notes=leaves_notes)
        launcher = SimpleNamespace(is_local=False, has_ended=lambda: False, cloud=cloud)
        urls = ["redis://here"] if has_redis else []
        self.services: Any = SimpleNamespace(log=log, launcher=launcher, redis_urls=urls)

    def _alive(self, roles: list[str]) -> list[bool]:
        leases = self._looks[0][2].replace("-1", "supervisor").split()
        return [role in leases for role in roles]

    def _have_ended(self) -> bool:
        self.n_listings += 1
        return self._looks[0][3]

    def next(self, _: float) -> None:
        """The next look finds something else."""
        del self._looks[0]

    @property
    def n_left(self) -> int:
        """Looks that were not made."""
        return len(self._looks) - 1


def waited(cloud: Cloud, monkeypatch: pytest.MonkeyPatch, starts_until: float = math.inf) -> Cloud:
    """After its functions were told."""
    # Other threads of this process sleep, too.
    monkeypatch.setattr(last_functions, "time", SimpleNamespace(sleep=cloud.next, monotonic=time.monotonic))
    abort_functions(cloud.services, 2, "the driver failed", 60.0, starts_until)
    assert cloud.told == [("the driver failed", 2)]
    return cloud


def test_those_that_work_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud(
        ("-1 0 1", "", "-1 0 1", False),
        ("0", "-1 1", "-1 0 1", False),
        ("", "-1 0 1", "-1 0 1", False),  # whoever has settled has ended, though its lease goes on
    )
    assert waited(cloud, monkeypatch).n_left == 0
    assert cloud.n_listings == 0


def test_those_that_are_lost_have_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud(("-1 0 1", "", "0", False), ("-1 0 1", "", "", False))
    assert waited(cloud, monkeypatch).n_left == 0


def test_those_that_have_not_started_are_waited_for_until_they_leave_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    """They fail as they start, some of them seconds after the first one of which the run was told: 5 % of a bill."""
    cloud = Cloud(("0", "", "", False), ("0", "", "", False), ("0", "", "", True))
    assert waited(cloud, monkeypatch).n_left == 0


def test_those_that_were_to_start_long_ago_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud(("0", "", "0", False), ("0", "", "", False), ("0", "", "", True))
    assert waited(cloud, monkeypatch, time.monotonic()).n_left == 1


def test_pods_that_may_never_start_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud(("0", "", "", False), ("0", "", "", True), leaves_notes=False)
    assert waited(cloud, monkeypatch).n_left == 1
    assert cloud.n_listings == 0


def test_without_a_redis_leases_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud(("", "", "1", False), ("", "", "", False), has_redis=False)
    assert waited(cloud, monkeypatch).n_left == 0
    assert cloud.n_listings == 0


def test_nobody_is_waited_for_for_long_and_a_redis_may_be_gone() -> None:
    cloud = Cloud(("0", "", "0", False))
    abort_functions(cloud.services, 1, "", patience_s=0.0)
    del cloud.services.log.abort
    abort_functions(cloud.services, 1, "", patience_s=60.0)
