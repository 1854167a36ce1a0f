"""The step log as objects, one for each step, and the late arrivals of rounds of a quorum."""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Callable, Mapping, Sequence

from ...errors import DecodeError, ServiceError
from ...storage.conditional import Conditional
from ..step_report import LateArrival, Report, StepEntry

#: Steps that are kept; the supervisor reads them long before.
KEPT_STEPS = 10_000
#: Most entries that one call reads.
MOST_READ = 500
#: Most steps that one looks back for the newest entry before all are listed: workers see the plan for steps that they
#: have not taken, and some are ahead of others. A listing costs as much as a dozen reads.
MOST_BACK = 10
#: Seconds without the next entry after which a reader lists the entries: it may have come too late for that one. Before
#: each further listing it waits twice as long.
LISTED_AFTER_S = 10.0
_HEAD, _SLOT = struct.Struct("<dIIII"), struct.Struct("<I")  # time, workers, times of arrivals, reports, bytes of one


def encode(entry: StepEntry) -> bytes:
    """An entry as bytes."""
    reports = [(slot, report.encode()) for slot, report in sorted(entry.reports.items())]
    n_bytes = len(reports[0][1]) if reports else 0
    return b"".join(
        [
            _HEAD.pack(entry.at_s, entry.n_workers, len(entry.arrived_s), len(reports), n_bytes),
            struct.pack(f"<{len(entry.arrived_s)}d", *entry.arrived_s),
            *(_SLOT.pack(slot) + report for slot, report in reports),
        ]
    )


def decode(step: int, blob: bytes) -> StepEntry:
    """The entry of ``step`` in ``blob``; DecodeError if it is none."""
    try:
        at_s, n_workers, n_times, n_reports, n_bytes = _HEAD.unpack_from(blob)
        times = struct.unpack_from(f"<{n_times}d", blob, _HEAD.size)
        begin = _HEAD.size + 8 * n_times
        reports = {}
        for _ in range(n_reports):
            (slot,) = _SLOT.unpack_from(blob, begin)
            begin += _SLOT.size + n_bytes
            reports[slot] = Report.decode(blob[begin - n_bytes : begin])
    except struct.error:
        raise DecodeError(f"not an entry of the step log: {len(blob)} bytes") from None
    return StepEntry(step, at_s, reports, n_workers, times)


class StepLog:
    """The log of one job, for one thread.

    Parameters
    ----------
    storage : Conditional
    folder : str
        Prefix of its keys.
    pause_s : float
        Seconds between two reads of an entry that is not there.
    note : callable
        Called with the numbers of reads and writes made.
    """

    def __init__(self, storage: Conditional, folder: str, pause_s: float, note: Callable[[int, int], None]) -> None:
        self._storage, self._folder, self._pause_s, self._note = storage, folder, pause_s, note
        self._next, self._looked_at, self._read_to_s = 1, -1e9, 0.0
        self._list_at, self._list_s = time.monotonic() + LISTED_AFTER_S, LISTED_AFTER_S
        self._late: list[LateArrival] = []
        self._known: set[str] = set()  # late arrivals that were read

    def append(self, step: int, reports: Mapping[int, Report], n_workers: int = 0, times: Sequence[float] = ()) -> None:
        """Add a complete step. Two workers that both see its completion write the same."""
        # The clocks of two workers differ by what each has estimated of the storage's.
        at_s = max(self._storage.now_s(), *times, 0.0)
        self.put(StepEntry(step, at_s, dict(reports), n_workers, tuple(times)))
        if step > KEPT_STEPS:
            self._storage.objects.delete([f"{self._folder}steps/{step - KEPT_STEPS}"])

    def put(self, entry: StepEntry) -> None:
        """Write an entry."""
        self._note(0, 1)
        self._storage.objects.put(f"{self._folder}steps/{entry.step}", encode(entry))

    def note_late(self, arrival: LateArrival) -> None:
        """Add a late arrival."""
        self._note(0, 1)
        self._storage.objects.put(f"{self._folder}late/{arrival.step}-{arrival.rank}", struct.pack("<d", arrival.at_s))

    def count(self) -> int:
        """Its objects, also those of steps that were taken before a restart, by two listings."""
        self._note(0, 2)
        return sum(len(self._storage.objects.list(f"{self._folder}{kind}/")) for kind in ("steps", "late"))

    @property
    def read_to(self) -> tuple[int, float]:
        """The newest step that was read, and its time; zeros before the first."""
        return self._next - 1, self._read_to_s

    def newest(self, last: int, since_s: float) -> StepEntry | None:
        """The newest entry of the steps up to ``last``, from after ``since_s``; None if none is there, or readable."""
        least = max(last - MOST_BACK, 0)
        with contextlib.suppress(ServiceError, DecodeError, KeyError):
            for step in range(last, least, -1):
                with contextlib.suppress(KeyError):
                    if (entry := self._entry(step)).at_s > since_s:
                        return entry
            earlier = [step for step in self._listed() if step <= least] if least else []
            if earlier and (entry := self._entry(max(earlier))).at_s > since_s:
                return entry
        return None

    def _entry(self, step: int) -> StepEntry:
        self._note(1, 0)
        return decode(step, self._storage.objects.get(f"{self._folder}steps/{step}"))

    def _listed(self) -> list[int]:
        """The steps that are kept, by a listing."""
        self._note(0, 1)
        return [int(key.rpartition("/")[2]) for key in self._storage.objects.list(f"{self._folder}steps/")]

    def read(self, timeout_s: float) -> list[StepEntry]:
        """The entries after those that were read, see `Coordinator.read_steps`."""
        give_up_at = time.monotonic() + timeout_s
        entries: list[StepEntry] = []
        pause_s = 1e-3
        while True:
            now = time.monotonic()
            if now - self._looked_at >= self._pause_s:
                entries = self._read_on()
            left_s = give_up_at - time.monotonic()
            if entries or left_s <= 0:
                break
            time.sleep(min(max(pause_s, self._pause_s), left_s))
            pause_s = min(2 * pause_s, 0.05)
        if any(entry.n_workers for entry in entries):
            with contextlib.suppress(ServiceError):  # the next call reads the rest
                self._read_late()
        return entries

    def _read_on(self) -> list[StepEntry]:
        entries: list[StepEntry] = []
        while len(entries) < MOST_READ:
            try:
                entry = self._entry(self._next)
            except KeyError:
                self._looked_at = time.monotonic()
                if entries or not self._skip():
                    break
                continue
            except ServiceError:
                if entries:
                    break  # what was read is not read again
                raise
            entries.append(entry)
            self._next, self._read_to_s = self._next + 1, entry.at_s
            self._list_at, self._list_s = time.monotonic() + LISTED_AFTER_S, LISTED_AFTER_S
        return entries

    def _skip(self) -> bool:
        """Go on with the oldest entry that is kept, if the next one was deleted; looked for if it is long in coming."""
        now = time.monotonic()
        if now < self._list_at:
            return False
        self._list_s *= 2
        self._list_at = now + self._list_s
        steps = self._listed()
        if max(steps, default=0) < self._next + KEPT_STEPS:
            return False
        self._next = min(step for step in steps if step > self._next)
        return True

    def _read_late(self) -> None:
        """Read late arrivals: those of steps in the log, which have quorums."""
        self._note(0, 1)
        for key in self._storage.objects.list(f"{self._folder}late/"):
            if key not in self._known:
                step, rank = key.rpartition("/")[2].split("-")
                self._note(1, 0)
                (at_s,) = struct.unpack("<d", self._storage.objects.get(key))
                self._known.add(key)
                self._late.append(LateArrival(int(step), int(rank), at_s))
        self._late.sort(key=lambda arrival: arrival.at_s)

    def take_late(self) -> list[LateArrival]:
        """Late arrivals that `read` met since the last call, oldest first."""
        late, self._late = self._late, []
        return late
