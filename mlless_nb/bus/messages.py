"""The messages between processes: frozen dataclasses as JSON, checked field by field when decoded, never pickled."""

from __future__ import annotations

import dataclasses
import functools
import json
import types
import typing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..errors import DecodeError

#: No message is longer than this, bytes.
MAX_BYTES = 1 << 20

M = TypeVar("M", bound="Message")


@dataclass(frozen=True)
class Message:
    """Base of all messages; the class name travels as ``kind``."""

    def encode(self) -> bytes:
        """The message as UTF-8 JSON."""
        return json.dumps({"kind": type(self).__name__, **vars(self)}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls: type[M], body: bytes | str) -> M:
        """The message in ``body``, of this class or one below it.

        Raises
        ------
        DecodeError
            When ``body`` is too long, is not JSON, or does not have exactly the fields of a known message.
        """
        if len(body) > MAX_BYTES:
            raise DecodeError(f"a message of {len(body)} bytes; the most is {MAX_BYTES}")
        try:
            fields = json.loads(body)
            kind = KINDS[fields.pop("kind")]
            message = kind(**fields)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DecodeError(f"not a message of ours: {type(error).__name__}") from None
        if not isinstance(message, cls):
            raise DecodeError(f"a {kind.__name__} where a {cls.__name__} was expected")
        message._check()
        return message

    def _check(self) -> None:
        hints = _hints(type(self).__name__)
        for entry in dataclasses.fields(self):
            if not _fits(getattr(self, entry.name), hints[entry.name]):
                raise DecodeError(f"{type(self).__name__}.{entry.name} is not {entry.type}")


@functools.cache
def _hints(kind: str) -> dict[str, Any]:
    """The types of the fields of messages of ``kind``."""
    return typing.get_type_hints(KINDS[kind])


@functools.cache
def _scalars(hint: Any) -> frozenset[type]:
    """The types that fit ``hint`` where it is a plain type or a union of such, else none."""
    parts = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if not all(part in (str, int, float, bool, types.NoneType) for part in parts):
        return frozenset()
    return frozenset((*parts, int) if float in parts else parts)


def _fits(value: object, hint: Any) -> bool:
    """Whether ``value``, read from JSON, is of the type ``hint``, all that is in it included."""
    if hint is Any:
        return True
    inner = typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if isinstance(value, list):
        if typing.get_origin(hint) is not list:
            return False
        scalars = _scalars(inner[0])
        # Rows of telemetry are long: their items are looked at all at once.
        return scalars.issuperset(map(type, value)) if scalars else all(_fits(item, inner[0]) for item in value)
    if isinstance(value, dict):  # JSON's keys are strings
        return typing.get_origin(hint) is dict and all(_fits(item, inner[1]) for item in value.values())
    return type(value) is hint or (hint is float and type(value) is int)


@dataclass(frozen=True)
class Invocation(Message):
    """All that a function is told: who it is, what to train, where its data and its peers are, what it may spend.

    ``launched_at_s`` is on the coordinator's clock; ``granted_nusd`` are the nano-dollars it starts on.
    """

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
    scatter_from: int  # workers; 0: never
    seed: int
    manifest: dict[str, Any]
    validation: dict[str, Any] | None
    n_cores: int  # that all workers share; 0: each has its own
    eval_every: int
    checkpoint_every: int
    redis_urls: list[str] = field(repr=False)  # passwords are in them
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
    ends_settled: bool = False  # once the validation loss has settled
    algorithm: dict[str, Any] = field(default_factory=lambda: {"kind": "gradient-averaging"})
    store: str = "redis"
    start_key: str | None = None  # where the workers find what they go on from

    def scatters(self, n_active: int) -> bool:
        """Whether so many workers scatter and reduce their updates; fewer, or else all, broadcast them."""
        return 0 < self.scatter_from <= n_active


@dataclass(frozen=True)
class FromWorker(Message):
    """Base of what workers tell the supervisor."""

    slot: int


@dataclass(frozen=True)
class Started(FromWorker):
    """The worker's function runs; seconds since the invocation."""

    start_s: float


@dataclass(frozen=True)
class RateCut(FromWorker):
    """The learning rate is ``rate`` from the step after ``step`` on: the validation loss has not fallen for a while."""

    step: int
    rate: float


@dataclass(frozen=True)
class Left(FromWorker):
    """The worker has ended after ``step``. The sums are its share of the evaluation of the last model.

    ``kept_step`` is the step of the model that the run returns, and the kept sums are of that one's evaluation.
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


@dataclass(frozen=True)
class Failed(FromWorker):
    """The worker cannot go on."""

    step: int
    spent_nusd: int
    storage_nusd: int
    reason: str


@dataclass(frozen=True)
class Command(Message):
    """What a user asks: ``stop``, ``scale_in`` (``slots``, or ``count`` of them), ``budget`` (``nusd``) or ``tune``.

    ``tune`` resumes the auto-tuner where ``count`` is 1 and pauses it where it is 0.
    """

    id: str
    do: str
    slots: list[int] = field(default_factory=list)
    count: int = 0
    nusd: int = 0


@dataclass(frozen=True)
class Update(Message):
    """News from the supervisor: rows of telemetry, changed fields of the state, sentences, commands dealt with.

    ``done`` maps a command's id to what came of it; ``sentences`` are pairs of seconds and text; ``decisions`` are
    those of the auto-tuner with their numbers, for the record.
    """

    rows: list[list[float | None]] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)
    sentences: list[list[Any]] = field(default_factory=list)
    done: dict[str, str] = field(default_factory=dict)
    decisions: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Ended(Message):
    """The run is over. Costs are nano-dollars by component.

    ``validation_loss`` is that of the last model, which lies under ``last_key`` where it is not the one that is kept;
    ``kept_loss`` is that of the kept one, of ``kept_step``, under ``model_key``.
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


KINDS: dict[str, type[Message]] = {
    kind.__name__: kind for kind in (Invocation, Started, Left, RateCut, Failed, Command, Update, Ended)
}
