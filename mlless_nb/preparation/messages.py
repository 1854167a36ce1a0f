"""The messages of functions that prepare data: what one is called with, and its report."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..bus.messages import KINDS, Message


@dataclass(frozen=True)
class PartCall(Message):
    """One invocation: part ``index`` of the plan of ``stage``, which is stored under ``plan_key``.

    ``launched_at_s`` is on the coordinator's clock; ``granted_nusd`` is the first grant, nano-dollars. ``attempt`` is 0
    for the first function that is sent to do the part.
    """

    carries_secrets = True
    stage: str
    index: int
    attempt: int
    job_id: str
    generation: str
    bucket: str  # of the files
    plan_key: str
    found_key: str  # where the function puts what it found
    n_functions: int
    granted_nusd: int
    launched_at_s: float
    redis_urls: list[str] = field(repr=False)  # contain passwords
    bus_url: str = field(repr=False)
    insecure: bool
    prices: str
    memory_mb: int
    has_broker: bool


@dataclass(frozen=True)
class PartDone(Message):
    """A function has ended, ``span_s`` seconds after it was invoked; ``error`` is "" if its part is done."""

    plan_key: str
    index: int
    attempt: int
    span_s: float
    spent_nusd: int
    error: str


KINDS.update({kind.__name__: kind for kind in (PartCall, PartDone)})
