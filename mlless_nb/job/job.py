"""What a cell means: a validated, frozen definition of one training job. Nothing here launches or bills anything."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..bus.urls import mask_url
from ..data.dataset import Dataset, Ratings, held_out
from ..errors import BudgetError, DataError, JobError
from ..models import Model, registered_models
from ..money.catalogue import profile_names
from ..validation import check_choice, check_positive_integer, is_integer, is_number, specification
from . import defaults
from .optimizers import FTRL, SGD, AdaGrad, Adam, Optimizer
from .rate_schedule import SCHEDULES
from .scale_in import ScaleIn
from .sync import BSP, ISP, SSP, Sync

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
#: What fields that are one of a few words may be.
CHOICES = {
    "aggregate": ("mean", "sum"),
    "codec": ("float32", "bf16", "int8"),
    "pattern": ("auto", "broadcast", "scatter-reduce"),
    "partition": ("auto", "rows", "user"),
    "schedule": SCHEDULES,
}
#: Memory that a function takes beside the tables of its model, MB.
RUNTIME_MB = 100


def backend_name(backend: str | Mapping[str, Any]) -> str:
    """The backend's name; a whole configuration may hold secrets and is never shown."""
    return backend if isinstance(backend, str) else str(backend.get("lithops", {}).get("backend", "a configuration"))


def _masked(value: object) -> object:
    """A wrong ``value`` of a field that may hold secrets, as it may be shown: by its type where it is not plain."""
    if isinstance(value, list):
        return [_masked(one) for one in value]
    if isinstance(value, (int, float, type(None))):
        return value
    return mask_url(value) if isinstance(value, str) else type(value)


@specification
@dataclass(frozen=True)
class Budget:
    """The most a run may cost, in US dollars. The run's cost never passes it.

    Parameters
    ----------
    usd : float
        The cap, > 0.
    """

    usd: float

    def __post_init__(self) -> None:
        if not is_number(self.usd) or self.usd <= 0:
            raise BudgetError("budget", self.usd, "a finite number of US dollars > 0, e.g. 0.25")


@specification
@dataclass(frozen=True)
class Stop:
    """When training ends; whichever rule is met first.

    With no rule a run ends at its budget. Without one it ends once the validation loss has settled (see
    `mlless_nb.job.rate_schedule`), at the latest after 50 epochs or 2,000 steps, whichever are more; and where no
    rows are held out after 10 epochs or 400 steps.

    Parameters
    ----------
    target : float, optional
        End once the validation loss (the training loss where there is no validation set) is at or below it, in the
        model's metric.
    epochs : float, optional
        Passes over the training data.
    steps : int, optional
        Steps.
    time_s : float, optional
        Seconds since the functions were invoked.
    patience : int, optional
        End once so many evaluations in a row brought no better validation loss.
    confirmations : int
        So many evaluations in a row at or below the target end the run. The paper's code asks for 10 on the loss of
        single minibatches, which is noisy; here all held-out rows are judged, or without them the mean of ten steps,
        and one is enough.
    """

    target: float | None = None
    epochs: float | None = None
    steps: int | None = None
    time_s: float | None = None
    patience: int | None = None
    confirmations: int = 1

    def __post_init__(self) -> None:
        for name in ("target", "epochs", "time_s"):
            value = getattr(self, name)
            if value is not None and (not is_number(value) or value <= 0):
                raise JobError(f"stop.{name}", value, "a finite number > 0 or None")
        check_positive_integer("stop.steps", self.steps, or_none=True)
        check_positive_integer("stop.patience", self.patience, or_none=True)
        check_positive_integer("stop.confirmations", self.confirmations)

    @property
    def is_empty(self) -> bool:
        """Whether no rule is set."""
        return all(getattr(self, rule.name) is None for rule in fields(self) if rule.default is None)


def _default_stop() -> Stop:
    return Stop()


@specification
@dataclass(frozen=True)
class TrainingJob:
    """One training job, checked field by field when it is made.

    Parameters
    ----------
    model : Model
        `PMF` or `LogisticRegression`, say.
    optimizer : SGD | Adam | AdaGrad | FTRL, optional
        None: SGD with Nesterov momentum for ratings, Adam for dense features, AdaGrad for sparse ones.
    data : Dataset
        Training rows, from ``mlless_nb.datasets``.
    sync : BSP | ISP | SSP
        Synchronisation protocol.
    workers : int, optional
        Number P of worker functions; a supervisor function comes on top. None: one for each 10,000 rows, at most 4.
    budget : Budget | float, optional
        The most the run may cost, US dollars.
    stop : Stop
    scale_in : ScaleIn
        When workers are let go while the run trains. Since that depends on how long steps take, models that are to be
        the same bit for bit ask for ``ScaleIn.off()``.
    minibatch : int, optional
        Rows B that one worker takes in a step; the global minibatch is P*B. None: so many that an epoch has at least
        36 steps, and a run whose epochs are given at least 400; at most 6,250.
    seed : int
        Decides the split, the order of the rows and the initial parameters.
    validation : float | Dataset | None
        Fraction of ``data`` to hold out, rows to evaluate on, or nothing.
    aggregate : {"mean", "sum"}
        How the workers' updates are put together.
    local_steps : int
        Minibatches H that a worker takes on its own in a step, before it publishes how far they led it.
    codec : {"float32", "bf16", "int8"}
        How published values are written. What a lossy codec rounds off is published later, as with ISP.
    pattern : {"auto", "broadcast", "scatter-reduce"}
        How updates get around: each worker reads every peer's, or merges one range of rows and reads the merged ones.
        "auto" chooses by P, the size of an update, and the latency and bandwidth of ``redis``.
    partition : {"auto", "rows", "user"}
        What is dealt out to the workers: rows at random, or users with all of their ratings, whose parameters then
        need no exchange until their owner leaves or the run ends. "auto" deals out users where it is the same descent,
        see `mlless_nb.job.partitioning`.
    schedule : {"auto", "constant"}
        "auto" cuts the learning rate when the validation loss has not fallen for a while, see
        `mlless_nb.job.rate_schedule`.
    backend : str | Mapping
        ``"embedded"`` (this machine), the name of a Lithops backend, or a whole Lithops configuration.
    redis : str | list of str, optional
        URL(s) of Redis; several share the updates by slot. None: the private server of the embedded default.
    bus : str, optional
        URL of the control bus, ``amqp://...`` or a Redis URL. None: Redis Streams on the first of ``redis``.
    name : str, optional
        What the run is called.
    eval_every, checkpoint_every : int, optional
        Steps between two evaluations of the held-out rows, by default such that they take 5 % of the run's time at
        most; and between two checkpoints, by default after 1,000 steps, twice as many, and so on.
    prices : str
        Price profile, see ``mlless_nb.money``.
    memory_mb : int
        Memory of a function, MB; clouds price by it.
    insecure : bool
        Allow Redis or RabbitMQ on another machine without TLS and a password.

    Raises
    ------
    JobError
        Naming the field, its value and what would be valid.
    """

    # What is None is decided when the job is made: whoever reads a job finds the value.
    model: Model
    optimizer: Optimizer = None  # type: ignore[assignment]
    data: Dataset = None  # type: ignore[assignment]
    sync: Sync = field(default_factory=BSP)
    workers: int = None  # type: ignore[assignment]
    budget: Budget | float | None = None
    stop: Stop = field(default_factory=_default_stop)
    scale_in: ScaleIn = field(default_factory=ScaleIn)
    minibatch: int = None  # type: ignore[assignment]
    seed: int = 0
    validation: float | Dataset | None = 0.1
    aggregate: str = "mean"
    local_steps: int = 1
    codec: str = "float32"
    pattern: str = "auto"
    partition: str = "auto"
    schedule: str = "auto"
    backend: str | Mapping[str, Any] = field(default="embedded", repr=False)  # and keys in a configuration
    redis: str | list[str] | None = field(default=None, repr=False)  # passwords are in URLs
    bus: str | None = field(default=None, repr=False)
    name: str | None = None
    eval_every: int | None = None
    checkpoint_every: int | None = None
    prices: str = "aws-lambda-x86"
    memory_mb: int = 1769
    insecure: bool = False

    def __post_init__(self) -> None:
        self._check_types()
        self._check_values()
        self.model.check_data(self.data)
        if self.data.nothing_to_learn:
            raise DataError("data", self.data, f"rows that differ; {self.data.nothing_to_learn}: nothing can be learnt")
        self._decide()
        if isinstance(self.validation, Dataset):
            self._check_validation_set(self.validation)
        self._check_partition()
        self._check_memory()
        if self.n_minibatches < self.workers * self.local_steps:
            most = max(self.n_minibatches // self.local_steps, 1)
            raise JobError(
                "workers",
                self.workers,
                f"at most {most}, for {self.n_minibatches} minibatches ({self.n_train} training rows in minibatches "
                f"of {self.minibatch}), {self.local_steps} to a step; fewer workers or a smaller minibatch would do",
            )

    def _decide(self) -> None:
        """Put values where None was left. The learning rate and the penalty are decided by `defaults.resolved`."""
        left_open = [name for name in ("optimizer", "workers", "minibatch") if getattr(self, name) is None]
        decided: dict[str, Any] = {}
        if "optimizer" in left_open:
            decided["optimizer"] = defaults.optimizer(self.model, self.data)
        if "workers" in left_open:
            most = self.n_train
            if "minibatch" not in left_open:
                most = -(-self.n_train // self.minibatch) // self.local_steps
            if self.partition == "user" and isinstance(self.data, Ratings):
                most = min(most, self.data.n_raters)
            decided["workers"] = defaults.workers(self.n_train, most)
        if "minibatch" in left_open:
            n_workers = decided.get("workers", self.workers)
            decided["minibatch"] = defaults.minibatch(self.n_train, n_workers, self.local_steps, self.stop.epochs)
        for name, value in decided.items():
            object.__setattr__(self, name, value)

    def _check_types(self) -> None:
        models = tuple(registered_models().values())
        for name, kinds, valid in (
            ("model", models, " or ".join(f"{model.__name__}(...)" for model in models)),
            (
                "optimizer",
                (SGD, Adam, AdaGrad, FTRL, type(None)),
                "SGD(...), Adam(...), AdaGrad(...), FTRL(...) or None",
            ),
            (
                "data",
                (Dataset,),
                "a dataset of mlless_nb.datasets, e.g. datasets.ratings(users, items, ratings) or datasets.csr(X, y)",
            ),
            ("sync", (BSP, ISP, SSP), "BSP(), ISP(threshold) or SSP(staleness)"),
            ("stop", (Stop,), "Stop(target=..., epochs=..., ...)"),
            ("scale_in", (ScaleIn,), "ScaleIn(...) or ScaleIn.off()"),
            (
                "backend",
                (str, Mapping),
                "'embedded', the name of a Lithops backend or a Lithops configuration (a dict)",
            ),
            ("insecure", (bool,), "True or False"),
        ):
            if not isinstance(value := getattr(self, name), kinds):
                raise JobError(name, _masked(value) if name == "backend" else value, valid)
        if isinstance(self.backend, Mapping) and not isinstance(self.backend.get("lithops", {}), Mapping):
            raise JobError("backend", type(self.backend), "a Lithops configuration, with a dict under 'lithops'")
        if not isinstance(self.bus, (str, type(None))):
            raise JobError("bus", _masked(self.bus), "a string or None")
        if not isinstance(self.name, (str, type(None))):
            raise JobError("name", self.name, "a string or None")

    def _check_values(self) -> None:
        check_positive_integer("workers", self.workers, or_none=True)
        check_positive_integer("minibatch", self.minibatch, or_none=True)
        check_positive_integer("eval_every", self.eval_every, or_none=True)
        check_positive_integer("checkpoint_every", self.checkpoint_every, or_none=True)
        if not is_integer(self.memory_mb) or not 128 <= self.memory_mb <= 10240:
            raise JobError("memory_mb", self.memory_mb, "an integer between 128 and 10240 (MB)")
        if not is_integer(self.seed) or self.seed < 0:
            raise JobError("seed", self.seed, "an integer >= 0")
        check_positive_integer("local_steps", self.local_steps)
        for name, choices in CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        if self.name is not None and not NAME.fullmatch(self.name):
            raise JobError("name", self.name, "letters, digits, _ and -, beginning with a letter, at most 64 in all")
        if self.prices not in profile_names():
            raise JobError("prices", self.prices, "one of " + ", ".join(repr(name) for name in profile_names()))
        if self.budget is not None and not isinstance(self.budget, Budget):
            object.__setattr__(self, "budget", Budget(self.budget))
        if isinstance(self.validation, bool) or not isinstance(self.validation, (float, int, Dataset, type(None))):
            raise JobError("validation", self.validation, "a fraction between 0 and 1, a dataset, or None")
        if isinstance(self.validation, (float, int)) and not 0 < self.validation < 1:
            raise JobError("validation", self.validation, "a fraction between 0 and 1, a dataset, or None")
        urls = [self.redis] if isinstance(self.redis, str) else self.redis
        if urls is not None and (not isinstance(urls, list) or not urls or not all(isinstance(u, str) for u in urls)):
            raise JobError("redis", _masked(self.redis), "a URL such as 'redis://host:6379/0', a list of them, or None")

    def _check_partition(self) -> None:
        for name, without in (("pattern", "scatter-reduce"), ("partition", "user")):
            if self.sync.staleness and getattr(self, name) == without:
                others = " or ".join(repr(choice) for choice in CHOICES[name] if choice != without)
                raise JobError(name, without, f"{others} with {self.sync}, whose workers are not at the same step")
        if isinstance(self.optimizer, SGD) and self.optimizer.per_sample and not hasattr(self.model, "sgd_pass"):
            raise JobError("SGD.per_sample", True, f"False with {self.model}: it is for PMF")
        if self.partition == "user":
            if not isinstance(self.data, Ratings):
                raise JobError("partition", self.partition, "'auto' or 'rows', or ratings as data")
            if self.data.n_raters < self.workers:
                raise JobError("workers", self.workers, f"at most {self.data.n_raters}, the users with ratings")

    @property
    def takes_local_steps(self) -> bool:
        """Whether workers walk on their own before they publish."""
        return self.local_steps > 1 or (isinstance(self.optimizer, SGD) and self.optimizer.per_sample)

    def needed_mb(self, *, is_by_user: bool) -> int:
        """Memory of a function, MB: a worker's tables and what runs it."""
        n_rows, width = self.model.table_shape(self.data.shape)
        # The parameters, the optimiser's state, the update in the making, and what ISP holds back and sends.
        holds_back = self.sync.filters or self.codec != "float32" or is_by_user
        n_state = len(self.optimizer.state_names)
        n_tables = 2 + n_state + 3 * holds_back + self.takes_local_steps
        # At the end what is stored: the parameters and the workers' state together, once more as a blob.
        n_tables += 1 + 2 * n_state
        # The best replica so far, and one that is not judged yet.
        n_tables += 2 * (1 + holds_back) * (self.validation is not None)
        return n_tables * n_rows * width * 4 // 2**20 + RUNTIME_MB

    def _check_memory(self) -> None:
        """Ids that were not numbered from 0 make tables of billions of rows: no function is started for those."""
        n_rows, width = self.model.table_shape(self.data.shape)
        needed_mb = self.needed_mb(is_by_user=self.partition == "user")
        if needed_mb > self.memory_mb:
            raise JobError(
                "memory_mb",
                self.memory_mb,
                f"at least {needed_mb} (MB): {self.model} has {n_rows:,} x {width} parameters on data of shape "
                f"{self.data.shape}; are its ids numbered from 0, without gaps?",
            )

    def _check_validation_set(self, validation: Dataset) -> None:
        if validation.kind != self.data.kind or validation.shape != self.data.shape:
            raise JobError(
                "validation",
                validation,
                f"of the same kind and shape as data ({self.data.kind}, {self.data.shape}); it is "
                f"{validation.kind}, {validation.shape}",
            )
        self.model.check_data(validation, "validation")

    @property
    def n_train(self) -> int:
        """Training rows once the validation rows are held out."""
        if isinstance(self.validation, (float, int)):
            return self.data.n - held_out(self.data.n, self.validation)
        return self.data.n

    @property
    def n_minibatches(self) -> int:
        """Minibatches in an epoch; the last may be short."""
        return -(-self.n_train // self.minibatch)

    @property
    def cap_usd(self) -> float | None:
        """The budget in US dollars, None where there is none."""
        return self.budget.usd if isinstance(self.budget, Budget) else None

    @property
    def redis_urls(self) -> list[str] | None:
        """The Redis URLs as a list, None where the embedded server serves."""
        return [self.redis] if isinstance(self.redis, str) else self.redis

    @property
    def ends_settled(self) -> bool:
        """Whether the run ends once its validation loss has settled: where the user (and the budget) set no end."""
        return self.stop.is_empty and self.budget is None and self.validation is not None

    @property
    def stop_rules(self) -> Stop:
        """The stop rules in force: an end of its own where the user (and the budget) set none."""
        if not self.stop.is_empty or self.budget is not None:
            return self.stop
        steps = self.n_minibatches / (self.workers * self.local_steps)
        return replace(self.stop, epochs=defaults.epochs(steps, has_validation=self.validation is not None))

    def __repr__(self) -> str:
        """All fields but those that may hold secrets; the backend by its name."""
        shown = ", ".join(f"{entry.name}={getattr(self, entry.name)!r}" for entry in fields(self) if entry.repr)
        return f"TrainingJob({shown}, backend={backend_name(self.backend)!r})"

    def describe(self) -> str:
        """The job in one line, e.g. "PMF rank 20 · MovieLens-1M · ISP 0.7"."""
        synthetic = " (synthetic)" if self.data.is_synthetic else ""
        return f"{self.model} · {self.data.name}{synthetic} · {self.sync}"
