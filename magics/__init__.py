"""The magics ``%%mlless`` and ``%mlless``, which ``%load_ext mlless_nb`` adds to a notebook. They do not train.

::

    mlless.py      the magic: parses its line and calls the other modules
    options.py     the options of the %%mlless line
    cell.py        cell text + the notebook's variables -> TrainingJob, or an error with its line    pure
    launching.py   starts a job: one live run per name, puts the handle into the notebook, shows it
    messages.py    one-line sentences about a run                                                 pure
    commands.py    %mlless status, stop, scale_in, tune, budget, wait, dashboard, report, doctor
    budgets.py     %mlless session, project
    sweep_cell.py  text of a %%mlless sweep cell -> a recipe for the jobs of its trials          pure
    sweeping.py    %%mlless sweep: begins it, puts the handle into the notebook, shows it
    many.py        %mlless runs, spend, compare, forget
    cleaning.py    %mlless ps, clean
    waiting.py     waits for a run and handles interrupts
    completion.py  Tab completion of options, commands and run names
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from ..errors import JobError

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load_ipython_extension", "unload_ipython_extension"]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add the magics and their completions to ``shell``. Loading twice does no harm."""
    from ..driver.launch.warm_up import warm_up
    from ..widgets.frontend import can_click, detect
    from .completion import complete
    from .mlless import MllessMagics

    view = None
    with contextlib.suppress(JobError):  # a wrong MLLESS_PROGRESS is told when a run is shown
        view = "mlless_nb.widgets.dashboard" if can_click(detect(shell)) else None
    warm_up(view)
    shell.register_magics(MllessMagics)
    matchers = shell.Completer.custom_matchers if shell.Completer is not None else []
    if complete not in matchers:
        matchers.append(complete)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Remove the magics and their completions from ``shell``; refused while a run is live.

    Raises
    ------
    UsageError
        If runs are live. It names them and their cost, which would be invisible without the magics.
    """
    from IPython.core.error import UsageError

    from ..driver import runs as registry
    from .completion import complete
    from .messages import cost_so_far, is_live

    live = [run for run in registry.handles() if is_live(run)]
    if live:
        raise UsageError(
            "mlless_nb stays loaded while "
            + ", ".join(f"{run.name} ({cost_so_far(run)})" for run in live)
            + (" is" if len(live) == 1 else " are")
            + " live; %mlless stop first"
        )
    for kind in ("line", "cell"):
        shell.magics_manager.magics[kind].pop("mlless", None)
    if shell.Completer is not None and complete in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.remove(complete)
