"""Serverless machine-learning training under a cost cap, from a notebook cell.

The folders, in the order in which a cell passes through them::

    magics/        the text of a cell -> TrainingJob
    job/           the definition of a job, checked before anything is launched or billed
    driver/        packs the data, launches P workers and a supervisor, follows them, always cleans up
    function/      the entry point of every function
    worker/        in each step: minibatch -> update -> exchange -> apply the peers' updates
    supervisor/    reads step reports, sends telemetry, removes workers (policy/), keeps the bill
    exchange/      updates between workers; leases, the plan and the budget
    bus/           control messages: Redis Streams, RabbitMQ, the object storage, memory
    telemetry/     rows and state of a run, live and on disk
    widgets/       the views of a run: dashboard, pictures, tables, text
    tracking/      the list of all runs, kept in a file that all notebooks share

Other ways to define, start or run a job::

    terminal/      ``mlless-nb train job.toml``, and the other subcommands of ``mlless-nb``
    estimators/    scikit-learn estimators whose ``fit`` is a run
    search/        sweeps: trials of a job with different settings, under one budget
    adviser/       the time and the cost to expect, before a run
    stateless/     runs whose functions live for a part of a step: map-reduce and event-driven
    preparation/   stored files become minibatches on functions, before a run
    clouds/        deployment of functions to AWS Lambda and Kubernetes
    simulate/      the loops of workers and supervisor on a virtual clock

What they work with::

    models/        one file for each model: loss, gradient, fitted model
    data/          data sets, and packing them into minibatches
    frames/        the user's tables, read in batches of columns and coded as numbers
    storage/       the object storage, and checkpoints
    money/         prices, costs and budgets
    kernels/       compiled inner loops
    server.py      the frame server, for ``store="server://..."``

All folders use ``errors``, ``validation``, ``redaction``, ``one_line`` and ``file_locks``; ``remedies``
is what there is to say of errors of AWS.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from . import one_line, unix_user

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from .adviser import advise
    from .data import datasets
    from .data.stored_files import StoredFiles
    from .driver.cleaning import clean
    from .driver.comparison import compare
    from .driver.listing import forget, runs, spend
    from .driver.run import TrainingRun
    from .driver.runs import attach
    from .driver.spending import project, session
    from .errors import (
        BudgetError,
        CommandError,
        DataError,
        DataWarning,
        JobError,
        JobWarning,
        MllessError,
        RunError,
        ServiceError,
    )
    from .job.admm import ADMM
    from .job.algorithm import GradientAveraging
    from .job.em import EM
    from .job.job import TrainingJob
    from .job.limits import Budget, Stop
    from .job.model_averaging import ModelAveraging
    from .job.optimizers import FTRL, SGD, AdaGrad, Adam
    from .job.scale_in import ScaleIn
    from .job.sync import ASP, BSP, DBW, ISP, SSP, AdaSync, BackupWorkers
    from .models import (
        PMF,
        ImplicitMF,
        KMeans,
        LinearRegression,
        LinearSVM,
        LogisticRegression,
        NumpyModel,
        SoftmaxRegression,
        TorchModel,
    )
    from .search import Sweep, choice, integer, log_uniform, sweep, uniform
    from .starting import train

# In a checkout this folder lies where Python looks first, but the compiled kernels are in the installed package.
if importlib.util.find_spec(f"{__name__}.kernels") is None:
    raise ImportError(f"{__path__[0]} is source code of mlless_nb, not the installed package: start Python elsewhere")

__version__ = "0.1.0"

unix_user.set_user()  # before anything imports Lithops

__all__ = [
    "ADMM",
    "ASP",
    "BSP",
    "DBW",
    "EM",
    "FTRL",
    "ISP",
    "PMF",
    "SGD",
    "SSP",
    "AdaGrad",
    "AdaSync",
    "Adam",
    "BackupWorkers",
    "Budget",
    "BudgetError",
    "CommandError",
    "DataError",
    "DataWarning",
    "GradientAveraging",
    "ImplicitMF",
    "JobError",
    "JobWarning",
    "KMeans",
    "LinearRegression",
    "LinearSVM",
    "LogisticRegression",
    "MllessError",
    "ModelAveraging",
    "NumpyModel",
    "RunError",
    "ScaleIn",
    "ServiceError",
    "SoftmaxRegression",
    "Stop",
    "StoredFiles",
    "Sweep",
    "TorchModel",
    "TrainingJob",
    "TrainingRun",
    "advise",
    "attach",
    "choice",
    "clean",
    "compare",
    "datasets",
    "forget",
    "integer",
    "log_uniform",
    "project",
    "runs",
    "session",
    "spend",
    "sweep",
    "train",
    "uniform",
]


#: Where each name is defined. Names are loaded on first use: a user waits while functions start, and functions need
#: few of them.
_HOMES = {
    "adviser": ["advise"],
    "data.datasets": ["datasets"],
    "data.stored_files": ["StoredFiles"],
    "errors": [
        "BudgetError",
        "CommandError",
        "DataError",
        "DataWarning",
        "JobError",
        "JobWarning",
        "MllessError",
        "RunError",
        "ServiceError",
    ],
    "job.admm": ["ADMM"],
    "job.algorithm": ["GradientAveraging"],
    "job.em": ["EM"],
    "job.job": ["TrainingJob"],
    "job.limits": ["Budget", "Stop"],
    "job.model_averaging": ["ModelAveraging"],
    "models": [
        "PMF",
        "ImplicitMF",
        "KMeans",
        "LinearRegression",
        "LinearSVM",
        "LogisticRegression",
        "NumpyModel",
        "SoftmaxRegression",
        "TorchModel",
    ],
    "job.optimizers": ["FTRL", "SGD", "AdaGrad", "Adam"],
    "driver.comparison": ["compare"],
    "driver.listing": ["forget", "runs", "spend"],
    "driver.runs": ["attach"],
    "driver.cleaning": ["clean"],
    "driver.run": ["TrainingRun"],
    "driver.spending": ["project", "session"],
    "search": ["Sweep", "choice", "integer", "log_uniform", "sweep", "uniform"],
    "starting": ["train"],
    "job.scale_in": ["ScaleIn"],
    "job.sync": ["ASP", "BSP", "DBW", "ISP", "SSP", "AdaSync", "BackupWorkers"],
}
#: Folders with names for users: ``mlless_nb.models.load_model`` needs no import of its own.
_FOLDERS = "estimators", "models", "money", "simulate", "telemetry", "widgets"


if not TYPE_CHECKING:  # a type checker that saw __getattr__ would accept names that do not exist

    def __getattr__(name: str) -> Any:
        if name in _FOLDERS:
            one_line.install()
            return importlib.import_module(f".{name}", __name__)
        for home, names in _HOMES.items():
            if name in names:
                one_line.install()
                module = importlib.import_module(f".{home}", __name__)
                globals()[name] = found = getattr(module, name, module)
                return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_FOLDERS})


def load_ipython_extension(ip: InteractiveShell) -> Any:
    """``%load_ext mlless_nb``: the ``%%mlless`` and ``%mlless`` magics."""
    from .magics import load_ipython_extension as load

    return load(ip)


def unload_ipython_extension(ip: InteractiveShell) -> Any:
    """``%unload_ext mlless_nb``."""
    from .magics import unload_ipython_extension as unload

    return unload(ip)
