"""What `mlless-nb deploy` has put into a cloud, as noted in the user's configuration directory: a profile.

``backend="aws_lambda"`` runs on it. It holds no secret: credentials stay where boto3 finds them, and the password of
Redis where `bus.passwords` does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import platformdirs

from ...errors import DecodeError, JobError
from ...function.package_digest import digest_here

#: Backends that have profiles.
CLOUDS = ("aws_lambda",)
#: Longest lifetime of a function on AWS Lambda, seconds.
LIFETIME_S = 900
#: Longest file that is read, bytes.
MOST_BYTES = 1 << 16


@dataclass(frozen=True)
class Profile:
    """A deployment on AWS Lambda.

    Parameters
    ----------
    region, account, user : str
        Where, whose, and AWS' id of who deployed it, which is part of Lithops' names.
    bucket, role, layer : str
        The bucket's name; ARNs of the functions' role and layer.
    namespace, runtime : str
        Lithops' namespace, which has the digest of the layer in it, and its name of the runtime.
    python, lithops, sources : str
        Versions of the functions' Python and Lithops, and the digest of their mlless_nb.
    memory_mb : list of int
        The memory of the functions that are there, one for each size.
    concurrency : int
        Functions that the account ran at once when it was written.
    wrapper : str
        The path of the layer's preload.
    redis : str or None
        URL of the Redis of jobs that name none, without a password.
    redis_for_functions : str or None
        The URL by which functions reach it, if that is another one.
    links : dict
        Latency (seconds) and bandwidth (bytes/s) of the link to it by the memory of a function, as text.
    """

    region: str
    account: str
    user: str
    bucket: str
    role: str
    layer: str
    namespace: str
    runtime: str
    python: str
    lithops: str
    sources: str
    memory_mb: list[int]
    concurrency: int
    wrapper: str
    redis: str | None = None
    redis_for_functions: str | None = None
    links: dict[str, list[float]] = field(default_factory=dict)

    @classmethod
    def decode(cls, blob: bytes) -> Profile:
        """What `write` wrote.

        Raises
        ------
        DecodeError
            If it is not that.
        """
        try:
            found = cls(**json.loads(blob))
        except (ValueError, TypeError, RecursionError):
            raise DecodeError("it does not describe a deployment") from None
        for name in (each.name for each in dataclasses.fields(cls)):
            value = getattr(found, name)
            if name == "memory_mb":
                is_valid = isinstance(value, list) and value != [] and all(type(each) is int for each in value)
            elif name == "concurrency":
                is_valid = type(value) is int and value > 0
            elif name == "links":
                is_valid = isinstance(value, dict) and all(_is_link(each) for each in value.values())
            else:
                is_valid = isinstance(value, str) or (name.startswith("redis") and value is None)
            if not is_valid:
                raise DecodeError(f"its field {name} is not valid")
        return found

    def write(self, cloud: str = "aws_lambda") -> Path:
        """Write the profile, in place of an earlier one."""
        path = path_of(cloud)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = path.with_suffix(".tmp")
        draft.touch(mode=0o600)
        draft.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n", "utf-8")
        os.replace(draft, path)
        return path

    def lithops_config(self) -> dict[str, Any]:
        """Lithops' configuration of this deployment; credentials are those that boto3 finds."""
        return {
            "lithops": {"backend": "aws_lambda", "storage": "aws_s3"},
            "aws": {"region": self.region},
            "aws_lambda": {
                "execution_role": self.role,
                "namespace": self.namespace,
                "runtime": self.runtime,
                "runtime_timeout": LIFETIME_S,
                "max_workers": self.concurrency,
                "account_id": self.account,
                "user_id": self.user,
                "env_vars": [{"name": "AWS_LAMBDA_EXEC_WRAPPER", "value": self.wrapper}],
            },
            "aws_s3": {"storage_bucket": self.bucket},
        }

    def difference(self) -> str | None:
        """What of the functions is not as it is here, None if nothing."""
        from lithops.version import __version__

        python = f"{sys.version_info.major}.{sys.version_info.minor}"
        for name, there, here in (("Python", self.python, python), ("Lithops", self.lithops, __version__)):
            if there != here:
                return f"its functions have {name} {there}, and this is {here}"
        return None if self.sources == digest_here() else "its functions have another version of mlless_nb"


def path_of(cloud: str) -> Path:
    """The file of the profile of ``cloud``."""
    return platformdirs.user_config_path("mlless_nb") / "clouds" / f"{cloud}.json"


def find(backend: str | Mapping[str, Any]) -> Profile | None:
    """The profile that ``backend`` runs on; None if there is none, or it is a configuration of the user's own.

    Raises
    ------
    JobError
        If its file is damaged.
    """
    if not isinstance(backend, str) or backend not in CLOUDS:
        return None
    path = path_of(backend)
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        try:
            return Profile.decode(file.read(MOST_BYTES))
        except DecodeError as error:
            raise JobError("backend", backend, f"deployed again (mlless-nb deploy): {path}: {error}") from None
    return None


def forget(cloud: str = "aws_lambda") -> None:
    """Remove the profile."""
    path_of(cloud).unlink(missing_ok=True)


def check(backend: str | Mapping[str, Any], memory_mb: int) -> None:
    """Raise JobError unless the functions of ``backend``'s profile, if it has one, are as this process needs them."""
    profile = find(backend)
    if profile is None:
        return
    if (difference := profile.difference()) is not None:
        raise JobError("backend", backend, f"deployed again (mlless-nb deploy aws): {difference}")
    if memory_mb not in profile.memory_mb:
        sizes = ", ".join(map(str, profile.memory_mb))
        raise JobError(
            "memory_mb", memory_mb, f"one that is deployed: {sizes} (mlless-nb deploy aws --memory {memory_mb})"
        )


def servers_of(backend: str | Mapping[str, Any]) -> dict[str, Any]:
    """The Redis of jobs on ``backend`` that name none, as fields of the job; empty if it has none."""
    profile = find(backend)
    if profile is None or profile.redis is None:
        return {}
    other = profile.redis_for_functions
    return {"redis": profile.redis} | ({} if other is None else {"redis_for_functions": other})


def link_of(backend: str | Mapping[str, Any], memory_mb: int, redis: object) -> tuple[float, float] | None:
    """Latency (s) and bandwidth (bytes/s) of the link between functions and ``redis``; None if nobody measured it."""
    profile = find(backend)
    if profile is None or redis != profile.redis or str(memory_mb) not in profile.links:
        return None
    latency_s, bytes_per_s = profile.links[str(memory_mb)]
    return latency_s, bytes_per_s


def _is_link(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(each) is float and each > 0 for each in value)
