"""The magic: parses its line, reads the cell, starts the job."""

from __future__ import annotations

from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments

from ..errors import JobError, MllessError
from ..validation import SYNONYMS, hint, nearest
from .cell import FIELDS, at_its_line, read_cell, unused
from .commands import perform
from .launching import start
from .messages import written_secrets_line
from .options import BEHAVIOUR, OPTIONS, job_options, words_of


def with_options(magic: Any) -> Any:
    """``magic`` with a parser for `OPTIONS`, which also generates its help."""
    for flag, details in reversed(OPTIONS):
        magic = argument(flag, **details)(magic)
    magic = magic_arguments()(magic)
    magic.parser.allow_abbrev = False
    return magic


@magics_class
class MllessMagics(Magics):
    """``%%mlless`` trains the job of the cell; ``%mlless`` shows a run or sends it a command."""

    @line_cell_magic
    @with_options
    def mlless(self, line: str, cell: str | None = None) -> None:
        """Train a model on serverless functions, live, under a budget.

        %%mlless [options]           the body is Python; it assigns model and data, and optionally optimizer, sync, stop
                                     or any other field of TrainingJob; it can read the notebook's variables
        %%mlless --dry-run [options] checks the cell and says what the run would take; starts nothing
        %%mlless sweep --budget USD [--trials N] [--sampler S] [--parallel N] [--halving N|off] [options]
                                     trials of the body, whose settings are choice(...), uniform(...), log_uniform(...)
                                     or integer(...), under one budget; weak ones stop early
        %mlless status [RUN]         the run's status                 %mlless budget USD [RUN]     set the cap
        %mlless stop [RUN]           end it and keep its model        %mlless wait [RUN] [SECONDS]
        %mlless scale_in [N] [RUN]   remove N workers                 %mlless report [RUN]         show the result
        %mlless dashboard [RUN]      show it again                    %mlless tune on|off [RUN]    the auto-tuner
        %mlless attach RUN           of another kernel, or ended
        %mlless runs [N] [--project NAME]         all runs of this user, of all notebooks and days
        %mlless spend [--project NAME]            what they have cost, by day and project
        %mlless compare RUN RUN ...               their losses against seconds and dollars, and the settings that differ
        %mlless forget RUN ...                    remove ended runs, with their records and models
        %mlless ps                   live runs of all processes, and what killed ones have left
        %mlless clean [--data]       remove what killed runs have left, and with --data packed minibatches too
        %mlless doctor               check what `mlless-nb deploy` has made in a cloud
        %mlless session [NAME] [--budget USD]     spent, reserved and left of this notebook's budget, or of a shared one
        %mlless project [NAME] [--budget USD]     the same of a project, over notebooks and days
        %mlless budget --session|--project [NAME] [USD]    the same in other words: --session 2.00
        RUN may also be the name of a sweep after status, stop, budget, wait, report, dashboard and forget.
        """
        try:
            if cell is None:
                perform(line)
                return
            if line.split()[:1] == ["sweep"]:
                from . import sweeping  # Optuna is an extra, and sweeps are rare

                filename = self.shell.compile.cache(f"%%mlless {line}\n{cell}", self.shell.execution_count)
                sweeping.start(self.shell, words_of("%%mlless", line)[1:], cell, filename)
                return
            given, unknown = self.mlless.parser.parse_argstring(line, partial=True)
            _refuse_unknown(unknown)
            behaviour = {name: value for name, value in vars(given).items() if name in BEHAVIOUR}
            filename = self.shell.compile.cache(f"%%mlless {line}\n{cell}", self.shell.execution_count)
            job = read_cell(cell, self.shell.user_ns, *job_options(vars(given)), filename)
            if note := unused(cell):
                print(note)
            if warning := written_secrets_line(f"{line}\n{cell}", job):
                print(warning)
            try:
                start(self.shell, job, **behaviour)
            except JobError as error:
                raise at_its_line(cell, error) from error
        except MllessError as error:
            raise UsageError(str(error)) from error


def _refuse_unknown(words: list[str]) -> None:
    if words:
        field = words[0].lstrip("-").replace("-", "_")
        near = nearest("--" + SYNONYMS.get(field, field).replace("_", "-"), [flag for flag, _ in OPTIONS], 0.7)
        meant = f"; is {near} meant?" if near else hint(field, FIELDS) or "; %%mlless? lists the options"
        if field in FIELDS:
            meant = f"; write `{field} = ...` into the cell"
        raise UsageError(f"%%mlless {' '.join(words)}: not an option{meant}")
