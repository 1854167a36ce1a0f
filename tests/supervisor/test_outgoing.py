"""What the supervisor sends to the driver, and sends again when a server may have lost it."""

from __future__ import annotations

from typing import Any

from mlless_nb.bus import open_bus
from mlless_nb.bus.messages import Message, Update
from mlless_nb.supervisor.outgoing import MOST_ROWS, Outgoing
from mlless_nb.telemetry.live import Row


def row(step: int) -> Row:
    """The row of ``step``."""
    return Row(*[float(step)] * len(Row._fields))


def steps_heard(bus: Any) -> list[float]:
    """The steps of all rows that have arrived."""
    heard: list[float] = []
    while bodies := bus.receive("driver", 0.0):
        for update in map(Message.decode, bodies):
            assert isinstance(update, Update)
            heard += [one[0] for one in update.rows]
    return heard


def test_each_message_says_which_row_was_before_its_rows() -> None:
    """So that who hears them knows whether a server has lost a message between."""
    bus = open_bus("memory://", "outgoing-after")
    sending = Outgoing(bus)
    for step in range(1, 2 * MOST_ROWS + 2):
        sending.add(row(step))
    sending.send({})
    sending.add(row(2 * MOST_ROWS + 5))
    sending.send({})
    updates: list[Any] = [Message.decode(body) for body in bus.receive("driver", 0.0)]
    assert [update.after for update in updates] == [0, MOST_ROWS, 2 * MOST_ROWS, 2 * MOST_ROWS + 1]
    bus.close(delete=True)


def test_rows_that_a_server_may_have_lost_are_sent_again_before_later_ones() -> None:
    bus = open_bus("memory://", "outgoing")
    sending = Outgoing(bus)
    for step in (1, 2, 3):
        sending.add(row(step))
    sending.send({})
    sending.add(row(4))
    sending.send({})
    assert steps_heard(bus) == [1, 2, 3, 4]
    sending.add(row(5))
    for _ in range(2):  # each failure of a server calls for it
        sending.repeat()
    sending.add(row(6))
    sending.send({})
    assert steps_heard(bus) == [1, 2, 3, 4, 5, 6]
    for step in range(7, 7 + 2 * MOST_ROWS):
        sending.add(row(step))
    sending.repeat()
    sending.send({})
    assert steps_heard(bus) == list(range(1, 7 + 2 * MOST_ROWS))
    bus.close(delete=True)
