"""The step log on Redis as the supervisor reads it: a stream of complete steps and of late arrivals."""

from __future__ import annotations

import redis

from ..step_report import LateArrival, Report, StepEntry


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
        self._late: list[LateArrival] = []

    def read(self, timeout_s: float) -> list[StepEntry]:
        """See `Coordinator.read_steps`."""
        reply = self._redis.xread({self._key: self._last_entry}, count=500, block=max(int(timeout_s * 1000), 1))
        entries: list[StepEntry] = []
        for _, rows in reply.items() if isinstance(reply, dict) else reply or []:
            for entry_id, fields in rows[0] if rows and isinstance(rows[0], list) else rows:
                self._last_entry = entry_id.decode()
                at_s = float(fields.pop(b"at"))
                if b"late" in fields:
                    self._late.append(LateArrival(int(fields[b"late"]), int(fields[b"rank"]), at_s))
                    continue
                step, is_last = int(fields.pop(b"step")), fields.pop(b"more", None) is None
                n_workers, times = int(fields.pop(b"workers", 0)), fields.pop(b"times", b"")
                self._reports |= {int(slot): Report.decode(body) for slot, body in fields.items()}
                if is_last:
                    entries.append(StepEntry(step, at_s, self._reports, n_workers, tuple(map(float, times.split()))))
                    self._reports = {}
        return entries

    def late(self) -> list[LateArrival]:
        """See `Coordinator.read_late`."""
        late, self._late = self._late, []
        return late
