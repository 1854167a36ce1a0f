"""How workers started is told once all have: on a cloud with who had to wait for a new runtime."""

from __future__ import annotations

import pytest
from supervisor.test_missing import supervisor

from mlless_nb.bus.messages import Started, StartedTwice
from mlless_nb.exchange import NO_PAST, MemoryHub


@pytest.mark.parametrize(
    ("starts", "text"),
    [
        (((0.4, None), (0.6, None)), "2 of 2 workers started"),
        (((4.06, True), (3.1, True)), "2 of 2 workers started: 2 cold within 4.1 s"),
        (((0.3, False), (4.0, True)), "2 of 2 workers started: 1 cold within 4.0 s, 1 warm within 0.3 s"),
        (((0.3, False), (4.0, None)), "2 of 2 workers started: 1 warm within 0.3 s"),
    ],
)
def test_it_is_told_who_started_cold(
    starts: tuple[tuple[float, bool | None], ...], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _, _ = supervisor(MemoryHub())
    made._workers.started.clear()
    told: list[str] = []
    monkeypatch.setattr(made._incoming, "_add_event", told.append)
    for slot, (start_s, is_cold) in enumerate(starts):
        made._incoming.take(Started(slot, start_s, is_cold=is_cold))
    assert told == [text]


@pytest.mark.parametrize(
    ("slot", "who", "component"), [(1, "Worker 1", "workers"), (-1, "The supervisor", "supervisor")]
)
def test_a_function_that_was_started_twice_is_billed_and_told(slot: int, who: str, component: str) -> None:
    made, _, _ = supervisor(hub := MemoryHub())
    hub.create(None, 0, NO_PAST)
    before = made._bill.by_component(3.0)[component]
    made._incoming.take(StartedTwice(slot, 61_000))
    assert made._bill.by_component(3.0)[component] == before + 61_000
    ((_, text),) = made._outgoing._update.sentences
    assert text == f"{who} was started twice; the second function left at once, and cost $0.000061"
