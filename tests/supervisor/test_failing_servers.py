"""A supervisor whose servers fail, or have lost the run's data, while it takes over or hears messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis
from supervisor.test_missing import left, supervisor

from mlless_nb.bus.messages import BY_USER, Command, Left, LetGo, Ready, Replaced, Started
from mlless_nb.exchange import LostData, MemoryHub, Past, Plan, Restart, StepEntry
from mlless_nb.exchange.step_report import Report
from mlless_nb.supervisor import outage
from mlless_nb.supervisor.loop import Supervisor


def fails_once(made: Supervisor, request: str, error: Callable[[], Exception], *, is_done: bool = False) -> None:
    """Let the first ``request`` to the coordinator fail, after the server has carried it out or before."""
    log: Any = made._log
    plain, errors = getattr(log, request), [error()]

    def failing(*given: Any) -> Any:
        if not errors:
            return plain(*given)
        if is_done:
            plain(*given)
        raise errors.pop()

    setattr(log, request, failing)


def away_once() -> Exception:
    return redis.ConnectionError("Connection refused")


def lost_once() -> Exception:
    return LostData("the run's data is gone")


def run_of_two(plan: Plan = Plan(), restart: Restart = Restart()) -> MemoryHub:  # noqa: B008 - frozen
    hub = MemoryHub()
    hub.create(None, 0, Past(restart, plan))
    return hub


# -- taking over


@pytest.mark.parametrize("request_", ["settled", "read_steps", "restart", "read_plan", "at_work"])
@pytest.mark.parametrize("error", [away_once, lost_once])
def test_servers_that_fail_while_a_supervisor_takes_over_are_waited_for(
    request_: str, error: Callable[[], Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run failed, "the supervisor failed: ConnectionError"."""
    monkeypatch.setattr(outage, "OUTAGE_POLL_S", 0.0)
    hub = run_of_two()
    for step in (1, 2, 3):
        hub.log_step(StepEntry(step, float(step), {0: Report(1.0, 1.0), 1: Report(1.0, 1.0)}))
    made, bus, _ = supervisor(hub, invoked_s=5.0)
    made._workers.started.clear()
    bus.send("supervisor", Started(0, 0.5).encode())
    for slot in (0, 1):
        made._log.refund(0, slot)
        bus.send("supervisor", Left(slot, 3, 1000, 0, 0.0, 0.0, "finished", "3 steps are done").encode())
    fails_once(made, request_, error)
    ended: Any = made.run()
    assert (ended.status, ended.reason, ended.step) == ("finished", "3 steps are done", 3)
    assert made._workers.started == {0}


def test_steps_that_are_lost_once_all_workers_have_ended_do_not_fail_the_run() -> None:
    """Nobody takes them again. It failed, "the server has lost steps", though the workers had told how it ended."""
    made, bus, _ = supervisor(run_of_two())
    for slot in (0, 1):
        bus.send("supervisor", Left(slot, 3, 1000, 0, 0.0, 0.0, "finished", "3 steps are done").encode())

    def lost(timeout_s: float) -> list[StepEntry]:
        if made._workers.have_all_ended:
            raise lost_once()
        return []

    made._log.read_steps = lost  # type: ignore[method-assign]
    ended: Any = made.run()
    assert (ended.status, ended.reason, ended.step) == ("finished", "3 steps are done", 3)


@pytest.mark.parametrize("is_told_again", [True, False])
def test_messages_that_no_supervisor_has_read_are_not_older_than_the_restart_that_one_has_heard_of(
    is_told_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RabbitMQ does not tell of it again: the driver was asked once more, and one that is needed was not missed."""
    made, bus, _ = supervisor(run_of_two(Plan(1, {0: 5, 1: 9}), Restart(1, 4)))
    news = [LetGo(1, [0], 30.0), left(1, 8)]  # the latter had not heard of the restart
    for message in [Replaced(1, 4, [], 20.0, 20.0), *news] if is_told_again else news:
        bus.send("supervisor", message.encode())
    monkeypatch.setattr(bus, "tells_again", lambda topic: is_told_again)
    made._incoming.catch_up()
    assert made._workers.ended.keys() == {0}
    assert (made._incoming.restart, made._incoming.base) == (1, 4)


def test_a_supervisor_does_not_hand_over_to_itself() -> None:
    """The one before it was paused once it had received who comes in its place, and recorded that late."""
    made, bus, _ = supervisor(run_of_two(), invoked_s=5.0)
    own_s = made._bill.supervisor.own_s
    for began_s, is_succeeded in ((own_s, False), (own_s + 10.0, True)):
        bus.send("supervisor", Ready(-1, began_s, began_s + 1.0).encode())
        made._incoming.receive(0.0)
        assert made._incoming.is_succeeded is is_succeeded


def test_a_supervisor_whose_successor_comes_as_the_last_worker_ends_reads_the_last_steps() -> None:
    """It concluded the run, since a successor has nothing to do then, and the history lacked them."""
    hub = run_of_two()
    for step in (1, 2, 3):
        hub.log_step(StepEntry(step, float(step), {0: Report(1.0, 1.0), 1: Report(1.0, 1.0)}))
    made, bus, _ = supervisor(hub)
    plain = made._log.read_steps

    def read(timeout_s: float) -> list[StepEntry]:
        return plain(timeout_s) if made._workers.have_all_ended else []

    made._log.read_steps = read  # type: ignore[method-assign]
    for slot in (0, 1):
        bus.send("supervisor", Left(slot, 3, 1000, 0, 0.0, 0.0, "finished", "3 steps are done").encode())
    began_s = made._bill.supervisor.own_s + 10.0
    bus.send("supervisor", Ready(-1, began_s, began_s + 1.0).encode())
    ended: Any = made.run()
    assert made._incoming.is_succeeded
    assert (ended.status, ended.step, made._rows.step) == ("finished", 3, 3)


# -- incoming messages


def hear(made: Supervisor, error: type[Exception] = redis.ConnectionError) -> None:
    """Hear messages twice; the first time a server fails."""
    with pytest.raises(error):
        made._incoming.receive(0.0)
    assert made._incoming.done == {}
    made._incoming.receive(0.0)


def test_messages_that_came_with_one_that_could_not_be_handled_are_heard() -> None:
    made, bus, _ = supervisor(run_of_two(Plan(1, {1: 5})))
    made._workers.started.clear()
    made._incoming.take(left(1, 4))
    running = made._bill.n_running
    fails_once(made, "read_plan", away_once)
    for message in (Replaced(1, 1, [0], 5.0, 5.0), Started(0, 0.5, 5.0), Started(1, 0.5)):
        bus.send("supervisor", message.encode())
    hear(made)
    assert made._workers.started == {0, 1}
    assert made._incoming.replacements == {0: 1}
    assert made._bill.n_running == running
    assert 1 not in made._workers.ended  # it is needed again


def test_a_successor_that_says_so_while_a_server_is_away_gets_the_slot() -> None:
    """It waited in vain, until the lifetime of the function before it ended the run."""
    made, bus, _ = supervisor(run_of_two())
    fails_once(made, "announce_hand_over", away_once)
    bus.send("supervisor", Ready(1, 3.0, 4.0).encode())
    hear(made)
    assert made._log.read_plan().hand_overs.keys() == {1}


@pytest.mark.parametrize("is_done", [False, True])
def test_a_command_that_could_not_be_carried_out_is_carried_out_once(is_done: bool) -> None:
    """It counted as done: nobody carried it out, and the driver waited for the answer."""
    made, bus, _ = supervisor(run_of_two())
    fails_once(made, "announce_leave", away_once, is_done=is_done)
    for _ in range(2):  # the driver repeats it
        bus.send("supervisor", Command("a", "scale_in", count=1).encode())
    hear(made)
    assert made._incoming.done == {"a": ""}
    assert made._incoming.leaving == made._log.read_plan().leaves.keys() == {1}


@pytest.mark.parametrize("command", [Command("a", "stop"), Command("a", "scale_in", slots=[1])])
def test_a_command_that_comes_while_the_data_is_lost_is_carried_out_once_it_is_restored(command: Command) -> None:
    """A stop had no effect; a removal ended the run, "the supervisor failed: KeyError: 1"."""
    hub = run_of_two()
    made, bus, _ = supervisor(hub)
    hub.lose()
    bus.send("supervisor", command.encode())
    with pytest.raises(LostData):
        made._incoming.receive(0.0)
    assert made._incoming.done == {}
    hub.create(None, 0, Past(Restart(1, 0)))
    made._incoming.receive(0.0)
    assert made._incoming.done == {"a": ""}
    plan = made._log.read_plan()
    assert plan.stop_reason == BY_USER if command.do == "stop" else plan.leaves.keys() == {1}


@pytest.mark.parametrize("command", [Command("a", "scale_in", count=1), Command("a", "scale_in", slots=[1])])
def test_a_command_that_a_lost_supervisor_has_carried_out_is_not_carried_out_again(command: Command) -> None:
    """It was refused, since one worker must stay; of more workers, more were removed."""
    hub = run_of_two()
    first, *_ = supervisor(hub)
    first._bus.send("supervisor", command.encode())
    first._incoming.receive(0.0)
    assert hub.plan.leaves.keys() == {1}
    hub.release(-1)
    second, bus, _ = supervisor(hub, invoked_s=5.0)
    second._take_over()
    bus.send("supervisor", command.encode())  # nobody has acknowledged it
    second._incoming.receive(0.0)
    assert second._incoming.done == {"a": ""}
    assert (hub.plan.leaves.keys(), second._incoming._asked) == ({1}, {1})
