"""One-line sentences about a run. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..job.baseline import shortfall
from ..redaction import LEAST_CHARACTERS, in_configuration
from ..telemetry.live import LIVE
from ..widgets.format import usd
from ..widgets.view_model import best_text, line_of

if TYPE_CHECKING:
    from ..driver.run import TrainingRun
    from ..job.job import TrainingJob

#: Fields of a job that may hold secrets.
MAY_HOLD_SECRETS = ("redis", "redis_for_functions", "bus", "store", "backend")


def is_live(run: TrainingRun) -> bool:
    """Whether functions of ``run`` may still be running."""
    return run.status in LIVE


def cost_so_far(run: TrainingRun) -> str:
    """The cost of ``run`` so far, e.g. "$0.0123 so far"."""
    return f"{usd(run.telemetry.state.spent_usd)} so far"


def status_line(run: TrainingRun) -> str:
    """The status of ``run``, its pending commands, and the reason if it has ended."""
    state = run.telemetry.state
    return " · ".join([line_of(state), *state.pending, *([] if is_live(run) or not run.reason else [run.reason])])


def stopping_line(run: TrainingRun) -> str:
    """Printed when an interrupt has asked ``run`` to stop."""
    step = run.telemetry.state.step
    return (
        f"{run.name}: interrupted at step {step}, {cost_so_far(run)}; asked it to stop in good order. "
        "Interrupt once more to return without waiting for that."
    )


def left_line(run: TrainingRun) -> str:
    """Printed when a second interrupt returned before ``run`` had stopped."""
    workers = run.telemetry.state.n_workers
    return (
        f"{run.name}: returned while it stops; {workers} worker(s) and the supervisor still run, {cost_so_far(run)}. "
        f"%mlless status {run.name} shows when they have ended."
    )


def detached_line(run: TrainingRun) -> str:
    """Printed when an interrupt ended the waiting and not ``run``."""
    rate = run.telemetry.state.rate_usd_s * 3600
    return f"{run.name}: goes on, {cost_so_far(run)}, {usd(rate)} an hour; %mlless stop {run.name} ends it."


def ended_line(run: TrainingRun) -> str:
    """Printed when ``run`` has stopped after an interrupt."""
    state = run.telemetry.state
    kept = "its model is kept" if state.step else "it took no step, so there is no model"
    best = f", {best_text(state)}" if state.best else ""
    too_bad = f"; {shortfall(state)}" if shortfall(state) else ""
    return f"{run.name}: {run.status} after step {state.step}{best}, {usd(state.spent_usd)}; {kept}{too_bad}."


def written_secrets_line(text: str, job: TrainingJob) -> str:
    """A warning if ``text``, that of a cell, holds secrets of its ``job``, which the notebook keeps; else ""."""
    named = []
    for field in MAY_HOLD_SECRETS:
        secrets = [each for each in in_configuration(getattr(job, field)) if not each.startswith("${")]
        if any(len(each) >= LEAST_CHARACTERS and each in text for each in secrets):
            named.append(field)
    if not named:
        return ""
    return (
        f"warning: the notebook keeps the secret that this cell writes out ({', '.join(named)}). A URL can name it "
        "instead: rediss://user:${NAME}@host takes the environment variable NAME, or the keyring's entry NAME of the "
        "service mlless_nb"
    )
