"""The step log on Redis as the supervisor reads it: a stream of complete steps and of late arrivals."""

from __future__ import annotations

import time

import redis

from ..restarts import LostData
from ..step_report import LateArrival, Report, StepEntry

#: Most entries of one request, and most requests of one call: a reader that comes late reads on.
AT_ONCE, MOST_REQUESTS = 500, 8
#: Before the first entry of a stream.
BEFORE_ALL = "0-0"
#: Seconds for which the driver is waited for that restores lost steps: it may have done so with a clock that is behind.
RESTORED_S = 10.0


#: Most reports in one row of the stream, half as many as of ``arrive.lua``: all but the last row have a field ``more``.
MOST_REPORTS = 2000


def add(pipeline: redis.client.Pipeline, key: str, entry: StepEntry) -> None:
    """Add an entry to the stream ``key``, as ``arrive.lua`` does."""
    reports = [(str(slot), report.encode()) for slot, report in entry.reports.items()]
    head: dict[str, object] = {"step": entry.step, "at": f"{entry.at_s:.6f}"}
    further = {"workers": entry.n_workers, "times": " ".join(map(str, entry.arrived_s))} if entry.n_workers else {}
    while len(reports) > MOST_REPORTS:
        pipeline.xadd(key, {**head, "more": 1, **dict(reports[:MOST_REPORTS])})
        del reports[:MOST_REPORTS]
    pipeline.xadd(key, {**head, **further, **dict(reports)})


class StepLogReader:
    """Reads the step log of one job from its start. For one thread.

    Parameters
    ----------
    client : redis.Redis
    key : str
        Of the stream.
    """

    def __init__(self, client: redis.Redis, key: str) -> None:
        self._redis, self._key = client, key
        self._last_entry = self._last_step_entry = BEFORE_ALL
        self._newest_step = 0
        self._lost_at: float | None = None  # since when steps are known to be lost, on the monotonic clock
        self._reports: dict[int, Report] = {}  # of a step whose entries are not all read yet
        self._steps: list[StepEntry] = []  # that were read, and not returned: the server failed then
        self._late: list[LateArrival] = []

    def read(self, timeout_s: float) -> list[StepEntry]:
        """See `Coordinator.read_steps`."""
        for block_ms in (max(int(timeout_s * 1000), 1), *[None] * (MOST_REQUESTS - 1)):
            if self._read(block_ms) < AT_ONCE:
                break
        steps, self._steps = self._steps, []
        return steps

    def _read(self, block_ms: int | None) -> int:
        """Read on; returns how many rows of the stream were read. Raises `LostData` if some before them are lost."""
        reply = self._redis.xread({self._key: self._last_entry}, count=AT_ONCE, block=block_ms)
        n_rows = 0
        for _, rows in reply.items() if isinstance(reply, dict) else reply or []:
            for entry_id, fields in rows[0] if rows and isinstance(rows[0], list) else rows:
                step = int(fields.pop(b"step", 0))  # late arrivals have none
                if step > self._newest_step + 1:
                    self._look_for_lost()
                self._last_entry, n_rows = entry_id.decode(), n_rows + 1
                at_s = float(fields.pop(b"at"))
                if b"late" in fields:
                    self._late.append(LateArrival(int(fields[b"late"]), int(fields[b"rank"]), at_s))
                    continue
                is_last = fields.pop(b"more", None) is None
                n_workers, times = int(fields.pop(b"workers", 0)), fields.pop(b"times", b"")
                self._reports |= {int(slot): Report.decode(body) for slot, body in fields.items()}
                self._newest_step, self._lost_at = max(step, self._newest_step), None
                self._last_step_entry = self._last_entry
                if is_last:
                    self._steps.append(
                        StepEntry(step, at_s, self._reports, n_workers, tuple(map(float, times.split())))
                    )
                    self._reports = {}
        return n_rows

    def _look_for_lost(self) -> None:
        """Raise `LostData` if a server has lost the step that was read last, though it has older ones.

        Then those after it are lost, too: a Redis that was restarted may have older data, and workers go on until the
        driver has restored the run. Then they take the lost steps again. Steps that the log has dropped do not come.
        """
        if self._last_step_entry == BEFORE_ALL:
            return
        with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.xrange(self._key, self._last_step_entry, self._last_step_entry)
            pipeline.xrange(self._key, "-", f"({self._last_step_entry}", count=1)
            is_there, has_older = pipeline.execute()
        if has_older and not is_there:
            now = time.monotonic()
            self._lost_at = now if self._lost_at is None else self._lost_at
            if now - self._lost_at < RESTORED_S:
                raise LostData("the server has lost steps that nobody has read")

    def late(self) -> list[LateArrival]:
        """See `Coordinator.read_late`."""
        late, self._late = self._late, []
        return late
