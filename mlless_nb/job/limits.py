"""What ends a run: the most it may cost, and the rules that training stops by, as a user writes them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ..errors import BudgetError, JobError
from ..validation import check_positive_integer, is_number, specification


@specification
@dataclass(frozen=True)
class Budget:
    """The most a run may cost, in US dollars. The run's cost never passes it.

    Parameters
    ----------
    usd : float
        The cap, > 0.
    """

    usd: float

    def __post_init__(self) -> None:
        if not is_number(self.usd) or self.usd <= 0:
            raise BudgetError("budget", self.usd, "a finite number of US dollars > 0, e.g. 0.25")


@specification
@dataclass(frozen=True)
class Stop:
    """When training ends; whichever rule is met first.

    With no rule a run ends at its budget. Without one it ends once the validation loss has settled (see
    `mlless_nb.job.rate_schedule`), at the latest after 50 epochs or 2,000 steps, whichever are more; and where no
    rows are held out after 10 epochs or 400 steps.

    Parameters
    ----------
    target : float, optional
        End once the validation loss (the training loss where there is no validation set) is at or below it, in the
        model's metric.
    epochs : float, optional
        Passes over the training data.
    steps : int, optional
        Steps.
    time_s : float, optional
        Seconds since the functions were invoked.
    patience : int, optional
        End once so many evaluations in a row brought no better validation loss.
    confirmations : int
        So many evaluations in a row at or below the target end the run. The paper's code asks for 10 on the loss of
        single minibatches, which is noisy; here all held-out rows are judged, or without them the mean of ten steps,
        and one is enough.
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
