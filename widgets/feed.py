"""The thread that sends a run's telemetry to a view: in batches, no faster than the view draws."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from ..telemetry.live import RunState, Telemetry
from .rows import Rows

#: Seconds between two batches of rows.
BATCH_S = 0.25
#: Seconds between two snapshots, what a reloaded page starts from.
SNAPSHOT_S = 2.0
#: A send that took longer than this is followed by a pause of one batch: rows gather, nothing queues.
SLOW_SEND_S = 0.05


class Sink(Protocol):
    """What a feed feeds."""

    def on_rows(self, first: int, rows: Rows, state: RunState) -> None:
        """``rows`` are new, the first of them being row number ``first`` of the run; there may be none."""

    def on_snapshot(self, rows: Rows, state: RunState) -> None:
        """All rows so far."""


class Feed:
    """Feeds ``sink`` from ``telemetry`` until the run has ended, then calls ``at_end`` once."""

    def __init__(self, telemetry: Telemetry, sink: Sink, at_end: Callable[[], None]) -> None:
        self._telemetry, self._sink, self._at_end = telemetry, sink, at_end
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="mlless-feed", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """Stop feeding, without waiting for the end of the run. Idempotent."""
        self._closing.set()
        self.join(5.0)

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the feed is over."""
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _loop(self) -> None:
        seen, sent, pictured, next_snapshot = 0, 0, -1, 0.0
        shown: RunState | None = None
        while not self._closing.is_set():
            seen = self._telemetry.wait_for_change(seen, BATCH_S)
            # the state first: rows that come after it are only newer, and an end is never seen before its last row
            state = self._telemetry.state
            rows = self._telemetry.rows_since(sent)
            began = time.monotonic()
            if len(rows) or state is not shown:
                self._sink.on_rows(sent, rows, state)
                sent, shown = sent + len(rows), state
            if not state.is_live or (began >= next_snapshot and pictured != seen):
                self._sink.on_snapshot(self._telemetry.rows_since(0), state)
                next_snapshot, pictured = began + SNAPSHOT_S, seen
            if not state.is_live:
                self._at_end()
                return
            slow = time.monotonic() - began > SLOW_SEND_S
            self._closing.wait(BATCH_S * (2 if slow else 1))
