"""Functions of a cloud that are told to end: who is waited for, and for how long."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace
from typing import Any

import pytest

from mlless_nb.bus.messages import Ended
from mlless_nb.driver.ending import last_functions
from mlless_nb.driver.ending.last_functions import abort_functions, kill_unheard


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


class Local:
    """Functions of this machine as a run ends: those that exit by themselves do so after so many looks, by slot."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **looks: int) -> None:
        self._left = {int(slot.removeprefix("slot").replace("m", "-")): n for slot, n in looks.items()}
        self.killed: list[int] = []
        self.now_s, self.is_local = 100.0, True
        clock = SimpleNamespace(sleep=self._sleep, monotonic=lambda: self.now_s)
        monkeypatch.setattr(last_functions, "time", clock)

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self._left = {slot: n - 1 for slot, n in self._left.items()}

    @property
    def exits(self) -> Any:
        """See `Exits`."""
        lives = {slot for slot, n in self._left.items() if n > 0}
        at = lambda slot, _=0.0: None if slot in lives else 99.0  # noqa: E731
        return SimpleNamespace(at=at, are_left=bool(lives), wait=lambda _: self._sleep(0.01))

    def kill(self) -> None:
        """Those that live are buried at the next look."""
        self.killed += sorted(slot for slot, n in self._left.items() if n > 0)
        self._left = dict.fromkeys(self.killed, 1)

    def ended(self, *unheard: int) -> None:
        """The run's final message has come."""
        message = Ended("capped", "", 3, None, None, {}, 9.0, unheard=[[float(slot), 8.5] for slot in unheard])
        launcher: Any = self
        kill_unheard(launcher, message, 90.0)


def test_a_function_that_starts_as_the_run_ends_is_killed_once_the_supervisor_has_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    local = Local(monkeypatch, slotm1=5, slot0=1, slot1=1000)
    local.ended(1)
    assert local.killed == [1]
    assert not local.exits.are_left
    # A supervisor that does not end is not waited for.
    local = Local(monkeypatch, slotm1=1000, slot1=1000)
    local.ended(1)
    assert local.killed == [-1, 1]
    assert local.now_s < 102.0


def test_others_that_live_are_left_to_end_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    for unheard in ((), (0,), (-1,), (-1, 1)):  # nobody, one that has exited, and by the driver's own message
        local = Local(monkeypatch, slotm1=5, slot1=1000)
        local.ended(*unheard)
        assert not local.killed
    cloud = Local(monkeypatch, slot1=1000)
    cloud.is_local = False
    cloud.ended(1)
    assert not cloud.killed
