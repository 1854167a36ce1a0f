"""Secrets that this process knows, and texts without them: in what people read and what is kept, ``***`` stands there.

Secrets are learnt where they enter: URLs of servers, configurations of backends, keyring entries that URLs name,
environment variables whose names say so, invocations. Errors, events, messages and records pass through `scrubbed`.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

#: Shorter secrets are not looked for: they are parts of words, and no protection.
LEAST_CHARACTERS = 6
#: Most secrets that are kept; the oldest are forgotten.
MOST_SECRETS = 1000
HIDDEN = "***"
#: Names of the fields of a configuration, and of the parts of a URL, that hold secrets.
SECRET_NAME = re.compile(
    r"secret|password|passwd|token|credential|private|connection_string|(^|_)(key|keys|pw)(_|$)|api_?key|key_id", re.I
)

#: Types of values that hide nothing.
NUMBERS = frozenset({bool, float, int, type(None)})

_known: dict[str, None] = {}  # longest first when used; a dict keeps the order of arrival
_lock = threading.Lock()


def remember(*secrets: str | None) -> None:
    """Hide ``secrets`` from now on, in all forms in which texts hold them."""
    for secret in secrets:
        if secret is None or len(secret) < LEAST_CHARACTERS or set(secret) <= {"*"}:
            continue
        forms = {secret, quote(secret, safe=""), quote(secret), json.dumps(secret)[1:-1], repr(secret)[1:-1]}
        with _lock:
            for form in forms:
                _known.pop(form, None)  # the newest are kept
                _known[form] = None
            while len(_known) > MOST_SECRETS:
                del _known[next(iter(_known))]


def scrubbed(text: str) -> str:
    """``text`` with ``***`` in the place of all secrets that are known."""
    if not _known:
        return text
    with _lock:
        known = sorted(_known, key=len, reverse=True)  # a secret may be a part of another one
    for secret in known:
        if secret in text:
            text = text.replace(secret, HIDDEN)
    return text


def scrubbed_values(value: Any) -> Any:
    """A value of plain JSON with `scrubbed` texts; numbers and the names of fields stay as they are."""
    if not _known:
        return value
    if isinstance(value, str):
        return scrubbed(value)
    if isinstance(value, dict):
        return {name: scrubbed_values(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        if NUMBERS.issuperset(map(type, value)):
            return list(value)  # a row of telemetry: quicker than one by one
        return [scrubbed_values(each) if isinstance(each, (str, list, tuple, dict)) else each for each in value]
    return value


def scrub(error: BaseException) -> None:
    """Hide secrets in the texts of ``error`` and of all errors that it tells of, in place."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.args = tuple(scrubbed(each) if isinstance(each, str) else each for each in one.args)
        waiting += [one.__cause__, one.__context__]


def in_url(url: str) -> list[str]:
    """The passwords and tokens that are written out in ``url``, as they are and decoded."""
    found = re.findall(r"://[^:@/?]*:(.*)@", url, re.DOTALL)  # also with characters that are to be %-encoded
    with contextlib.suppress(ValueError):
        found += [value for name, value in parse_qsl(urlsplit(url).query) if SECRET_NAME.search(name)]
    return [form for form in dict.fromkeys([*found, *map(unquote, found)]) if form]


def in_job(fields: Mapping[str, Any]) -> list[str]:
    """The passwords and keys among the ``fields`` of what a function is invoked with."""
    urls = [*fields.get("redis_urls", ()), fields.get("bus_url", ""), fields.get("store", "")]
    return [fields.get("frame_key", ""), *(secret for url in urls for secret in in_url(url))]


def in_configuration(config: Any, name: str = "") -> Iterator[str]:
    """The secrets in a configuration of a backend, by the names of its fields."""
    if isinstance(config, Mapping):
        for key, value in config.items():
            yield from in_configuration(value, str(key))
    elif isinstance(config, (list, tuple)):
        for value in config:
            yield from in_configuration(value, name)
    elif isinstance(config, str):
        if SECRET_NAME.search(name):
            yield config
        elif "://" in config and not any(map(str.isspace, config)):  # a sentence with URLs is none
            yield from in_url(config)
