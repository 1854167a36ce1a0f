"""The thread that sends a run's telemetry to a view, in batches and no faster than the view can draw."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

from ..telemetry.live import RunState, Telemetry
from .rows import Rows

#: Least and most seconds between two batches of rows, and the share of the run's time that they are apart: a curve
#: moves by about a pixel then.
BATCH_S, BATCHES_APART_S, BATCH_SHARE = 0.25, 0.5, 1 / 400
#: Least and most seconds between two snapshots, and the share of the run's time that they are apart. A reloaded page
#: starts from the newest one and asks for the rest; a snapshot has some 25 kB, so they are the most of what is sent.
SNAPSHOT_S, SNAPSHOTS_APART_S, APART_SHARE = 2.0, 10.0, 0.2
#: After a send that took longer than this the feed skips one batch, so that messages do not queue.
SLOW_SEND_S = 0.05


class Sink(Protocol):
    """Receives a feed's telemetry."""

    def on_rows(self, first: int, rows: Rows, state: RunState) -> None:
        """Receive new ``rows``, maybe none; the first one is row number ``first`` of the run."""

    def on_snapshot(self, rows: Rows, state: RunState) -> None:
        """Receive all rows so far."""


class Feed:
    """Sends ``telemetry`` to ``sink`` until the run has ended, then calls ``at_end`` once."""

    def __init__(self, telemetry: Telemetry, sink: Sink, at_end: Callable[[], None]) -> None:
        self._telemetry, self._sink, self._at_end = telemetry, sink, at_end
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="mlless-feed", daemon=True)

    def start(self) -> None:
        """Start the thread; returns at once."""
        self._thread.start()

    def close(self) -> None:
        """Stop the feed before the end of the run. Idempotent."""
        self._closing.set()
        self._telemetry.wake()
        self.join(5.0)

    def join(self, timeout_s: float | None = None) -> None:
        """Wait until the feed has ended."""
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _loop(self) -> None:
        seen, answers, sent, in_snapshot, next_snapshot = 0, 0, 0, -1, 0.0
        shown: RunState | None = None
        while not self._closing.is_set():
            seen = self._telemetry.wait_for_change(seen, BATCH_S)
            if self._closing.is_set():
                return
            # read the state before the rows: so the run's end is never sent before its last row
            state = self._telemetry.state
            rows = self._telemetry.rows_since(sent)
            began = time.monotonic()
            if len(rows) or state is not shown:
                self._sink.on_rows(sent, rows, state)
                sent, shown = sent + len(rows), state
            if not state.is_live or (began >= next_snapshot and in_snapshot != seen):
                self._sink.on_snapshot(self._telemetry.rows_since(0), state)
                apart_s = min(max(SNAPSHOT_S, APART_SHARE * state.time_s), SNAPSHOTS_APART_S)
                next_snapshot, in_snapshot = began + apart_s, seen
            if not state.is_live:
                self._at_end()
                return
            slow = time.monotonic() - began > SLOW_SEND_S
            # Rows are sent in batches; what a command has changed is not kept waiting.
            batch_s = max(BATCH_S, min(BATCH_SHARE * state.time_s, BATCHES_APART_S))
            answers = self._telemetry.wait_for_answer(answers, batch_s * (2 if slow else 1))
