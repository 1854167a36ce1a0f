"""An account of AWS: clients that give up in time, and whose errors are one line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .. import remedies
from ..errors import JobError, ServiceError

#: Longest wait for a connection and for an answer, seconds; a layer of 20 MB is sent within the latter.
CONNECT_S, ANSWER_S = 5.0, 120.0
#: Longest wait for an answer to a question, seconds, and tries of a request: since every command begins with a question
#: a cloud that is silent is told within 20 s. What changes something is not given up so soon: it may be under way.
QUESTION_S, TRIES = 5.0, 3
#: How the names of questions begin.
QUESTIONS = ("get_", "list_", "head_", "describe_")


@dataclass
class Account:
    """Who one is on AWS, where.

    Parameters
    ----------
    region : str
    number, user : str
        The account's number, and AWS' id of the user.
    name : str
        The user's ARN.
    session : boto3.Session
    """

    region: str
    number: str
    user: str
    name: str
    session: Any = field(repr=False)
    _clients: dict[tuple[str, float], Any] = field(default_factory=dict, repr=False)

    def call(self, service: str, method: str, **arguments: Any) -> Any:
        """One request.

        Raises
        ------
        ServiceError
            If it fails: one line with the remedy.
        MissingError
            If what it names is not there.
        """
        client = self._client(service, QUESTION_S if method.startswith(QUESTIONS) else ANSWER_S)
        name = "".join(part.capitalize() for part in method.split("_"))
        with told(f"{service}:{name}", self.region):
            return getattr(client, method)(**arguments)

    def pages(self, service: str, method: str, key: str, **arguments: Any) -> Iterator[Any]:
        """The entries under ``key`` of all pages of a list."""
        name = "".join(part.capitalize() for part in method.split("_"))
        with told(f"{service}:{name}", self.region):
            for page in self._client(service, QUESTION_S).get_paginator(method).paginate(**arguments):
                yield from page.get(key, ())

    def _client(self, service: str, answer_s: float) -> Any:
        if (service, answer_s) not in self._clients:
            self._clients[service, answer_s] = _client(self.session, service, self.region, answer_s)
        return self._clients[service, answer_s]

    @property
    def partition(self) -> str:
        """The part of AWS that the account is of, the second word of every ARN: "aws", "aws-cn", "aws-us-gov"."""
        return self.name.split(":")[1]

    @property
    def concurrency(self) -> int:
        """Functions that the account runs at once, in this region."""
        limits = self.call("lambda", "get_account_settings")["AccountLimit"]
        return int(limits.get("UnreservedConcurrentExecutions", limits["ConcurrentExecutions"]))


class MissingError(ServiceError):
    """What was asked for is not there."""


def open_account(region: str | None = None) -> Account:
    """The account of the credentials that boto3 finds.

    Parameters
    ----------
    region : str, optional
        None: the one that boto3 finds.

    Raises
    ------
    JobError
        If boto3 is not installed.
    ServiceError
        If there are no credentials, or AWS does not take them.
    """
    try:
        import boto3
    except ModuleNotFoundError:
        raise JobError("cloud", "aws", "one whose packages are installed: pip install 'mlless_nb[aws]'") from None
    with told("sts:GetCallerIdentity", region or ""):
        session = boto3.Session(region_name=region)
        # Before a client is made: it looks for the region first, and it would look for it at a server of the machine.
        region = session.region_name
        if not region:
            from botocore.exceptions import NoRegionError

            raise NoRegionError
    with told("sts:GetCallerIdentity", region):
        who = _client(session, "sts", region, QUESTION_S).get_caller_identity()
    return Account(region, who["Account"], who["UserId"], who["Arn"], session)


def _client(session: Any, service: str, region: str, answer_s: float) -> Any:
    from botocore.config import Config

    limits = Config(
        connect_timeout=CONNECT_S, read_timeout=answer_s, retries={"mode": "standard", "total_max_attempts": TRIES}
    )
    return session.client(service, region_name=region, config=limits)


@contextlib.contextmanager
def told(doing: str, region: str) -> Iterator[None]:
    """Errors of boto3 become ours, without a chain: its texts may be long and hold requests."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        response = getattr(error, "response", None) or {}
        code = str(response.get("Error", {}).get("Code", ""))
        kind = (
            MissingError
            if code in ("ResourceNotFoundException", "NoSuchEntity", "NoSuchBucket", "NoSuchTagSet", "404")
            else ServiceError
        )
        raise kind(remedies.line(error, doing, region)) from None
