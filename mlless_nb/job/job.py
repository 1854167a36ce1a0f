"""A training job: the validated, frozen definition that a cell makes. Nothing here launches or bills anything."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from ..bus.urls import mask_url
from ..data.dataset import Dataset
from ..data.ratings import Ratings
from ..data.sampling import held_out
from ..data.stored_files import StoredFiles
from ..exchange.stores import REDIS
from ..models import Model
from ..validation import specification
from . import checks, defaults
from .algorithm import Algorithm, DecidedSteps, GradientAveraging
from .execution import WORKERS, check_execution, settle
from .limits import AllottedBudget, Budget, Stop
from .optimizers import SGD, Optimizer
from .scale_in import ScaleIn
from .sync import BSP, Sync

#: Memory that a function needs beside its model's tables, MB.
RUNTIME_MB = 100


def backend_name(backend: str | Mapping[str, Any]) -> str:
    """The backend's name; a whole configuration may hold secrets and is never shown."""
    return backend if isinstance(backend, str) else str(backend.get("lithops", {}).get("backend", "a configuration"))


@specification
@dataclass(frozen=True)
class TrainingJob:
    """One training job, checked field by field when it is made.

    Parameters
    ----------
    model : Model
        E.g. `PMF` or `LogisticRegression`.
    optimizer : SGD | Adam | AdaGrad | FTRL, optional
        None: SGD with Nesterov momentum for ratings, Adam for dense features, AdaGrad for sparse ones.
    data : Dataset | StoredFiles
        Training rows, from ``mlless_nb.datasets``, or files in the object storage, which functions prepare.
    sync : BSP | ISP | SSP | ASP | BackupWorkers | DBW | AdaSync
        Synchronisation protocol.
    workers : int, optional
        Number P of worker functions; a supervisor function comes on top. None: one for each 10,000 rows, at most 4.
    budget : Budget | float, optional
        The most the run may cost, US dollars.
    stop : Stop
    scale_in : ScaleIn
        When workers are removed while the run trains. This depends on how long steps take: use ``ScaleIn.off()`` for
        models that are the same bit for bit.
    minibatch : int, optional
        Rows B that one worker takes in a step; the global minibatch is P*B. None: chosen such that an epoch has at
        least 36 steps, and a run whose epochs are given at least 400; at most 6,250.
    seed : int
        Decides the split, the order of the rows and the initial parameters.
    validation : float | Dataset | StoredFiles | None
        Fraction of ``data`` to hold out, rows to evaluate on, or no validation set.
    algorithm : GradientAveraging | ModelAveraging | ADMM | EM, optional
        What a worker publishes in a step, and how the workers' contributions are combined. None: `EM` for `KMeans`,
        `GradientAveraging` for all other models.
    store : str
        Where published updates are kept: "redis"; "storage", the object storage; "memcached://host:11211" (several
        servers separated by commas); "dynamodb" or "dynamodb://region"; or "server://...", the address that
        ``python -m mlless_nb.server`` says. Leases, plan and budget are on Redis with every store;
        with "storage" and no ``redis`` they are in the object storage, too.
    aggregate : {"mean", "sum"}
        How the workers' updates are combined.
    local_steps : int
        Local steps H, one minibatch each, that a worker takes in a step before it publishes the sum of their updates.
        `ModelAveraging` and `ADMM` decide them.
    codec : {"float32", "bf16", "int8"}
        How published values are encoded. The rounding error of a lossy codec is published later, like ISP's residual.
    pattern : {"auto", "broadcast", "scatter-reduce", "allreduce"}
        How updates are exchanged: each worker reads every peer's update; or merges one range of rows and reads the
        other merged ranges; or one worker, the leader, merges all updates, and the others read their sum. "auto"
        chooses one of the first two by P, the size of an update, and the latency and bandwidth of ``redis``; with
        another store it is broadcast, whose requests are the fewest that need no second wait.
    partition : {"auto", "rows", "user"}
        How data is sharded across workers: rows at random, or users with all of their ratings, whose parameters then
        need no exchange until their owner leaves or the run ends. "auto" shards users where that computes the same
        descent, see `mlless_nb.job.partitioning`.
    schedule : {"auto", "constant"}
        "auto" cuts the learning rate when the validation loss has not fallen for a while, see
        `mlless_nb.job.rate_schedule`.
    backend : str | Mapping
        ``"embedded"`` (this machine), the name of a Lithops backend, or a whole Lithops configuration.
    redis : str | list of str, optional
        URL(s) of Redis; updates are sharded over several servers by slot. None: the embedded backend's private server,
        or none at all with ``store="storage"``.
    redis_for_functions : str | list of str, optional
        The same servers as the functions of a cloud reach them, if this process goes another way (a tunnel). None: as
        ``redis``.
    bus : str, optional
        URL of the control bus, ``amqp://...`` or a Redis URL. None: Redis Streams on the first of ``redis``, or objects
        if there is no Redis.
    execution : {"workers", "map-reduce", "events"}
        Which functions a run has: workers that live as long as it does; or functions that live for a part of a step,
        invoked by the driver or by each other, see `mlless_nb.stateless`.
    reducers : int, optional
        With ``execution="events"``: functions that merge updates, each a part of the table. None: one for four workers.
    name : str, optional
        The run's name.
    eval_every, checkpoint_every : int, optional
        Steps between two evaluations of the held-out rows, by default such that they take at most 5 % of the run's
        time; and the most steps that are taken again after a fault: checkpoints are begun a fifth earlier. By time
        there is a first one after a second of training, once it costs less than a tenth of the run so far, and then so
        many that they cost half a percent of it.
    prices : str
        Price profile, see ``mlless_nb.money``.
    memory_mb : int
        Memory of a function, MB; clouds price by it.
    speculation : float | "off"
        A worker whose steps take this many times those of the median worker, for long enough that a duplicate pays,
        is replaced by one: see `mlless_nb.supervisor.policy.speculation`. Protocols with backup workers do not wait for
        stragglers, and have no duplicates.
    insecure : bool
        Allow Redis or RabbitMQ on another machine without TLS and a password.
    detach : bool, optional
        Whether the run goes on, to its own end, when the process that started it ends: a process of its own drives it
        then, and `mlless_nb.attach` finds it from any notebook on this machine. None: with a backend elsewhere, unless
        the data is read from a file as it is needed, which that process cannot do.

    Raises
    ------
    JobError
        Naming the field, its value and what would be valid.
    """

    # These Nones are replaced by values when the job is made, so readers of a job never see them.
    model: Model
    optimizer: Optimizer = None  # type: ignore[assignment]
    data: Dataset = None  # type: ignore[assignment]
    sync: Sync = field(default_factory=BSP)
    workers: int = None  # type: ignore[assignment]
    budget: Budget | float | None = None
    stop: Stop = field(default_factory=Stop)
    scale_in: ScaleIn = field(default_factory=ScaleIn)
    minibatch: int = None  # type: ignore[assignment]
    seed: int = 0
    validation: float | Dataset | None = 0.1
    algorithm: Algorithm = None  # type: ignore[assignment]
    store: str = field(default=REDIS, repr=False)  # its address may hold a token
    aggregate: str = "mean"
    local_steps: int = 1
    codec: str = "float32"
    pattern: str = "auto"
    partition: str = "auto"
    schedule: str = "auto"
    backend: str | Mapping[str, Any] = field(default="embedded", repr=False)  # a configuration may hold secret keys
    redis: str | list[str] | None = field(default=None, repr=False)  # URLs may hold passwords
    redis_for_functions: str | list[str] | None = field(default=None, repr=False)
    bus: str | None = field(default=None, repr=False)
    execution: str = WORKERS
    reducers: int | None = None
    name: str | None = None
    eval_every: int | None = None
    checkpoint_every: int | None = None
    prices: str = "aws-lambda-x86"
    memory_mb: int = 1769
    speculation: float | str = 3.0
    insecure: bool = False
    detach: bool | None = None

    def __post_init__(self) -> None:
        checks.check_types(self)
        checks.check_values(self)
        if self.budget is not None and not isinstance(self.budget, Budget):
            object.__setattr__(self, "budget", Budget(self.budget))
        if not self.is_counted:  # what depends on the rows is decided and checked when a run has counted them
            checks.check_kinds(self)
            self._without_rows()._check_settings()
            return
        checks.check_data(self)
        self._decide()
        checks.check_validation_set(self)
        self._check_settings()
        checks.check_memory(self)
        checks.check_frames(self)
        checks.check_workers(self)

    def _check_settings(self) -> None:
        """Raise unless model, algorithm, protocol and functions suit each other, as far as the rows are known."""
        checks.check_partition(self)
        checks.check_algorithm(self)
        self.algorithm.check(self)
        self.sync.check(self)
        check_execution(self)

    def _without_rows(self) -> TrainingJob:
        """A copy in which is decided what does not depend on the rows; of the workers it has the most there can be."""
        known = copy.copy(self)
        for name, value in (("algorithm", defaults.algorithm(self.model)), ("workers", defaults.WORKERS)):
            if getattr(known, name) is None:
                object.__setattr__(known, name, value)
        known._take_steps(known.algorithm.given_steps(known))
        settle(known)
        return known

    def _decide(self) -> None:
        """Replace None by values. The learning rate and the penalty are chosen later, by `defaults.resolved`."""
        left_open = [name for name in ("algorithm", "optimizer", "workers", "minibatch") if getattr(self, name) is None]
        if "algorithm" in left_open:
            object.__setattr__(self, "algorithm", defaults.algorithm(self.model))
        self._take_steps(self.algorithm.given_steps(self))
        decided: dict[str, Any] = {}
        if "algorithm" in left_open:
            decided["algorithm"] = defaults.algorithm(self.model)
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
        for name, value in self.algorithm.decided(self, left_open).items():
            object.__setattr__(self, name, value)
        self._take_steps(self.algorithm.local_steps(self))
        settle(self)

    def _take_steps(self, n: int) -> None:
        if n != self.local_steps:
            object.__setattr__(self, "local_steps", DecidedSteps(n))

    @property
    def is_stored(self) -> bool:
        """Whether functions are to prepare rows."""
        return isinstance(self.data, StoredFiles) or isinstance(self.validation, StoredFiles)

    @property
    def is_counted(self) -> bool:
        """Whether the training rows are known. If not, what depends on them is not yet decided."""
        return not isinstance(self.data, StoredFiles)

    @property
    def straggles_from(self) -> float:
        """Times the median from which on a worker is a straggler; 0.0 with ``speculation="off"``."""
        return 0.0 if isinstance(self.speculation, str) else float(self.speculation)

    @property
    def n_functions(self) -> int:
        """Most functions of the run at once."""
        stored = [each.functions for each in (self.data, self.validation) if isinstance(each, StoredFiles)]
        return max([(self.workers or defaults.WORKERS) + 1, *stored])

    @property
    def takes_local_steps(self) -> bool:
        """Whether workers take several local steps before they publish."""
        return self.local_steps > 1 or (isinstance(self.optimizer, SGD) and self.optimizer.per_sample)

    def needed_mb(self, *, is_by_user: bool) -> int:
        """Memory that a function needs, MB: a worker's tables and the runtime."""
        n_rows, width = self.model.table_shape(self.data.shape)
        # The parameters, the optimiser's state, the update being computed, ISP's residual and its published part.
        is_unpublished = self.sync.filters or self.codec != "float32" or is_by_user
        n_state = len(self.algorithm.state_names(self.optimizer))
        n_tables = 2 + n_state + 3 * is_unpublished + self.takes_local_steps + self.algorithm.n_work_tables
        # At the end: the stored parameters, the workers' states (merged if they are common), and these again as a blob.
        n_tables += 1 + 2 * n_state * (self.workers if self.algorithm.is_state_local else 1)
        # The best replica so far, and one whose evaluation is not complete.
        n_tables += 2 * (1 + is_unpublished) * (self.validation is not None)
        return n_tables * n_rows * width * 4 // 2**20 + RUNTIME_MB

    @property
    def n_train(self) -> int:
        """Number of training rows, without the validation rows."""
        if isinstance(self.validation, (float, int)):
            return self.data.n - held_out(self.data.n, self.validation)
        return self.data.n

    @property
    def n_minibatches(self) -> int:
        """Minibatches in an epoch; the last may be short."""
        return -(-self.n_train // self.minibatch)

    @property
    def cap_usd(self) -> float | None:
        """The budget in US dollars, None if there is none."""
        return self.budget.usd if isinstance(self.budget, Budget) else None

    @property
    def has_own_cap(self) -> bool:
        """Whether the job itself has a budget, which it spends unless a stop rule ends it."""
        return self.budget is not None and not isinstance(self.budget, AllottedBudget)

    @property
    def redis_urls(self) -> list[str] | None:
        """The Redis URLs as a list, None for the embedded server."""
        return [self.redis] if isinstance(self.redis, str) else self.redis

    @property
    def function_redis_urls(self) -> list[str] | None:
        """The Redis URLs of functions as a list, in the order of `redis_urls`; None for the embedded server."""
        urls = self.redis_for_functions
        return self.redis_urls if urls is None else [urls] if isinstance(urls, str) else urls

    @property
    def ends_settled(self) -> bool:
        """Whether the run ends when its validation loss has settled: if there is neither stop rule nor budget."""
        return self.stop.is_empty and not self.has_own_cap and self.validation is not None

    @property
    def stop_rules(self) -> Stop:
        """The stop rules in force: the user's, or a default number of epochs if there is neither rule nor budget."""
        if not self.stop.is_empty or self.has_own_cap:
            return self.stop
        if (rules := self.algorithm.default_stop(self)) is not None:
            return rules  # type: ignore[no-any-return]
        # The number of steps that a run needs is that of GradientAveraging where the algorithm decides the local steps.
        n_local = 1 if isinstance(self.local_steps, DecidedSteps) else self.local_steps
        steps = self.n_minibatches / (self.workers * n_local)
        epochs = defaults.epochs(steps, has_validation=self.validation is not None)
        return replace(self.stop, epochs=epochs * self.algorithm.passes)

    def __repr__(self) -> str:
        """All fields except those that may hold secrets; of the backend only its name."""
        shown = ", ".join(f"{entry.name}={getattr(self, entry.name)!r}" for entry in fields(self) if entry.repr)
        return f"TrainingJob({shown}, store={mask_url(self.store)!r}, backend={backend_name(self.backend)!r})"

    def describe(self) -> str:
        """The job in one line, e.g. "PMF rank 20 · MovieLens-1M · ISP 0.7"."""
        synthetic = " (synthetic)" if self.data.is_synthetic else ""
        algorithm = "" if isinstance(self.algorithm, GradientAveraging) else f" · {self.algorithm}"
        execution = "" if self.execution == WORKERS else f" · {self.execution}"
        return f"{self.model} · {self.data.name}{synthetic} · {self.sync}{algorithm}{execution}"
