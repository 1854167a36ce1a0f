"""The link of a deployment's functions to its Redis: one function of each size measures it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..errors import ServiceError
from ..function.lambda_handler import PROBE
from .account import Account


def measured(account: Account, functions: Mapping[int, str], redis: str, insecure: bool) -> dict[str, list[float]]:
    """Latency (s) and bandwidth (bytes/s) by the memory of a function (MB, as text: it is a key of JSON).

    Parameters
    ----------
    account : Account
    functions : Mapping
        Names by memory, MB.
    redis : str
        URL as functions use it, with its password.
    insecure : bool
        Accept one without TLS or password.

    Raises
    ------
    ServiceError
        If a function cannot be invoked, fails, or does not reach Redis.
    """
    asked = json.dumps({PROBE: {"redis": redis, "insecure": insecure}}).encode()
    # The clients of an account are made by its first call: here, before threads share them.
    account.call("lambda", "get_account_settings")
    with ThreadPoolExecutor(len(functions)) as pool:
        answers = list(pool.map(lambda name: _answer(account, name, asked), functions.values()))
    return {str(memory): _link(answer) for memory, answer in zip(functions, answers, strict=True)}


def _answer(account: Account, name: str, asked: bytes) -> dict[str, Any]:
    answer = account.call("lambda", "invoke", FunctionName=name, Payload=asked)
    try:
        said = json.loads(answer["Payload"].read())
    except ValueError:
        said = None
    if not isinstance(said, dict):
        raise ServiceError(f"function {name}: its answer is none of ours: deploy again")
    if "FunctionError" in answer:
        why = str(said.get("errorMessage", answer["FunctionError"])).partition("\n")[0]
        raise ServiceError(f"function {name} fails: {why[:300]}")
    return said


def _link(answer: Mapping[str, Any]) -> list[float]:
    if "error" in answer:
        raise ServiceError(
            f"redis, asked from a function: {answer['error']}; functions reach what has a public address, or what is "
            "in their VPC; --redis-for-functions names another address for them"
        )
    link = [answer.get("latency_s"), answer.get("bytes_per_s")]
    if not all(isinstance(each, float) and math.isfinite(each) and each > 0 for each in link):
        raise ServiceError("redis, asked from a function: it measured nothing: deploy again")
    return link  # type: ignore[return-value]


def sentence(link: list[float]) -> str:
    """In words."""
    return f"{1000 * link[0]:.2f} ms and {link[1] / 1e6:.0f} MB/s from a function"
