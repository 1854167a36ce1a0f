"""Commands until the supervisor has carried them out."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from mlless_nb.bus.messages import Command
from mlless_nb.driver.running.commands import RESEND_S, Commands
from mlless_nb.telemetry.live import Telemetry


class Sent:
    """Commands of a run whose supervisor answers nothing: what is sent to it, and what was answered to the budgets."""

    def __init__(self) -> None:
        self.sent: list[Command] = []
        self.answered: list[tuple[list[str], int | None]] = []
        bus = SimpleNamespace(send=lambda _, body: self.sent.append(Command.decode(body)))
        services: Any = SimpleNamespace(bus=bus, log=SimpleNamespace(money=lambda: (1, 0)))
        allowance: Any = SimpleNamespace(ask=lambda *_: None, answered=lambda *told: self.answered.append(told))
        self.telemetry = Telemetry()
        self.commands = Commands(services, self.telemetry, allowance)


@pytest.mark.parametrize("do", ["budget", "tune"])
def test_of_two_that_exclude_each_other_the_older_one_is_not_sent_again(do: str) -> None:
    """A supervisor that took over could carry them out in the other order: the user's older budget was in force."""
    run = Sent()
    for number, command in enumerate((Command("a", do, nusd=2), Command("b", "stop"), Command("c", do, nusd=1))):
        run.commands.send(command, f"pending {number}")
    assert run.telemetry.state.pending == ("pending 1", "pending 2")
    run.sent.clear()
    run.commands._services.log.announce_stop = lambda *_: None  # type: ignore[method-assign]
    run.commands.resend(time.monotonic() + 2 * RESEND_S)
    assert [command.id for command in run.sent] == ["b", "c"]
    run.commands.settle({"c": ""})
    assert run.telemetry.state.pending == ("pending 1",)
    assert run.answered == ([(["c", "a"], 1)] if do == "budget" else [])
    run.commands.settle({"a": ""})  # late


def test_one_that_is_refused_gives_its_place_back() -> None:
    """A lower budget that was refused had dropped a raise which no supervisor had read."""
    run = Sent()
    for command in (Command("a", "budget", nusd=9), Command("b", "budget", nusd=8), Command("c", "budget", nusd=1)):
        run.commands.send(command, f"budget {command.nusd}")
    run.commands.settle({"c": "the budget cannot go below 2"})
    assert run.telemetry.state.pending == ("budget 8",)
    run.sent.clear()
    run.commands.resend(time.monotonic() + 2 * RESEND_S)
    assert [command.id for command in run.sent] == ["b"]
    run.commands.settle({"b": ""})
    assert run.answered == [(["c"], 1), (["b", "a"], 1)]


def test_removals_do_not_replace_each_other() -> None:
    run = Sent()
    for slot in (1, 2):
        run.commands.send(Command(str(slot), "scale_in", slots=[slot]), f"removing worker {slot} ...")
    run.sent.clear()
    run.commands.resend(time.monotonic() + 2 * RESEND_S)
    assert [command.slots for command in run.sent] == [[1], [2]]
