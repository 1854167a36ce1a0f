"""The progress of a trial: which stage of successive halving (Optuna's rung) it has reached. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..job.job import TrainingJob

#: Comparisons before a trial's end: with a factor of 3 after 1/27, 1/9 and 1/3 of its length, but after an epoch.
N_RUNGS = 3


@dataclass(frozen=True)
class TrialLength:
    """The length of a trial.

    Parameters
    ----------
    limits : Mapping of str to float
        What ends it, by column of its telemetry: "epoch", "step", "time_s", "spent_usd". Without any the length is not
        known, and trials are compared after 1, 3, 9 ... epochs.
    factor : int
        Of these lengths; the best part in so many goes on.
    """

    limits: Mapping[str, float]
    factor: int

    @classmethod
    def of(cls, job: TrainingJob, factor: int) -> TrialLength:
        """The length of a trial with this job."""
        rules = job.stop_rules
        limits = {"epoch": rules.epochs, "step": rules.steps, "time_s": rules.time_s}
        if job.has_own_cap:
            limits["spent_usd"] = job.cap_usd
        return cls({column: float(limit) for column, limit in limits.items() if limit is not None}, factor)

    def share(self, row: Mapping[str, float]) -> float | None:
        """The part of its length that a trial has done with this ``row``, 0 to 1; None if the length is not known."""
        if not self.limits:
            return None
        return min(max(row[column] / limit for column, limit in self.limits.items()), 1.0)

    def is_over(self, row: Mapping[str, float]) -> bool:
        """Whether the trial is at its end, where there is nothing to compare any more."""
        return self.share(row) == 1.0

    def resource(self, row: Mapping[str, float]) -> int:
        """The same as a whole number: trials are compared where it is a power of the factor, first where it is 1.

        It is 0 in the first pass over the data, when a loss says little: low learning rates would always lose.
        """
        if row["epoch"] < 1 - 1e-9:
            return 0
        share = self.share(row)
        return int(row["epoch"]) if share is None else int(share * self.factor**N_RUNGS + 1e-9)
