"""How workers started is told once all have: on a cloud with who had to wait for a new runtime."""

from __future__ import annotations

import pytest
from supervisor.test_missing import supervisor

from mlless_nb.bus.messages import Started
from mlless_nb.exchange import MemoryHub


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
    monkeypatch.setattr(made._hearing, "_tell", told.append)
    for slot, (start_s, is_cold) in enumerate(starts):
        made._hearing.take(Started(slot, start_s, is_cold=is_cold))
    assert told == [text]
