"""The messages between processes: frozen dataclasses as JSON, checked field by field when decoded, never pickled."""

from __future__ import annotations

import dataclasses
import functools
import json
from dataclasses import dataclass, field
from typing import Any, Self, get_type_hints

from ..errors import DecodeError
from ..redaction import scrubbed_values
from .field_types import fits

#: No message is longer than this, bytes.
MAX_BYTES = 1 << 20
#: The status of a function that has ended and whose slot another one has from then on.
HANDED_OVER = "handed over"
#: The reason of a run that a user has stopped.
BY_USER = "stopped by you"


@dataclass(frozen=True)
class Message:
    """Base of all messages; the class name is sent as ``kind``."""

    #: Whether functions need the secrets in it; all others are sent without those that this process knows.
    carries_secrets = False

    def encode(self) -> bytes:
        """The message as UTF-8 JSON."""
        fields = vars(self) if self.carries_secrets else scrubbed_values(vars(self))
        return json.dumps({"kind": type(self).__name__, **fields}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, body: bytes | str) -> Self:
        """The message in ``body``, of this class or a subclass.

        Raises
        ------
        DecodeError
            When ``body`` is too long, is not JSON, or does not have exactly the fields of a known message.
        """
        if len(body) > MAX_BYTES:
            raise DecodeError(f"a message of {len(body)} bytes; the most is {MAX_BYTES}")
        try:
            fields = json.loads(body)
            message = KINDS[fields.pop("kind")](**fields)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DecodeError(f"not a message of ours: {type(error).__name__}") from None
        if not isinstance(message, cls):
            raise DecodeError(f"a {type(message).__name__} where a {cls.__name__} was expected")
        message._check()
        return message

    def _check(self) -> None:
        hints = _hints(type(self).__name__)
        for entry in dataclasses.fields(self):
            if not fits(getattr(self, entry.name), hints[entry.name]):
                raise DecodeError(f"{type(self).__name__}.{entry.name} is not {entry.type}")


@functools.cache
def _hints(kind: str) -> dict[str, Any]:
    """The types of the fields of messages of ``kind``."""
    return get_type_hints(KINDS[kind])


@dataclass(frozen=True)
class Invocation(Message):
    """The input of a function: its role and slot, the job, the addresses of data and servers, and its budget.

    ``launched_at_s`` is on the coordinator's clock; ``granted_nusd`` is the first grant, nano-dollars.
    """

    carries_secrets = True
    role: str  # "supervisor" or "worker"
    slot: int  # -1 for the supervisor
    job_id: str
    generation: str
    n_workers: int
    model: dict[str, Any]
    optimizer: dict[str, Any]
    sync: dict[str, Any]
    stop: dict[str, Any]
    scale_in: dict[str, Any]
    aggregate: str
    local_steps: int
    codec: str
    scatter_from: int  # number of workers from which scatter-reduce is used; 0: never
    seed: int
    manifest: dict[str, Any]
    validation: dict[str, Any] | None
    n_cores: int  # cores that all workers share; 0: each has its own
    eval_every: int
    checkpoint_every: int
    redis_urls: list[str] = field(repr=False)  # contain passwords
    bus_url: str = field(repr=False)
    insecure: bool
    prices: str
    memory_mb: int
    has_broker: bool
    launched_at_s: float
    granted_nusd: int
    spent_before_nusd: int
    lifetime_s: float
    lease_s: float
    round_timeout_s: float
    schedule: str = "constant"
    ends_settled: bool = False  # whether training ends once the validation loss has settled
    algorithm: dict[str, Any] = field(default_factory=lambda: {"kind": "gradient-averaging"})
    store: str = field(default="redis", repr=False)  # its address may contain a token
    store_end_nusd: int = 0  # nano-dollars that a worker keeps for its last requests to the store
    coordination_nusd: int = 0  # nano-dollars that a function keeps for its last requests without a Redis
    end_margin_nusd: int = 0  # nano-dollars of the first grant that are neither spent nor returned
    has_leader: bool = False  # whether one worker merges all updates, which the others then read
    start_key: str | None = None  # of the stored progress that the run continues from
    prepared_nusd: int = 0  # nano-dollars that functions spent on preparing the data
    frame_key: str = field(default="", repr=False)  # under which frames are sealed, hexadecimal; "": they are not
    invoked_s: float = 0.0  # when this function was invoked, seconds after ``launched_at_s``; not 0 if it replaces one
    is_successor: bool = False  # whether it waits until the function that has its slot hands over
    invites: list[list[int]] = field(default_factory=list)  # slots that this function invokes, and their grants
    begun: list[list[float]] = field(default_factory=list)  # slots with other functions, and when they were invoked
    has_cap: bool = False  # whether the run had a budget when this function was invoked
    speculation: float = 0.0  # a worker this many times slower than the median gets a duplicate; 0: none does

    def scatters(self, n_active: int) -> bool:
        """Whether ``n_active`` workers exchange updates by scatter-reduce; else by broadcast or through a leader."""
        return 0 < self.scatter_from <= n_active

    def merges(self, n_active: int) -> bool:
        """Whether ``n_active`` workers read sums of updates, by scatter-reduce or from a leader; else each update."""
        return self.scatters(n_active) or (self.has_leader and n_active > 1)


@dataclass(frozen=True)
class FromWorker(Message):
    """Base of the messages from workers to the supervisor."""

    slot: int


@dataclass(frozen=True)
class Started(FromWorker):
    """The worker's function has started, ``start_s`` seconds after its invocation.

    Its bill runs from ``began_s`` seconds after the run; it says so ``at_s`` seconds after it. ``is_cold``: its runtime
    was started for it; None: unknown.
    """

    start_s: float
    began_s: float = 0.0
    is_cold: bool | None = None
    at_s: float = 0.0


@dataclass(frozen=True)
class Ready(FromWorker):
    """The function that will take over ``slot`` waits, from ``ready_s`` seconds after the run on.

    Its bill runs from ``began_s`` seconds after the run.
    """

    began_s: float
    ready_s: float


@dataclass(frozen=True)
class StartedTwice(FromWorker):
    """The platform has started the function of ``slot`` twice; the second one leaves, and has ``spent_nusd``."""

    spent_nusd: int


@dataclass(frozen=True)
class RateCut(FromWorker):
    """The learning rate is cut to ``rate`` after ``step``, because the validation loss stopped falling."""

    step: int
    rate: float


@dataclass(frozen=True)
class Left(FromWorker):
    """The worker has ended after ``step``. The sums are this worker's part of the evaluation of the last model.

    If it handed over, it did so ``left_s`` seconds after the run. ``kept_step`` is the step of the model that the run
    returns; the kept sums are those of its evaluation. ``number`` is that of the newest restart that it knew.
    """

    step: int
    spent_nusd: int
    storage_nusd: int
    validation_sum: float
    validation_count: float
    status: str
    reason: str
    merged_bytes: int = 0  # of the range that it merged in its last step
    kept_step: int = 0
    kept_sum: float = 0.0
    kept_count: float = 0.0
    store_nusd: int = 0  # the part of ``storage_nusd`` that is for the frame store
    left_s: float = 0.0
    number: int = 0
    frames: list[int] = field(default_factory=list)  # see `mlless_nb.exchange.frame_count.FrameCount`


@dataclass(frozen=True)
class Failed(FromWorker):
    """The worker failed."""

    step: int
    spent_nusd: int
    storage_nusd: int
    reason: str
    store_nusd: int = 0
    frames: list[int] = field(default_factory=list)  # as of `Left`


@dataclass(frozen=True)
class Trouble(Message):
    """To the driver: the function of ``slot`` is lost, or data that it needs is. ``number`` is that of the restart.

    ``others`` are slots that are lost for the same reason.
    """

    slot: int
    number: int
    reason: str
    is_lost: bool
    others: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Aged(Message):
    """To the driver: the functions of ``slots`` need successors.

    ``reason`` is "" if they are near the end of their lifetime, else a clause that is told: how slow they are, or, with
    ``is_late``, that those which were invoked for them before have not started.
    """

    slots: list[int]
    reason: str = ""
    is_late: bool = False


@dataclass(frozen=True)
class Replaced(Message):
    """To the supervisor: the run goes on from the checkpoint after ``step``, with new functions for ``slots``.

    A new supervisor, slot -1, has a message of its own and goes on from where the log ends.

    They were invoked ``invoked_s`` seconds after the run; the functions that they replace had ended ``lost_s`` seconds
    after it. ``log_after``: the servers had lost the run's data, and the step log has none up to this step; else None.
    """

    number: int
    step: int
    slots: list[int]
    lost_s: float
    invoked_s: float
    log_after: int | None = None


@dataclass(frozen=True)
class LetGo(Message):
    """To the supervisor: the lost functions of ``slots`` had done all their steps and are not replaced.

    ``number`` is that of the newest restart; they had ended ``lost_s`` seconds after the run.
    """

    number: int
    slots: list[int]
    lost_s: float


@dataclass(frozen=True)
class Invoked(Message):
    """To the supervisor: successors of the functions of ``slots`` were invoked ``invoked_s`` seconds after the run.

    Those on a cloud were granted ``granted_s`` seconds for their starts. With them there were ``number`` in all.
    ``is_refused``: they could not be invoked after all.
    """

    slots: list[int]
    invoked_s: float
    granted_s: float = 0.0
    number: int = 0
    is_refused: bool = False


@dataclass(frozen=True)
class Command(Message):
    """A user's command: ``stop``, ``scale_in`` (``slots``, or ``count`` workers), ``budget`` (``nusd``) or ``tune``.

    ``tune`` resumes the auto-tuner if ``count`` is 1 and pauses it if it is 0.
    """

    id: str
    do: str
    slots: list[int] = field(default_factory=list)
    count: int = 0
    nusd: int = 0


@dataclass(frozen=True)
class Update(Message):
    """A report of the supervisor: rows of telemetry, changed fields of the state, events, answers to commands.

    ``done`` maps a command's id to its result; ``sentences`` are events as pairs of seconds and text; ``decisions`` are
    those of the auto-tuner with the numbers they are based on, for the record; ``after`` is the step of the row before.
    """

    rows: list[list[float | None]] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)
    sentences: list[list[Any]] = field(default_factory=list)
    done: dict[str, str] = field(default_factory=dict)
    decisions: list[dict[str, Any]] = field(default_factory=list)
    after: float = 0.0


@dataclass(frozen=True)
class Ended(Message):
    """The run has ended. Costs are nano-dollars by component.

    ``kept_loss`` is the validation loss of the model that the run returns, of ``kept_step``, stored under
    ``model_key``. ``validation_loss`` is that of the last model; if that is another one, it is under ``last_key``.
    ``n_invoked`` successors are in the bill; None if it is not known how many. ``store_use``: see `Bill.store_use`.
    ``unheard``: slots whose end was not heard, billed up to ``time_s``, and since when. ``most_nusd`` were reserved.
    """

    status: str
    reason: str
    step: int
    model_key: str | None
    validation_loss: float | None
    costs_nusd: dict[str, int]
    time_s: float
    last_key: str | None = None
    kept_step: int | None = None
    kept_loss: float | None = None
    n_invoked: int | None = None
    store_use: dict[str, int] = field(default_factory=dict)
    unheard: list[list[float]] = field(default_factory=list)
    most_nusd: int | None = None


_FROM_WORKERS = Started, StartedTwice, Ready, Left, RateCut, Failed
_OTHERS = Invocation, Trouble, Aged, Replaced, LetGo, Invoked, Command, Update, Ended
KINDS: dict[str, type[Message]] = {kind.__name__: kind for kind in (*_FROM_WORKERS, *_OTHERS)}  # by name on the wire
