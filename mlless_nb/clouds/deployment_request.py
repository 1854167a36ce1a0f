"""What a deployment is asked for, and what of it would fail at the first run: checked before anything is made."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from ..bus.passwords import filled
from ..bus.urls import REDIS_FORMS, check_redis, mask_url, require_private
from ..driver.backends import deployed
from ..driver.backends.deployed import Profile
from ..errors import JobError, ServiceError
from ..plurals import count
from .account import Account

#: Memory of a function that AWS Lambda takes, MB.
LEAST_MB, MOST_MB = 128, 10_240
#: Functions of the smallest run: two workers and a supervisor.
LEAST_FUNCTIONS = 3
#: In the place of a URL: the profile is to name no Redis.
NO_REDIS = "none"


@dataclass(frozen=True)
class DeploymentRequest:
    """What is to be there.

    Parameters
    ----------
    memory_mb : sequence of int
        A function for each.
    redis, redis_for_functions : str or None
        URL of the Redis of jobs that name none, and by which functions reach it, if that is another one. `completed`
        says what is meant if there is none, and by `NO_REDIS`.
    insecure : bool
        Accept one without TLS or password.
    """

    memory_mb: Sequence[int]
    redis: str | None = None
    insecure: bool = False
    redis_for_functions: str | None = None

    def __post_init__(self) -> None:
        for each in self.memory_mb:
            if not LEAST_MB <= each <= MOST_MB:
                raise JobError("memory", each, f"{LEAST_MB} to {MOST_MB} MB")
        for url in (self.redis, self.redis_for_functions):  # one that cannot be kept is refused now
            if url is not None:
                without_password(url)

    def completed(self, account: Account) -> DeploymentRequest:
        """With the Redis that the account's deployment before has, if none is given.

        Raises
        ------
        JobError
            If there is a URL for functions only.
        """
        if self.redis == NO_REDIS:
            made = dataclasses.replace(self, redis=None)
        elif self.redis is None and (before := deployed_before(account)) is not None:
            other = self.redis_for_functions or before.redis_for_functions
            made = dataclasses.replace(self, redis=before.redis, redis_for_functions=other)
        else:
            made = self
        if made.redis_for_functions is not None and made.redis is None:
            raise JobError("redis_for_functions", mask_url(made.redis_for_functions), "given with --redis")
        return made


def deployed_before(account: Account) -> Profile | None:
    """The profile, if it can be read and is of this account."""
    with contextlib.suppress(JobError):
        found = deployed.find("aws_lambda")
        return found if found is not None and found.account == account.number else None
    return None


def check(account: Account, wanted: DeploymentRequest) -> int:
    """Check what would fail at the first run; returns the account's concurrency.

    Raises
    ------
    JobError, ServiceError
        If the quota is too small, or Redis is not as runs need it.
    """
    concurrency = account.concurrency
    if concurrency < LEAST_FUNCTIONS:
        raise ServiceError(
            f"quota: the account runs {count(concurrency, 'function')} at once in {account.region}, and the smallest "
            f"run has {LEAST_FUNCTIONS}: ask for more of 'Concurrent executions' of AWS Lambda in the console's "
            "Service Quotas"
        )
    if wanted.redis is not None:
        check_redis(filled("redis", wanted.redis), wanted.insecure)
    if wanted.redis_for_functions is not None:
        url = filled("redis_for_functions", wanted.redis_for_functions)
        require_private("redis_for_functions", url, wanted.insecure)
    return concurrency


def without_password(url: str) -> str:
    """``url`` as it may lie in a file: a password in it is left out, one that it names stays named.

    Raises
    ------
    JobError
        If it is none, or a secret is elsewhere in it.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        raise JobError("redis", mask_url(url), REDIS_FORMS) from None
    user, has_password, password = (parts.username or ""), parts.password is not None, parts.password or ""
    if has_password and not password.startswith("${"):
        host = parts.netloc.rpartition("@")[2]
        url = parts._replace(netloc=f"{user}@{host}" if user else host).geturl()
    if "password=" in urlsplit(url).query:
        raise JobError("redis", mask_url(url), "a URL with its password before the host, not among the options")
    return url
