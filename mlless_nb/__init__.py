"""Cost-capped, serverless machine-learning training from a notebook cell.

The way of a cell, which is also the map of this tree::

    magics/       text of a cell -> TrainingJob
    job           what a job is, checked before anything is launched or billed; specification: a slip is named
    registry      train(job) -> TrainingRun, the runs of this process; attach
    driver        packs, launches, follows; on services, and with ending for the end, it always cleans up
    data/         datasets -> minibatches in the object storage (objects)
    launch        P workers and a supervisor through Lithops (runtime: the interpreter of local ones)
    embedded      the private Redis of the default; watchdog and sweep: nothing stays when this process is killed
    function      what runs inside a function; allocator: its memory, and the private Redis server's
    worker        the loop: minibatches -> update -> exchange -> the peers' updates
      replica                    the arithmetic of a step: gradient, optimiser, filter, frames; in tables
      hand_over                  nothing that is held back is lost: at the end, and when workers leave
      models/ optimizers sync    what is computed, by kernels/ (Cython)
      exchange/                  how updates reach the other workers; leases, plan and money
      report                     what the supervisor is told of a step
      checkpoint                 models in the object storage
    supervisor    step log in -> telemetry out, commands announced
      mind/                      stop rules, scale-in, forecasts: pure decisions
      money/                     prices, meter, prepaid slices
    channels/     the control bus: Redis Streams, RabbitMQ, memory; messages: what travels on it
    telemetry     rows and state of a run -> run (the handle), record (on disk), widgets/ (the dashboard)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from .data import datasets
    from .driver.run import TrainingRun
    from .driver.runs import attach, runs, train
    from .errors import (
        BudgetError,
        CommandError,
        DataError,
        DataWarning,
        JobError,
        MllessError,
        RunError,
        ServiceError,
    )
    from .job.job import Budget, Stop, TrainingJob
    from .job.optimizers import FTRL, SGD, AdaGrad, Adam
    from .job.scale_in import ScaleIn
    from .job.sync import BSP, ISP, SSP
    from .models import PMF, LogisticRegression

__version__ = "0.1.0"

__all__ = [
    "BSP",
    "FTRL",
    "ISP",
    "PMF",
    "SGD",
    "SSP",
    "AdaGrad",
    "Adam",
    "Budget",
    "BudgetError",
    "CommandError",
    "DataError",
    "DataWarning",
    "JobError",
    "LogisticRegression",
    "MllessError",
    "RunError",
    "ScaleIn",
    "ServiceError",
    "Stop",
    "TrainingJob",
    "TrainingRun",
    "attach",
    "datasets",
    "runs",
    "train",
]


#: Where each name is defined. They are loaded when they are asked for: functions, which start in the time that a
#: person waits, need few of them.
_HOMES = {
    "data.datasets": ["datasets"],
    "errors": [
        "BudgetError",
        "CommandError",
        "DataError",
        "DataWarning",
        "JobError",
        "MllessError",
        "RunError",
        "ServiceError",
    ],
    "job.job": ["Budget", "Stop", "TrainingJob"],
    "models": ["PMF", "LogisticRegression"],
    "job.optimizers": ["FTRL", "SGD", "AdaGrad", "Adam"],
    "driver.runs": ["attach", "runs", "train"],
    "driver.run": ["TrainingRun"],
    "job.scale_in": ["ScaleIn"],
    "job.sync": ["BSP", "ISP", "SSP"],
}


if not TYPE_CHECKING:  # who reads types is to know what there is not

    def __getattr__(name: str) -> Any:
        for home, names in _HOMES.items():
            if name in names:
                module = importlib.import_module(f".{home}", __name__)
                globals()[name] = found = module if home.endswith(f".{name}") else getattr(module, name)
                return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(ip: InteractiveShell) -> Any:
    """``%load_ext mlless_nb``: the ``%%mlless`` and ``%mlless`` magics."""
    from .magics import load_ipython_extension as load

    return load(ip)


def unload_ipython_extension(ip: InteractiveShell) -> Any:
    """``%unload_ext mlless_nb``."""
    from .magics import unload_ipython_extension as unload

    return unload(ip)
