"""What a worker tells of a step: a row of numbers, packed, one a worker and step on its way through the coordinator."""

from __future__ import annotations

import struct
from typing import NamedTuple

from ..errors import DecodeError


class Report(NamedTuple):
    """One worker's part in a step.

    Loss sums and counts are of training (``loss``) and held-out rows (``val``); ``quality`` is the replica's loss on
    held-out rows that are the same for all, counts of 0 where there is none; ``interaction`` is the model's on a
    minibatch of the own share of the held-out rows. Seconds and merged bytes are those of the step before, which was
    not over when its own report left.
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
    exit_s: float = 0.0  # that are kept paid for, to end in good order
    position: int = 0  # minibatches that all workers together have taken
    storage_nusd: int = 0  # nano-dollars of storage requests so far
    n_sent: int = 0  # values published
    n_made: int = 0  # and values of the update
    sent_bytes: int = 0
    merged_bytes: int = 0  # of the merged range that this worker published
    staleness: int = 0  # steps that the oldest update not yet applied was behind

    def encode(self) -> bytes:
        """The report as bytes, little-endian."""
        return _PACKED.pack(*self)

    @staticmethod
    def decode(body: bytes) -> Report:
        """The report in ``body``; DecodeError when it has another length."""
        if len(body) != _PACKED.size:
            raise DecodeError(f"a report of {len(body)} bytes: must be {_PACKED.size}")
        return Report._make(_PACKED.unpack(body))


_PACKED = struct.Struct("<12d7q")
