"""What ends a run, as a user writes it: the budget cap and the stop rules."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ..errors import BudgetError, JobError
from ..validation import check_positive_integer, is_number, specification


@specification
@dataclass(frozen=True)
class Budget:
    """The budget cap of a run, in US dollars. The run's metered cost never exceeds it.

    Parameters
    ----------
    usd : float
        The cap, > 0.
    """

    usd: float

    def __post_init__(self) -> None:
        if not is_number(self.usd) or self.usd <= 0:
            raise BudgetError("budget", self.usd, "a finite number of US dollars > 0, e.g. 0.25")


class AllottedBudget(Budget):
    """What a session's or a project's budget has left, as the cap of a job that has none of its own.

    Such a job ends as one without a cap does: this is a limit, and not an amount that is to be spent.
    """


@specification
@dataclass(frozen=True)
class Stop:
    """When training ends: as soon as one of the rules is met.

    With no rule a run ends at its budget. With neither rule nor budget it ends when the validation loss has settled
    (see `mlless_nb.job.rate_schedule`), at the latest after 50 epochs or 2,000 steps, whichever is later; and after 10
    epochs or 400 steps if no rows are held out.

    Parameters
    ----------
    target : float, optional
        End when the validation loss (the training loss if there is no validation set) is at or below this value, in
        the model's metric.
    epochs : float, optional
        Passes over the training data.
    steps : int, optional
        Steps.
    time_s : float, optional
        Seconds since the functions were invoked.
    patience : int, optional
        End after so many evaluations in a row without a better validation loss.
    confirmations : int
        Evaluations in a row that must be at or below the target. The paper's code uses 10, since it judges the noisy
        loss of single minibatches; here all held-out rows are judged, or without them the mean of ten steps, and one
        is enough.
    """

    target: float | None = None
    epochs: float | None = None
    steps: int | None = None
    time_s: float | None = None
    patience: int | None = None
    confirmations: int = 1

    def __post_init__(self) -> None:
        for name in ("target", "epochs", "time_s"):
            value = getattr(self, name)
            if value is not None and (not is_number(value) or value <= 0):
                raise JobError(f"stop.{name}", value, "a finite number > 0 or None")
        check_positive_integer("stop.steps", self.steps, or_none=True)
        check_positive_integer("stop.patience", self.patience, or_none=True)
        check_positive_integer("stop.confirmations", self.confirmations)

    @property
    def is_empty(self) -> bool:
        """Whether no rule is set."""
        return all(getattr(self, rule.name) is None for rule in fields(self) if rule.default is None)
