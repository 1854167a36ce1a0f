"""The step log: a worker's report of one step, a packed row of numbers, and the entries that the supervisor reads."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import DecodeError

_PACKED = struct.Struct("<12d11q5d")
#: Bytes of an encoded report.
REPORT_BYTES = _PACKED.size


class Report(NamedTuple):
    """One worker's measurements of a step.

    Loss sums and counts are those of training rows (``loss``) and of held-out rows (``val``). ``quality`` is the
    replica's loss on the held-out rows that all workers use to compare replicas (without users' own parameters where
    users are sharded); its count is 0 if there are none. ``interaction`` is the model's, on one minibatch of this
    worker's held-out rows. Seconds, merged bytes, residuals and gradients are those of the step before, because a
    report is sent before its own step ends.
    """

    loss_sum: float = 0.0
    loss_count: float = 0.0
    val_sum: float = 0.0
    val_count: float = 0.0
    quality_sum: float = 0.0
    quality_count: float = 0.0
    interaction: float = 0.0
    compute_s: float = 0.0
    exchange_s: float = 0.0
    wait_s: float = 0.0
    compute_cpu_s: float = 0.0  # processor time of ``compute_s``
    exit_s: float = 0.0  # kept prepaid for a regular end
    position: int = 0  # minibatches that all workers together have taken
    storage_nusd: int = 0  # nano-dollars of storage requests so far
    n_puts: int = 0  # frames so far, see `FrameCount`
    n_gets: int = 0
    put_bytes: int = 0
    got_bytes: int = 0
    n_sent: int = 0  # values published
    n_made: int = 0  # and values of the update
    sent_bytes: int = 0
    merged_bytes: int = 0  # of the merged range that this worker published
    staleness: int = 0  # age of the oldest update that is not applied yet, steps
    primal_square: float = -1.0  # this worker's part of the squared primal residual; negative without residuals
    dual_residual: float = -1.0
    # Of the gradients, see `mlless_nb.exchange.policies.gradient_spread.Spread`.
    mean_square: float = -1.0
    variance: float = -1.0
    learning_rate: float = -1.0

    def encode(self) -> bytes:
        """The report as bytes, little-endian."""
        return _PACKED.pack(*self)

    @staticmethod
    def decode(body: bytes) -> Report:
        """The report in ``body``; DecodeError when it has another length."""
        if len(body) != REPORT_BYTES:
            raise DecodeError(f"a report of {len(body)} bytes: must be {REPORT_BYTES}")
        return _new_tuple(Report, _unpack(body))  # called for each worker and step: quicker than `_make`


#: Where a report has what its worker has requested so far: ``storage_nusd`` and the numbers of a `FrameCount`.
REQUESTED = slice(Report._fields.index("storage_nusd"), Report._fields.index("n_sent"))
_unpack, _new_tuple = _PACKED.unpack, tuple.__new__


@dataclass(frozen=True)
class StepEntry:
    """A completed step in the step log: its time (seconds, the coordinator's clock) and each slot's report.

    With a quorum, the reports are those of the updates that count; ``n_workers`` is the number of workers that take
    part in the step, and ``arrived_s`` has the times of all arrivals until its end, ascending. Without, they are 0 and
    empty.
    """

    step: int
    at_s: float
    reports: dict[int, Report]
    n_workers: int = 0
    arrived_s: tuple[float, ...] = ()


class LateArrival(NamedTuple):
    """An arrival after a step's end: the step, the number of arrivals so far with this one, and its time, seconds."""

    step: int
    rank: int
    at_s: float
