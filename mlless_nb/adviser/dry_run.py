"""A dry run: the job is checked as a run would check it, what it would take is measured, and nothing is started."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from ..driver.run import TrainingRun
from ..errors import JobError
from ..job.job import TrainingJob
from ..money import price_profile
from ..plurals import count
from .advice import Advice
from .estimate import Estimate
from .foresight import of_stored, thorough
from .stored import rehearsed


@dataclass(frozen=True, repr=False)
class DryRun:
    """What a run would be; nothing was started.

    Attributes
    ----------
    job : TrainingJob
        With everything chosen that was left open.
        For stored files, what depends on their rows is still left open.
    estimate : Estimate or None
        For stored files as if their first rows stood for all; None if that is not possible.
    advice : Advice or None
        Other ways to run it, and what they would take.
    stored : tuple of str
        For stored files: what was seen of them, and what would be chosen, a line each.
    """

    job: TrainingJob
    estimate: Estimate | None
    advice: Advice | None
    stored: tuple[str, ...] = ()

    @property
    def lines(self) -> list[str]:
        """The job, its estimate and warnings, a line each."""
        job = self.job
        lines = [f"dry run, nothing was started: {job.describe()}"]
        if job.is_stored:
            counted = "its rows are counted by functions when a run starts; what depends on them was not checked"
            lines += self.stored or [counted]
        else:
            penalty = getattr(job.model, "l2", None)
            more = f", {job.optimizer}" + (f", l2 {penalty:g}" if penalty is not None else "")
            lines.append(_chosen(job, more))
        if self.estimate is None:
            return lines
        return [*lines, self.estimate.line, *(f"warning: {each}" for each in self.estimate.warnings)]

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
    chosen, rows = rehearsed(job, resume)
    if not chosen.is_stored:
        return DryRun(chosen, *thorough(chosen))
    if rows is None:
        return DryRun(chosen, None, None)
    counted = (
        f"{rows.sentence}; functions count them when a run starts, and prepare them, which is not in these figures"
    )
    try:
        standing, ahead, advice = of_stored(chosen, rows)
    except JobError as error:
        return DryRun(chosen, None, None, (counted, f"no figures: {error}"))
    return DryRun(chosen, ahead, advice, (counted, _chosen(standing)))


def _chosen(job: TrainingJob, more: str = "") -> str:
    """What was chosen for ``job``, in a line."""
    prices = price_profile(job.prices).label
    return f"{count(job.workers, 'worker')}, {count(job.minibatch, 'row')} in a minibatch{more}, priced as {prices}"
