"""What the frames of a run cost over its store, where requests are billed. Pure."""

from __future__ import annotations

from ..data.foreseen import ForeseenRows
from ..driver.backends.launcher import is_local
from ..exchange.factory import prepaid_nusd
from ..exchange.stores import store_kind
from ..job.execution import is_without_redis
from ..job.job import TrainingJob
from ..money import Rates
from .sizes import Sizes

#: Writes of a step of a run without a Redis, beside those of frames: its entry in the step log, and the plan's step.
COORDINATION_PUTS = 2.0
#: The same on this machine, where several workers write the plan at the same time; and reads of each frame, as workers
#: look often. Counted in runs of 2 and 4 workers.
LOCAL_COORDINATION_PUTS, LOCAL_LOOKS = 2.75, 2.5


def frames_of_round(pattern: str, n_workers: int, sizes: Sizes) -> tuple[float, float, float, float]:
    """Frames that all workers together write and read in a round of ``pattern``, and the bytes of both."""
    w, m = n_workers, sizes.update_bytes
    merged = min(sizes.table_bytes, w * m)
    if pattern == "allreduce":  # the leader reads all updates, and all others read its sum
        return w, 2 * (w - 1), (w - 1) * m + merged, (w - 1) * (m + merged)
    if pattern == "scatter-reduce":
        return w * (w - 1) + w, 2 * w * (w - 1), (w - 1) * m + merged, (w - 1) * (m + merged)
    return w, w * (w - 1), w * m, w * (w - 1) * m


def frames_nusd(job: TrainingJob, n_workers: int, sizes: Sizes, rates: Rates) -> int:
    """Bill of the requests by which ``n_workers`` exchange frames in all rounds, nano-dollars."""
    kind, rounds, w = store_kind(job.store), sizes.n_rounds(n_workers), n_workers
    if kind is None:
        return 0
    puts, gets, put_bytes, got_bytes = frames_of_round(pattern_of(job), w, sizes) if w > 1 else (0.0, 0.0, 0.0, 0.0)
    fixed_nusd = 0
    if not needs_redis(job):
        is_here = is_local(job.backend)
        puts += LOCAL_COORDINATION_PUTS if is_here and w > 1 else COORDINATION_PUTS
        gets = gets * (LOCAL_LOOKS if is_here else 1.0) + w  # each worker also reads the plan
        fixed_nusd = (w + 1) * prepaid_nusd(rates, w, [])
    counts = [round(rounds * each) for each in (puts, gets, put_bytes, got_bytes)]
    return fixed_nusd + kind.price_nusd(kind.expected(*counts), rates)


def needs_redis(job: TrainingJob) -> bool:
    """Whether ``job`` is coordinated on Redis, as functions that prepare stored files are."""
    return not is_without_redis(job) or isinstance(job.data, ForeseenRows)


def pattern_of(job: TrainingJob) -> str:
    """How a run of ``job`` over another store than Redis exchanges updates, see `LaunchPlan`."""
    return "broadcast" if not job.sync.is_complete or job.pattern == "auto" else job.pattern
