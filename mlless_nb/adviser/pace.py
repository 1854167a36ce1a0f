"""How fast this machine is at what a worker does beside its arithmetic: machines differ in it by half, and the same one
from hour to hour.
"""

from __future__ import annotations

import time
import uuid

from ..bus import open_bus
from ..data import datasets
from ..exchange.memory import MemoryCoordinator
from ..exchange.memory_hub import MemoryHub
from ..job.job import TrainingJob
from ..job.limits import Stop
from ..job.optimizers import SGD
from ..job.scale_in import ScaleIn
from ..models import PMF
from ..money import Rates, price_profile
from ..money.budget import Prepaid
from ..storage.objects import MemoryObjects
from ..worker.loop import Worker
from .alone import invocation_of, packed

#: Times that the tiny job is run, its steps, ratings of a minibatch, and the shape of the data.
RUNS, STEPS, MINIBATCH, SHAPE = 3, 400, 40, (40, 30)
#: More than anything here costs, nano-dollars, or takes, seconds.
GRANT_NUSD, PATIENCE_S = 10**12, 60.0


def loop_s() -> float:
    """Processor seconds of this thread for a step of a worker without peers, whose minibatches are tiny.

    The least of `RUNS` runs: neighbours on the machine only add to it.
    """
    return min(_run() for _ in range(RUNS))


def _run() -> float:
    objects = MemoryObjects()
    job = TrainingJob(
        PMF(rank=2),
        SGD(0.1, lazy=True),
        datasets.synthetic_ratings(*SHAPE, 6 * MINIBATCH, seed=1),
        workers=1,
        minibatch=MINIBATCH,
        scale_in=ScaleIn.off(),
        validation=None,
        stop=Stop(steps=STEPS),
    )
    job, manifest, _ = packed(job, objects)
    log, bus = MemoryCoordinator(MemoryHub(), "pace"), open_bus("memory://", f"pace-{uuid.uuid4().hex}")
    try:
        log.create(cap_nusd=None, reserved_nusd=0)
        log.renew("supervisor", PATIENCE_S)
        log.claim(0)
        prepaid = Prepaid(Rates(price_profile(job.prices), job.memory_mb), GRANT_NUSD, lambda: 0.0, lambda: 0)
        worker = Worker(invocation_of(job, manifest, 1), log, bus, objects, prepaid)
        began = time.thread_time()
        worker.run()
        return (time.thread_time() - began) / STEPS
    finally:
        bus.close(delete=True)
        log.close()
