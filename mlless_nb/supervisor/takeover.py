"""How a new supervisor takes over a run whose supervisor was lost: from the step log, the bus and the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..bus.messages import Failed, Left
from ..exchange import Coordinator, Plan, StepEntry
from ..money import Rates
from .ending import UNHEARD
from .step_rows import StepRows


def whole_log(log: Coordinator, rows: StepRows) -> Iterator[list[StepEntry]]:
    """The entries of the step log, which ``rows`` begin with: a log that was restored has not those from the start.

    Those after the newest restart come in any case: under bounded staleness the first may come after later ones.
    Workers that go on may be as quick as the reader: steps that they complete from now on are not waited for.
    """
    restart, now_s = log.restart(), log.now_s()
    entries = log.read_steps(0.001)  # what was read is not read again if data is lost
    rows.begin_at(min([restart.step, *(entry.step - 1 for entry in entries)]))
    while entries:
        yield entries
        entries = log.read_steps(0.001) if entries[-1].at_s < now_s else []


def departed(
    log: Coordinator,
    plan: Plan,
    ended: Mapping[int, Left | Failed],
    settled: set[int],
    rates: Rates,
    time_s: float,
    n_workers: int,
) -> list[Left]:
    """Final messages of the workers that have ended and whose own messages only the lost supervisor has read.

    RabbitMQ delivers a message once; a bus of Redis Streams is read from its start, and this is empty. Such a worker is
    billed up to ``time_s``, seconds after the invocation. ``settled`` are the slots whose functions had settled their
    money before the messages were read: they have sent their last ones before. A function that is not at work may never
    have come: it has left if its money is settled, or, if the servers forgot that, before the newest restart. One that
    takes part again after that restart may have left without having heard of it: it is missed, and the driver decides.
    """
    everybody, restart = list(range(n_workers)), log.restart()
    now_settled, at_work = log.settled(everybody), log.at_work(everybody)
    past = {slot for slot, first in plan.leaves.items() if first <= restart.step + 1 and slot not in at_work}
    unaware = plan.leaves.keys() - past if restart.number else set()
    nusd = rates.function_nusd(time_s)
    gone = past | ((now_settled & (settled | plan.leaves.keys())) - unaware)
    return [
        Left(slot, plan.leaves.get(slot, 1) - 1, nusd, 0, 0.0, 0.0, "left", UNHEARD, number=restart.number)
        for slot in sorted(gone - ended.keys())
    ]
