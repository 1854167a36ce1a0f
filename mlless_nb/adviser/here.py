"""What a run on this machine takes: the embedded backend, whose functions share the machine's cores."""

from __future__ import annotations

from ..driver.launch.launch_plan import EMBEDDED_LINK
from ..exchange.pattern import choose_pattern
from ..money import Rates
from ..money.meter import NUSD
from .analytic import Option
from .run_requests import run_nusd
from .sizes import Sizes
from .timing import n_cores

#: Processor seconds of a worker's loop (`mlless_nb.adviser.pace`) on the machine that the constants below are those of:
#: where it takes longer, so does all else. They were fitted to runs of 1 to 12 workers on two cores;
#: ``benchmarks/adviser.py`` compares.
LOOP_S = 42.5e-6
#: Seconds until an interpreter of functions has imported what they need, where that was not timed; they are forked from
#: it.
LOADED_S = 0.24
#: The first of these seconds, before that interpreter is started: functions are billed from then on.
UNBILLED_S = 0.03
#: Seconds from then on until the functions train: of all, and more for each.
START_S, START_EACH_S = 0.033, 0.0147
#: Processor seconds of a step's loop in each worker, of a frame's command and reply without its bytes, and of waking up
#: after a round: where there are more workers than cores, another one works meanwhile, and no core has to wake up.
STEP_S, FRAME_S, WAKE_S = 110e-6, 12e-6, 50e-6
#: Bytes that a processor core moves through Redis in a second, the work of both ends included.
BYTES_S = 2.1e9


def here(n_workers: int, sizes: Sizes, rates: Rates, cores: int | None = None) -> Option:
    """``n_workers`` functions of the embedded backend; the bill is that of the job's price profile.

    Workers and Redis share the cores, so the processor time of all adds up, as long as there are as many workers as
    cores.

    Parameters
    ----------
    cores : int, optional
        Processor cores; None: those of this machine.
    """
    w, cores, pace = n_workers, cores or n_cores(), pace_of(sizes)
    rounds, used = sizes.n_rounds(w), min(w, cores)
    making_s, apply_s, wake_s = sizes.making_s(w), sizes.apply_s, WAKE_S
    if w > cores:  # workers that take turns on a core find its caches full of each other's tables
        wake_s = 0.0
        making_s, apply_s = sizes.crowded_making_s, sizes.crowded_apply_s or apply_s
    start_s = pace * (START_S + START_EACH_S * w) + (pace * LOADED_S if sizes.loaded_s is None else sizes.loaded_s)
    compute = rounds * w * (making_s + pace * STEP_S) / used
    exchange = rounds * exchange_cpu_s(w, sizes, apply_s, wake_s) / used
    nusd = bill_nusd(w, sizes, rates, start_s, compute + exchange, min(cores / w, 1.0))
    return Option("here", "this machine", w, start_s, compute, exchange, nusd / NUSD)


def pace_of(sizes: Sizes) -> float:
    """How much longer work takes on this machine than the constants say; 1 where that was not measured."""
    return 1.0 if sizes.loop_s is None else sizes.loop_s / LOOP_S


def bill_nusd(n_workers: int, sizes: Sizes, rates: Rates, start_s: float, trained_s: float, cores: float = 1.0) -> int:
    """Bill of a run that begins to train after ``start_s`` seconds, and does so for ``trained_s``, nano-dollars.

    The workers and the supervisor are billed from the start of the one interpreter that they are forked from. Each
    worker has ``cores``, at most 1.
    """
    time_s = start_s + trained_s
    functions = (n_workers + 1) * rates.function_nusd(max(time_s - UNBILLED_S, 0.0))
    return functions + rates.servers_nusd(time_s + rates.tail_s) + run_nusd(n_workers, sizes, rates, trained_s, cores)


def exchange_cpu_s(n_workers: int, sizes: Sizes, apply_s: float, wake_s: float) -> float:
    """Processor seconds of one round's exchange, of all workers and Redis together.

    ``apply_s``: those to add one peer's update; ``wake_s``: those to wake up after a round.
    """
    w, m, table = n_workers, sizes.update_bytes, sizes.table_bytes
    if w == 1:
        return 0.0
    if choose_pattern(w, sizes.planned_bytes or m, table, *EMBEDDED_LINK) == "broadcast":
        n_rounds, moved, n_applied, n_messages = 1, w * w * m, w * (w - 1.0), w * w
    else:
        merged = min(table, w * m)
        n_rounds, moved, n_messages = 2, 2 * (w - 1) * m + w * merged, 3 * w * (w - 1) + w
        n_applied = (w - 1) * (1 + merged / max(m, 1.0))
    return n_applied * apply_s + pace_of(sizes) * (moved / BYTES_S + n_messages * FRAME_S + n_rounds * w * wake_s)
