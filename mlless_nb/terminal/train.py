"""``train``: runs the job of a TOML file, shows it in a line, saves its model.

Exit statuses: 0 the run has finished (or was stopped from elsewhere, or is capped without a target), 1 it failed or a
service did, 2 the file or an option is wrong, 3 its budget ended it before its target, 130 it was interrupted.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from ..errors import CommandError, DataWarning, JobError, JobWarning, MllessError

if TYPE_CHECKING:
    from ..driver.run import TrainingRun

FINISHED, FAILED, BAD_INPUT, CAPPED, INTERRUPTED = 0, 1, 2, 3, 130
EXAMPLE = """
a file has the fields of a cell, and the stop rules as the %%mlless line has them:

  model     = "PMF(rank=20)"
  optimizer = "SGD(learning_rate=8.0, momentum=0.9)"
  data      = {path = "ratings.csv", user = "user", item = "film", rating = "stars"}
  workers   = 4
  budget    = 0.05
  target    = 0.87

data is a file or glob (CSV, Parquet, LIBSVM), a table with the arguments of mlless_nb.datasets, or a name such as
"movielens-1m"; relative paths begin at the file's folder. A part may also be a table: [model] kind = "PMF", rank = 20.

exit status: 0 finished, 1 failed, 2 bad input, 3 the budget ended it before its target, 130 interrupted
"""


class _Parser(argparse.ArgumentParser):
    """A mistake is one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message}; --help lists the options\n")


def parser() -> argparse.ArgumentParser:
    """The options of ``train``."""
    made = _Parser(
        "mlless-nb train",
        description="Trains the job of a TOML file.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("config", metavar="FILE", help="the job, TOML")
    made.add_argument("--set", metavar="FIELD=VALUE", action="append", default=[], help="instead of the file's; again")
    made.add_argument("--save", metavar="MODEL", help="write the trained model there, as .npz")
    made.add_argument("--resume", metavar="RUN", help="resume from an ended run of this name or id")
    made.add_argument("--dry-run", action="store_true", help="check, say what it would take, and start nothing")
    return made


def main(words: Sequence[str]) -> int:
    """Carry out ``train`` with ``words``; returns the exit status. A mistake is one line on the standard error."""
    given = parser().parse_args(words)
    warnings.showwarning = _one_line_warnings(warnings.showwarning)
    try:
        return _train(given)
    except (JobError, CommandError) as error:
        return _print_line(str(error), BAD_INPUT)
    except MllessError as error:
        from .settings import ConfigError

        return _print_line(str(error), BAD_INPUT if isinstance(error, ConfigError) else FAILED)
    except KeyboardInterrupt:
        return _print_line("interrupted before anything was started", INTERRUPTED)


def _train(given: argparse.Namespace) -> int:
    from ..adviser import dry_run, foresight
    from ..starting import train
    from .config import job_of
    from .settings import read

    job = job_of(read(given.config, given.set))
    if given.save is not None:
        _check_place(given.save)
    if given.dry_run:
        print(dry_run(job, given.resume))
        return FINISHED
    run = train(job, resume=given.resume)
    foresight.announce(run)
    is_interrupted = not _followed(run, goes_on=bool(job.detach))
    state = run.telemetry.state
    if state.is_live:
        return INTERRUPTED
    is_kept = _conclude(run, given.save)
    if is_interrupted:
        return INTERRUPTED
    if state.status == "failed" or not is_kept:
        return FAILED
    return CAPPED if state.status == "capped" and state.target is not None else FINISHED


def _followed(run: TrainingRun, *, goes_on: bool) -> bool:
    """Show ``run`` until its end; False if it was interrupted: it is then stopped, unless it ``goes_on``."""
    from ..widgets import follow

    # What ends a job of a batch system, or a service, ends the run in good order too.
    signal.signal(signal.SIGTERM, signal.getsignal(signal.SIGINT))
    try:
        follow(run, sys.stderr)
        return True
    except KeyboardInterrupt:
        if goes_on:
            _print_line(
                f"{run.name} goes on in a process of its own; mlless_nb.attach({run.name!r}) follows and stops it"
            )
            return False
    try:
        run.stop()
        _print_line(
            f"{run.name}: interrupted; it ends in good order and its model is kept. Interrupt once more to leave now."
        )
        run.wait()
    except KeyboardInterrupt:
        _print_line(
            f"{run.name}: left before its end; its last checkpoint is kept, and its functions end by themselves"
        )
    return False


def _conclude(run: TrainingRun, save: str | None) -> bool:
    """Print the summary of ``run``, and save its model; False if that could not be written."""
    from ..widgets import text_summary

    state, why = run.telemetry.state, ""
    has_model, next_text = state.status != "failed" and state.step, ""
    if has_model:
        next_text = f"mlless_nb.attach({state.name!r}).model has the model; --resume {state.name} goes on from it"
    if save is not None and has_model:
        try:
            run.model.save(save)
            next_text = f"the model is in {save}: mlless_nb.models.load_model({save!r})"
        except OSError as error:  # e.g. the disk is full by now
            why = f"--save {save}: the model could not be written ({error.strerror or error})"
    print(text_summary(run, next_text), flush=True)
    if why:
        _print_line(why)
    return not why


def _check_place(path: str) -> None:
    """Raise JobError unless a model can be written to ``path``."""
    place = Path(path)
    try:
        is_right = not place.is_dir() and place.absolute().parent.is_dir()
        is_right = is_right and os.access(place if place.exists() else place.absolute().parent, os.W_OK)
    except OSError:  # the name is too long
        is_right = False
    if not is_right:
        raise JobError("--save", path, "a file in a folder that exists and can be written, e.g. model.npz")


def _one_line_warnings(others: Any) -> Any:
    """Shows our own warnings as one line."""

    def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
        if issubclass(category, (DataWarning, JobWarning)):
            print(f"warning: {message}", file=sys.stderr, flush=True)
        else:
            others(message, category, *where)

    return show


def _print_line(text: str, status: int = 0) -> int:
    print(text, file=sys.stderr, flush=True)
    return status
