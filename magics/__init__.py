"""``%%mlless`` and ``%mlless``: what ``%load_ext mlless_nb`` brings into a notebook.

::

    mlless.py      the magic itself: it parses and delegates
    options.py     what stands on the %%mlless line
    cell.py        cell text + the notebook's variables -> TrainingJob, or an error with its line    pure
    launching.py   start a job: one live run a name, hand the handle to the notebook, show it
    messages.py    one-line sentences about a run                                                 pure
    commands.py    %mlless status, stop, scale_in, tune, budget, wait, dashboard, report, runs
    waiting.py     wait for a run so that an interrupt means what a user meant by it
    completion.py  the options, commands and run names behind the Tab key
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__all__ = ["load_ipython_extension", "unload_ipython_extension"]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add the magics and their completions to ``shell``. Loading twice does no harm."""
    from ..driver.launcher import get_ready
    from .completion import complete
    from .mlless import MllessMagics

    get_ready()
    shell.register_magics(MllessMagics)
    matchers = shell.Completer.custom_matchers if shell.Completer is not None else []
    if complete not in matchers:
        matchers.append(complete)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Take the magics and their completions out of ``shell`` again; refused while a run is live.

    Raises
    ------
    UsageError
        Naming the live runs and their cost: without the magics nobody would see what they spend.
    """
    from IPython.core.error import UsageError

    from .. import runs
    from .completion import complete
    from .messages import cost_so_far, is_live

    live = [run for run in runs() if is_live(run)]
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
