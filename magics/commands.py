"""The commands of ``%mlless``: each finds its run, does one thing with it, and prints what it did."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from IPython.core.error import UsageError
from IPython.core.getipython import get_ipython
from IPython.display import display

import mlless_nb

from .. import widgets
from ..driver import listing, stopping
from ..driver import runs as registry
from ..job.job import TrainingJob
from ..plurals import count
from ..search.launch import sweeps
from ..validation import nearest
from ..widgets import leaderboard
from ..widgets.format import usd
from . import budgets, cleaning, many, sweeping
from .launching import handle_name
from .messages import cost_so_far, detached_line, is_live, status_line
from .options import words_of
from .waiting import until_end

if TYPE_CHECKING:
    from ..driver.run import TrainingRun


def perform(line: str) -> None:
    """Carry out ``line``, the text after ``%mlless``: a command and its arguments; an empty line means ``status``.

    Raises
    ------
    UsageError
        If the command or the run is unknown, or an argument is missing, superfluous or not a number.
    MllessError
        If the run refuses the command.
    """
    words = words_of("%mlless", line) or ["status"]
    if words[0] not in COMMANDS:
        near = nearest(words[0], COMMANDS)
        hint = f"; is {near} meant?" if near else ""
        raise UsageError(
            f"%mlless {words[0]}: must be one of {', '.join(COMMANDS)}{hint} (%%mlless, with two %, trains)"
        )
    COMMANDS[words[0]](words[1:])


def status(words: list[str]) -> None:
    """``status [RUN]``: one line per live run, or the latest run if none is live."""
    if words:
        sweep = sweeping.named(words)
        print(sweeping.standing(sweep) if sweep is not None else status_line(_the_run("status", words)))
        return
    for sweep in sweeps():
        if sweep.is_live:
            print(leaderboard.sentence(sweep))
    runs = registry.handles()
    shown = [run for run in runs if is_live(run)] or runs[-1:]
    print("\n".join(map(status_line, shown)) or "no run yet: a %%mlless cell starts one")


def stop(words: list[str]) -> None:
    """``stop [RUN]``: end the run at the next step and keep its model; or a sweep with its trials.

    A run of another process is asked to, whether it can be attached to or not.
    """
    sweep = sweeping.live_sweep(words)
    if sweep is not None:
        sweep.stop()
        print(f"{leaderboard.sentence(sweep)}; asked to stop")
        return
    live_here = {name for run in registry.handles() if is_live(run) for name in (run.name, run.id)}
    if len(words) == 1 and words[0] not in live_here and stopping.live_runs(words[0]):
        stopping.ask(words[0])
        print(f"{words[0]}: asked to stop, in another process")
        return
    run = _the_run("stop", words, live=True)
    run.stop()
    print(f"{run.name}: asked to stop at step {run.telemetry.state.step}, {cost_so_far(run)}")


def scale_in(words: list[str]) -> None:
    """``scale_in [N] [RUN]``: remove N workers (1); pauses the auto-tuner."""
    n, words = _number("scale_in", words)
    if n is not None and not n.is_integer():
        raise UsageError(f"%mlless scale_in {n:g}: must be a whole number of workers")
    run, n_fewer = _the_run("scale_in", words, live=True), 1 if n is None else int(n)
    run.scale_in(n_fewer)
    print(f"{run.name}: asked to remove {count(n_fewer, 'worker')}")


def tune(words: list[str]) -> None:
    """``tune on|off [RUN]``: resume or pause the auto-tuner."""
    asked = [word for word in words if word in ("on", "off")]
    if len(asked) != 1:
        raise UsageError(f"{' '.join(['%mlless tune', *words])}: must say on or off, e.g. %mlless tune on")
    run = _the_run("tune", [word for word in words if word != asked[0]], live=True)
    if asked[0] == "on":
        run.resume_tuner()
    else:
        run.pause_tuner()
    print(f"{run.name}: asked to {'resume' if asked[0] == 'on' else 'pause'} the auto-tuner")


def budget(words: list[str]) -> None:
    """``budget USD [RUN]``: set the cap; without USD, print it. With ``--session`` or ``--project`` that of either."""
    if any(word.split("=", 1)[0] in budgets.SCOPES for word in words):
        budgets.scoped(words)
        return
    cap, words = _number("budget", words)
    sweep = sweeping.named(words)
    if sweep is not None:
        if cap is not None:
            sweep.budget = cap
        print(f"{sweep.name}: cap {usd(sweep.budget, trim=True)}, {usd(sweep.spent)} so far")
        return
    run = _the_run("budget", words, live=cap is not None)
    if cap is None:
        now = run.telemetry.state.budget_usd
        print(f"{run.name}: {'no cap' if now is None else 'cap ' + usd(now, trim=True)}, {cost_so_far(run)}")
        return
    run.budget = cap
    print(f"{run.name}: asked for a cap of {usd(cap, trim=True)}, {cost_so_far(run)}")


def wait(words: list[str]) -> None:
    """``wait [RUN] [SECONDS]``: wait until the run has ended; an interrupt ends the waiting, not the run."""
    timeout_s, words = _number("wait", words)
    sweep = sweeping.named(words)
    if sweep is not None:
        with contextlib.suppress(KeyboardInterrupt):
            if sweep.is_live:
                print(leaderboard.sentence(sweep), flush=True)
            sweep.wait(timeout_s)
        print(sweeping.goes_on_line(sweep) if sweep.is_live else sweeping.standing(sweep), flush=True)
        return
    run = _the_run("wait", words)
    try:
        if is_live(run):
            print(status_line(run), flush=True)
        has_ended = until_end(run, timeout_s)
    except KeyboardInterrupt:
        has_ended = not is_live(run)
    print(status_line(run) if has_ended else detached_line(run), flush=True)


def dashboard(words: list[str]) -> None:
    """``dashboard [RUN]``: show the dashboard again, e.g. after the page was reloaded before it was saved."""
    (sweeping.named(words) or _the_run("dashboard", words)).dashboard()


def attach(words: list[str]) -> None:
    """``attach RUN``: show a run of another notebook, or an ended one, and put its handle into a variable."""
    if len(words) != 1:
        raise UsageError(f"{' '.join(['%mlless attach', *words])}: must name one run, e.g. %mlless attach first")
    run, ip = mlless_nb.attach(words[0]), get_ipython()
    if ip is not None:
        ip.user_ns[handle_name(run.name, ip.user_ns)] = run
    run.dashboard()


def report(words: list[str]) -> None:
    """``report [RUN]``: show the result as a table and curves that stay in the saved notebook."""
    sweep = sweeping.named(words)
    if sweep is not None:
        leaderboard.publish(sweep)
        return
    run = _the_run("report", words)
    display({**widgets.static_bundle(run), "text/plain": run.report()}, raw=True)


def advise(words: list[str]) -> None:
    """``advise [NAME]``: what a job would take and cost: of a variable that holds a job, or of a run again."""
    ip = get_ipython()
    found = ip.user_ns.get(words[0]) if ip is not None and len(words) == 1 else None
    about = found if isinstance(found, TrainingJob) else _the_run("advise", words)
    job = about if isinstance(about, TrainingJob) else about.job
    if job is None:
        raise UsageError(
            f"%mlless advise: the job of {about.name} is not known here; name a variable that holds a TrainingJob"
        )
    advice = mlless_nb.advise(job)
    display({"text/html": advice._repr_html_(), "text/plain": repr(advice)}, raw=True)


def doctor(words: list[str]) -> None:
    """``doctor``: a line for each check of what `mlless-nb deploy` has made."""
    from ..clouds.doctor import examine  # boto3 is an extra

    if words:
        raise UsageError(f"%mlless doctor takes no words; `{' '.join(words)}` is none of its own")
    print("\n".join(map(str, examine())))


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "status": status,
    "stop": stop,
    "scale_in": scale_in,
    "tune": tune,
    "budget": budget,
    "wait": wait,
    "dashboard": dashboard,
    "attach": attach,
    "report": report,
    "advise": advise,
    "runs": many.runs,
    "spend": many.spend,
    "compare": many.compare,
    "forget": many.forget,
    "session": budgets.session,
    "project": budgets.project,
    "ps": cleaning.ps,
    "clean": cleaning.clean,
    "doctor": doctor,
}


#: The meaning of each command's number.
_NUMBERS = {
    "scale_in": "one whole number of workers, e.g. %mlless scale_in 1",
    "budget": "one amount in US dollars, e.g. %mlless budget 0.40",
    "wait": "one number of seconds, e.g. %mlless wait 60",
}


def _number(command: str, words: list[str]) -> tuple[float | None, list[str]]:
    """The number among ``words`` (None if there is none), and the other words."""
    numbers, others = [], []
    for word in words:
        try:
            numbers.append(float(word.removeprefix("$")))
        except ValueError:
            others.append(word)
    if len(numbers) > 1:
        raise UsageError(f"%mlless {command} {' '.join(words)}: must be {_NUMBERS[command]}")
    return (numbers[0] if numbers else None), others


def _the_run(command: str, words: list[str], *, live: bool = False) -> TrainingRun:
    """The run that ``words`` name, else the only live run, else the latest one unless it must be ``live``."""
    known = registry.handles()
    if len(words) > 1:
        raise UsageError(f"%mlless {command}: {' '.join(words)} is not one run; write %mlless {command} [RUN]")
    if words:
        named = [run for run in known if words[0] in (run.name, run.id)]
        if not named:
            _check_sweep(command, words[0])
            names = ", ".join(dict.fromkeys(run.name for run in known))
            number = f" (a number must be {_NUMBERS[command]})" if command in _NUMBERS else ""
            there = f"there is {names}" if names else "none yet"
            if any(words[0] in (run.name, run.id) for run in listing.known()):
                first = f"%mlless attach {words[0]} first"
                raise UsageError(f"%mlless {command}: {words[0]} is of an earlier kernel or another notebook: {first}")
            raise UsageError(f"%mlless {command}: no run is called {words[0]}{number}; {there}")
        run = next((run for run in reversed(named) if is_live(run)), named[-1])
    else:
        alive = [run for run in known if is_live(run)]
        if len(alive) > 1:
            raise UsageError(f"%mlless {command}: which one? live are {', '.join(run.name for run in alive)}")
        if not known:
            raise UsageError(f"%mlless {command}: no run yet; a %%mlless cell starts one")
        run = alive[0] if alive else known[-1]
    if live and not is_live(run):
        raise UsageError(f"%mlless {command}: {run.name} has ended ({run.status}); this needs a live run")
    return run


def _check_sweep(command: str, name: str) -> None:
    """Raise if a sweep of this process is called ``name``."""
    for sweep in reversed(sweeps()):
        if sweep.name == name:
            kind = "a live sweep" if sweep.is_live else f"a sweep that has ended ({sweep.status})"
            raise UsageError(f"%mlless {command}: {name} is {kind}; %mlless runs --sweep {name} lists its trials")
