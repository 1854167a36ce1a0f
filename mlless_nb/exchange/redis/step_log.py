"""The step log on Redis as the supervisor reads it: a stream of complete steps and of late arrivals."""

from __future__ import annotations

import redis

from ..step_report import LateArrival, Report, StepEntry

#: Most entries of one request, and most requests of one call: a reader that comes late reads on.
AT_ONCE, MOST_REQUESTS = 500, 8


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
        self._last_entry = "0-0"
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
        """Read on; returns how many rows of the stream were read."""
        reply = self._redis.xread({self._key: self._last_entry}, count=AT_ONCE, block=block_ms)
        n_rows = 0
        for _, rows in reply.items() if isinstance(reply, dict) else reply or []:
            for entry_id, fields in rows[0] if rows and isinstance(rows[0], list) else rows:
                self._last_entry, n_rows = entry_id.decode(), n_rows + 1
                at_s = float(fields.pop(b"at"))
                if b"late" in fields:
                    self._late.append(LateArrival(int(fields[b"late"]), int(fields[b"rank"]), at_s))
                    continue
                step, is_last = int(fields.pop(b"step")), fields.pop(b"more", None) is None
                n_workers, times = int(fields.pop(b"workers", 0)), fields.pop(b"times", b"")
                self._reports |= {int(slot): Report.decode(body) for slot, body in fields.items()}
                if is_last:
                    self._steps.append(
                        StepEntry(step, at_s, self._reports, n_workers, tuple(map(float, times.split())))
                    )
                    self._reports = {}
        return n_rows

    def late(self) -> list[LateArrival]:
        """See `Coordinator.read_late`."""
        late, self._late = self._late, []
        return late
