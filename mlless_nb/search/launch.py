"""`sweep`: trials of a job with different settings, one after the other or several at once, under one budget."""

from __future__ import annotations

import re
import threading
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

from ..driver import spending
from ..driver.runs import handles
from ..errors import BudgetError, CommandError, JobError
from ..job.job import TrainingJob
from ..money.book import Book
from ..money.meter import NUSD, to_nusd
from ..starting import warn
from ..telemetry.live import LIVE
from ..validation import check_positive_integer, is_integer
from .handle import Sweep, cap_nusd_of
from .recipe import Recipe, recipe_of, tried
from .runner import Runner
from .space import Space
from .study import FACTOR, Study

#: Most trials of a sweep, and most at once.
MOST_TRIALS, MOST_PARALLEL = 1000, 32
#: Sweeps' budgets that are kept in the ledger after their process was killed.
KEPT_BUDGETS = 100
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,47}")
_known: weakref.WeakSet[Sweep] = weakref.WeakSet()
_registry = threading.Lock()


def sweep(
    job: TrainingJob | Callable[..., TrainingJob],
    space: Mapping[str, Space] | None = None,
    *,
    budget: float,
    trials: int | None = None,
    sampler: str = "auto",
    parallel: int = 1,
    halving: int | Literal["auto", "off"] | None = "auto",
    seed: int = 0,
    name: str = "sweep",
) -> Sweep:
    """Train a job with different settings under one budget, and stop weak trials early. Returns at once with a handle.

    Each trial is a run of its own, ``NAME-1``, ``NAME-2``..., whose budget lies within that of the sweep, and both
    within those of the session and the project. Of six trials and more weak ones are pruned, which is stopped in good
    order: after 1/27, 1/9 and 1/3 of its length, and not before an epoch, a trial goes on only if its held-out loss is
    among the best third of those that came so far (successive halving).

    Parameters
    ----------
    job : TrainingJob or callable
        The job whose fields are changed, or a function that makes a job from the settings by name.
    space : Mapping of str to Space
        What each setting is drawn from: `choice`, `uniform`, `log_uniform` or `integer`. For a job the names are those
        of its fields or of its parts' fields, "workers", "learning_rate" or "optimizer.learning_rate".
    budget : float
        The most that all trials may cost together, US dollars.
    trials : int, optional
        Most trials. None: 20, or the whole grid if that is smaller.
    sampler : {"auto", "tpe", "random", "grid"}
        Optuna's sampler. "auto" is the grid if the trials can be all of it, else TPE.
    parallel : int
        Trials at once; each may then reserve its part of what is left.
    halving : int, "auto", "off" or None
        One trial in so many goes on at each comparison, whose distances grow by this factor. "auto": 3 if there are six
        trials or more, else "off". "off" or None: all run to their ends.
    seed : int
        Of the sampler.
    name : str

    Returns
    -------
    Sweep

    Raises
    ------
    JobError
        If an argument, or the job that some settings make, is wrong; `BudgetError` if the budget does not pay for one
        trial, or a session or project has less left. Nothing is billed then.
    CommandError
        If a live run or sweep has the name.
    MllessError
        If Optuna is not installed.
    """
    by_caller = partial(warn, stacklevel=3)
    return begin(recipe_of(job, space), budget, by_caller, trials, sampler, parallel, halving, seed, name)


def begin(
    recipe: Recipe,
    budget: float | None,
    warn_of: Callable[[TrainingJob], object],
    trials: int | None = None,
    sampler: str = "auto",
    parallel: int = 1,
    halving: int | Literal["auto", "off"] | None = "auto",
    seed: int = 0,
    name: str = "sweep",
) -> Sweep:
    """`sweep` the jobs that ``recipe`` makes; ``warn_of`` is called with the one of most workers before the start."""
    cap_nusd = cap_nusd_of(budget)
    for field, value, most in (("trials", trials, MOST_TRIALS), ("parallel", parallel, MOST_PARALLEL)):
        check_positive_integer(field, value, or_none=field == "trials")
        if value is not None and value > most:
            raise JobError(field, value, f"at most {most}")
    factor = None if halving == "off" else halving
    if factor is not None and factor != "auto" and (not is_integer(factor) or not 2 <= factor <= 10):
        raise JobError("halving", halving, 'an integer from 2 to 10, "auto" or "off"')
    if not is_integer(seed) or not 0 <= seed < 2**32:
        raise JobError("seed", seed, "an integer from 0 to 4294967295")
    _check_name(name)
    job, spaces, widest = tried(recipe)
    if job.cap_usd is not None and job.stop.is_empty and to_nusd(job.cap_usd) >= cap_nusd:
        valid = f"less than the sweep's, or beside Stop(epochs=...): one trial would spend all ${cap_nusd / NUSD:g}"
        raise JobError("job.budget", job.cap_usd, valid)
    study = Study(spaces, sampler, trials, factor, seed)
    warn_of(widest)
    begun = Sweep(name, job.model.metric, spaces, study, parallel)
    with spending.opened() as book:
        _check_room(book, cap_nusd)
        _remove_old(book)
        book.set_cap("sweep", begun.id, cap_nusd)
    begun._budget_usd = cap_nusd / NUSD
    with _registry:
        _known.add(begun)
    runner = Runner(begun, study, recipe, study.factor or FACTOR)
    try:
        runner.start()
    except BaseException:  # an interrupt, too
        begun.stop()
        raise
    return begun


def sweeps() -> list[Sweep]:
    """The sweeps of this process, oldest first."""
    with _registry:
        return sorted(_known, key=lambda each: each._began_at)


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise JobError("name", name, "letters, digits, - and _, at most 48, the first a letter or _")
    if any(each.name == name and each.is_live for each in sweeps()):
        raise CommandError(f"a sweep called {name!r} is live; stop it first or choose another name")
    taken = re.compile(rf"{re.escape(name)}(-\d+)?")
    if live := [run.name for run in handles() if run.status in LIVE and taken.fullmatch(run.name)]:
        raise CommandError(f"a run called {live[0]!r} is live; stop it first or choose another name")


def _check_room(book: Book, cap_nusd: int) -> None:
    """Raise unless the session's and the project's budget have as much left."""
    for kind, name in spending.in_force().items():
        standing = book.standing(kind, name)
        if standing.left_nusd < cap_nusd:
            valid = f"at most {standing.left_nusd / NUSD:.9g}: {standing.describe()}"
            raise BudgetError("budget", cap_nusd / NUSD, valid)


def _remove_old(book: Book) -> None:
    """Remove the budgets of the oldest sweeps, whose processes were killed."""
    old = [name for kind, name in book.budgets if kind == "sweep"][:-KEPT_BUDGETS]
    for name in old:
        book.close("sweep", name)
