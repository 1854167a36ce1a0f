"""``%%mlless sweep``: trials of the job of a cell under one budget."""

from __future__ import annotations

import argparse
import builtins
import keyword
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from IPython.core.error import UsageError

from ..driver import runs as registry
from ..driver.run import TrainingRun
from ..search import Sweep
from ..search.launch import begin, sweeps
from ..search.study import SAMPLERS
from ..validation import nearest
from ..widgets import leaderboard
from .launching import blocks_by_itself, tell_doubts
from .messages import is_live, written_secrets_line
from .options import OPTIONS, integer, job_options
from .sweep_cell import recipe_of_cell

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

#: Options of runs that a sweep's trials cannot have.
_NOT_OF_TRIALS = ("--resume", "--detach", "--force", "--dry-run", "--name", "--budget")
#: The sweep's own.
OWN = ("budget", "name", "trials", "sampler", "parallel", "halving", "wait", "on_interrupt")


def halving(text: str) -> int | Literal["auto"] | None:
    """``text`` as an integer; None for ``off``."""
    if text == "auto":
        return "auto"
    return None if text == "off" else integer(text)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise UsageError(f"%%mlless sweep: {message}")


def _parser() -> _Parser:
    parser = _Parser(prog="%%mlless sweep", add_help=False, allow_abbrev=False)
    own: dict[str, Callable[[str], Any]] = {"--budget": float, "--name": str, "--sampler": str}
    own |= {"--trials": integer, "--parallel": integer, "--halving": halving}
    for flag, kind in own.items():
        parser.add_argument(flag, type=kind, default=argparse.SUPPRESS)
    for flag, details in OPTIONS:
        if flag not in _NOT_OF_TRIALS:
            parser.add_argument(flag, **details)
    return parser


#: The flags, for completion.
FLAGS = (
    *("--trials", "--sampler", "--parallel", "--halving", "--budget", "--name"),
    *(flag for flag, _ in OPTIONS if flag not in _NOT_OF_TRIALS),
)


def start(shell: InteractiveShell, words: list[str], cell: str, filename: str) -> Sweep:
    """Begin the sweep of ``cell``, assign its handle to the notebook's variable of its name, and show it.

    It returns at once in an interactive notebook, and waits for the end with ``--wait``, and always in batch mode. An
    interrupt while it waits stops the sweep (``--on-interrupt detach``: ends only the waiting).

    Raises
    ------
    UsageError
        If an option is wrong, the name belongs to another variable, or the sweep has failed while the cell waited.
    MllessError
        As `mlless_nb.sweep`.
    """
    given, unknown = _parser().parse_known_args(words)
    if unknown:
        near = nearest(unknown[0], FLAGS)
        meant = f"; is {near} meant?" if near else ""
        raise UsageError(f"%%mlless sweep {' '.join(unknown)}: not an option of a sweep{meant}")
    values = vars(given)
    own = {name: values.pop(name) for name in OWN if name in values}
    if own.get("sampler", "auto") not in SAMPLERS:
        raise UsageError(f"%%mlless sweep --sampler {own['sampler']}: must be one of {', '.join(SAMPLERS)}")
    waits, on_interrupt = own.pop("wait", False), own.pop("on_interrupt", "stop")
    name = own.get("name", "sweep")
    variable = _variable(name, shell)
    fields, rules = job_options(values)
    recipe = recipe_of_cell(cell, shell.user_ns, fields, rules, filename)
    first = recipe(lambda _, space: space.edges[0])
    if warning := written_secrets_line(f"{' '.join(words)}\n{cell}", first):
        print(warning)
    begun = begin(recipe, own.pop("budget", None), tell_doubts, **own)
    shell.user_ns[variable] = begun
    if not waits and not blocks_by_itself(shell):
        leaderboard.show(begun)
        return begun
    _wait(begun, stops=on_interrupt == "stop")
    if begun.status == "failed":
        raise UsageError(f"{begun.name}: {begun.reason}")
    return begun


def _wait(sweep: Sweep, *, stops: bool) -> None:
    try:
        leaderboard.show(sweep, wait=True)
    except KeyboardInterrupt:
        if not stops:
            print(goes_on_line(sweep), flush=True)
            return
        sweep.stop()
        print(f"{sweep.name}: interrupted; its trials stop in good order, what was found is kept", flush=True)
        try:
            sweep.wait()
            print(leaderboard.as_text(sweep), flush=True)
        except KeyboardInterrupt:
            print(f"{sweep.name}: returned while its trials stop; {leaderboard.sentence(sweep)}", flush=True)


def goes_on_line(sweep: Sweep) -> str:
    """Printed when the waiting for a live sweep is over."""
    return f"{leaderboard.sentence(sweep)}; it goes on, %mlless stop {sweep.name} ends it"


def standing(sweep: Sweep) -> str:
    """How far a sweep is, and once it has ended why, in one line."""
    reason = "" if sweep.is_live else sweep.reason
    return "; ".join(filter(None, [leaderboard.sentence(sweep), reason]))


def _variable(name: str, shell: InteractiveShell) -> str:
    """The notebook's variable for the sweep called ``name``."""
    variable = name.replace("-", "_")
    if keyword.iskeyword(variable) or hasattr(builtins, variable):
        raise UsageError(f"--name {name}: must not be a keyword or builtin of Python; the handle becomes a variable")
    held = shell.user_ns.get(variable)
    is_function = callable(held) and getattr(held, "__module__", "").startswith("mlless_nb.search")
    if held is not None and not isinstance(held, (Sweep, TrainingRun)) and not is_function:
        raise UsageError(
            f"--name {name}: the notebook has a variable {variable} ({type(held).__name__}) that the sweep's handle "
            "would replace; choose another name"
        )
    return variable


def named(words: list[str]) -> Sweep | None:
    """The newest sweep of this process whose name or id ``words`` are; None if a run has the name and it has ended."""
    found = next((sweep for sweep in reversed(sweeps()) if words in ([sweep.name], [sweep.id])), None)
    if found is None or found.is_live or not any(words == [run.name] for run in registry.handles()):
        return found
    return None


def live_sweep(words: list[str]) -> Sweep | None:
    """The live sweep that ``words`` name, or without words the only one; None if there is none.

    Raises
    ------
    UsageError
        If nothing is named, and a run is live that is no trial of the sweep.
    """
    live = [sweep for sweep in sweeps() if sweep.is_live]
    if words:
        return next((sweep for sweep in live if words in ([sweep.name], [sweep.id])), None)
    if len(live) != 1:
        return None
    trial = re.compile(rf"{re.escape(live[0].name)}-\d+")
    if others := [run.name for run in registry.handles() if is_live(run) and not trial.fullmatch(run.name)]:
        raise UsageError(f"%mlless stop: which one? live are {', '.join([live[0].name, *others])}")
    return live[0]
