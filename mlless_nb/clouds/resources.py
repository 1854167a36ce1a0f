"""What a deployment on AWS consists of, by name: all names begin alike, and all that can be tagged is."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import version

from ..exchange.stores import dynamodb
from ..plurals import count

#: The tag of everything.
TAG = dynamodb.TAG
#: Days after which functions' logs are deleted.
LOG_DAYS = 7
#: Names of functions and layers, which Lithops makes of the namespace (`lithops_lambda`).
FUNCTION = re.compile(r"mlless-[0-9a-f]{8}-lithops-worker-\w+-\w+-\w+")
LAYER = re.compile(r"lithops_v\w+_mlless-[0-9a-f]{8}_[\w-]+_layer")
#: Where AWS Lambda writes a function's log.
LOGS = "/aws/lambda/"


def tags() -> dict[str, str]:
    """The tags of everything that is made, tables of runs included; the value is the version that made it."""
    return {TAG: version("mlless_nb")}


def bucket_of(account: str, region: str) -> str:
    """The bucket's name; those of all accounts share one space."""
    return f"mlless-nb-{account}-{region}"


def role_of(region: str) -> str:
    """The name of the functions' role; roles belong to no region."""
    return f"mlless-nb-function-{region}"


def namespace_of(digest: str) -> str:
    """Lithops' namespace for the layer with this digest: another layer has functions of its own."""
    return f"mlless-{digest[:8]}"


@dataclass(frozen=True)
class Inventory:
    """What lies in an account and region of what we make.

    Parameters
    ----------
    functions, log_groups : list of str
        Names.
    layers : list of (str, int)
        Names and versions.
    role, bucket : str or None
    n_objects, n_bytes : int
        What the bucket holds.
    tables : list of str
        Names of runs' tables of DynamoDB, for jobs with ``store="dynamodb"``.
    """

    functions: list[str]
    log_groups: list[str]
    layers: list[tuple[str, int]]
    role: str | None
    bucket: str | None
    n_objects: int = 0
    n_bytes: int = 0
    tables: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return not (self.functions or self.log_groups or self.layers or self.tables or self.role or self.bucket)

    def lines(self) -> Iterable[str]:
        """A sentence each."""
        for name in self.functions:
            yield f"function {name}"
        for name in self.log_groups:
            yield f"log group {name}"
        for name, number in self.layers:
            yield f"layer {name}, version {number}"
        for name in self.tables:
            yield f"table {name}"
        if self.role:
            yield f"role {self.role}"
        if self.bucket:
            yield f"bucket {self.bucket}: {count(self.n_objects, 'object')}, {self.n_bytes / 1e6:.1f} MB"
