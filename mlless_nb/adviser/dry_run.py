"""A dry run: the job is checked as a run would check it, what it would take is measured, and nothing is started."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from ..driver.rehearsal import rehearse
from ..driver.run import TrainingRun
from ..job.job import TrainingJob
from ..money import price_profile
from .advice import Advice
from .foresight import thorough
from .outlook import Outlook


@dataclass(frozen=True, repr=False)
class DryRun:
    """What a run would be; nothing was started.

    Attributes
    ----------
    job : TrainingJob
        With everything chosen that was left open.
    outlook : Outlook or None
        None for rows that functions are to prepare.
    advice : Advice or None
        Other ways to run it, and what they would take.
    """

    job: TrainingJob
    outlook: Outlook | None
    advice: Advice | None

    @property
    def lines(self) -> list[str]:
        """The job, its outlook and warnings, a line each."""
        job = self.job
        lines = [f"dry run, nothing was started: {job.describe()}"]
        if self.outlook is None:
            return [*lines, "its rows are counted by functions when a run starts; what depends on them was not checked"]
        noun = "worker" if job.workers == 1 else "workers"
        chosen = f"{job.workers} {noun}, {job.minibatch:,} rows in a minibatch, {job.optimizer}"
        penalty = getattr(job.model, "l2", None)
        chosen += f", l2 {penalty:g}" if penalty is not None else ""
        lines += [f"{chosen}, priced as {price_profile(job.prices).label}", self.outlook.line]
        return [*lines, *(f"warning: {each}" for each in self.outlook.warnings)]

    def __repr__(self) -> str:
        return "\n".join([*self.lines, *([repr(self.advice)] if self.advice is not None else [])])

    def _repr_html_(self) -> str:
        first, *others = self.lines
        body = "".join(f"<br>{escape(line)}" for line in others)
        table = self.advice._repr_html_() if self.advice is not None else ""
        return f'<div class="mathjax_ignore tex2jax_ignore"><p><b>{escape(first)}</b>{body}</p>{table}</div>'


def dry_run(job: TrainingJob, resume: TrainingRun | str | None = None) -> DryRun:
    """Check ``job`` as `mlless_nb.train` does, and measure what it would take; nothing is started or billed.

    Raises
    ------
    JobError, ServiceError, CommandError
        Those of `mlless_nb.train`.
    """
    chosen = rehearse(job, resume)
    if chosen.is_stored:
        return DryRun(chosen, None, None)
    return DryRun(chosen, *thorough(chosen))
