"""Starts the job of a cell: one live run per name, puts the handle into the notebook, shows the run."""

from __future__ import annotations

import builtins
import itertools
import keyword
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from IPython.core.error import UsageError
from IPython.display import display

from .. import adviser, starting, widgets
from ..driver import runs as registry
from ..driver.run import TrainingRun
from ..widgets import frontend
from .messages import cost_so_far, is_live
from .waiting import wait_or_detach, wait_or_stop

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from ..job.job import TrainingJob

#: The run's name if the cell gives none.
DEFAULT_NAME = "run"


def start(
    shell: InteractiveShell,
    job: TrainingJob,
    *,
    resume: str | None = None,
    wait: bool = False,
    force: bool = False,
    on_interrupt: str = "stop",
    dry_run: bool = False,
) -> TrainingRun | None:
    """Start ``job``, assign its handle to the notebook's variable of its name, and show it.

    With ``resume`` it resumes from the ended run of that name or id.

    In an interactive notebook it returns at once. It waits for the end with ``wait``, and always in batch mode
    (nbclient, papermill, a script): there the kernel exits after the last cell, and the handle of a paid run would be
    lost. With ``dry_run`` everything is checked and nothing is started.

    Raises
    ------
    UsageError
        If a run of this name is live and ``force`` is not set, the name belongs to another variable, or the run failed
        while the cell waited for it.
    MllessError
        As `mlless_nb.train`.
    """
    name = _free_name(job.name or DEFAULT_NAME, force)
    variable = handle_name(name, shell.user_ns)
    job = replace(job, name=name)
    if dry_run:
        found = adviser.dry_run(job, resume)
        display({"text/html": found._repr_html_(), "text/plain": repr(found)}, raw=True)
        return None
    tell_doubts(job)
    run = registry.train(job, resume=resume)
    shell.user_ns[variable] = run
    blocks = wait or blocks_by_itself(shell)

    def watch() -> None:
        widgets.show(run, wait=blocks)

    if not blocks:
        watch()
        return run
    (wait_or_stop if on_interrupt == "stop" else wait_or_detach)(run, watch)
    if run.status == "failed":
        raise UsageError(f"{run.name}: {run.reason}")
    return run


def tell_doubts(job: TrainingJob) -> None:
    """Print a line for each doubt about ``job``, which is about to be started, where somebody sees it."""
    for doubt in starting.doubts(job) if frontend.detect() != "none" else ():
        print(f"warning: {doubt}", flush=True)


def handle_name(name: str, variables: Mapping[str, object]) -> str:
    """The variable that holds the run called ``name``: the name itself, with _ for -.

    Raises
    ------
    UsageError
        If it is a keyword or builtin of Python, or a variable of the notebook that is not a run.
    """
    variable = name.replace("-", "_")
    if keyword.iskeyword(variable) or hasattr(builtins, variable):
        raise UsageError(
            f"--name {name}: must not be a keyword or builtin of Python; the run's handle becomes a variable"
        )
    held = variables.get(variable)
    if held is not None and not isinstance(held, TrainingRun):
        raise UsageError(
            f"--name {name}: the notebook has a variable {variable} ({type(held).__name__}) that the run's handle "
            "would replace; choose another name"
        )
    return variable


def blocks_by_itself(shell: InteractiveShell) -> bool:
    """Whether the cell must wait, because no user can click or type: in a batch executor or a script."""
    kind = frontend.detect()
    if kind == "terminal":
        # `ipython file.ipy`, `ipython -c ...` and `ipython < file` do not return to a prompt
        return not (getattr(shell.parent, "interact", True) and sys.stdin.isatty())
    if kind == "none":
        return not getattr(getattr(shell, "kernel", None), "_allow_stdin", True)
    return not frontend.can_click(kind)


def _free_name(name: str, force: bool) -> str:
    """``name`` if no live run has it; else, with ``force``, the first free one of name-2, name-3 ..."""
    live = {run.name: run for run in registry.handles() if is_live(run)}
    if name not in live:
        return name
    if not force:
        raise UsageError(
            f"--name {name}: a run of this name is live ({cost_so_far(live[name])}, at step "
            f"{live[name].telemetry.state.step}); %mlless stop {name} ends it, --force starts a second"
        )
    return next(other for i in itertools.count(2) if (other := f"{name}-{i}") not in live)
