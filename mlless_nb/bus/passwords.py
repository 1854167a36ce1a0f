"""Passwords that a URL names instead of holding them: ``rediss://user:${REDIS_PASSWORD}@host``.

A name stands for an environment variable or, if there is none, for an entry of the keyring (the package ``keyring``, if
it is installed) of the service ``mlless_nb``. So no notebook, job or record holds the password itself.
"""

from __future__ import annotations

import importlib.util
import os
import re
from urllib.parse import parse_qs, quote, urlsplit

from ..errors import JobError
from ..redaction import in_url, remember
from .urls import REDIS_SCHEMES, is_here, mask_url, scheme_of

#: The service of the keyring whose entries URLs name.
KEYRING_SERVICE = "mlless_nb"
#: Names that are looked up for a server on another machine whose URL has no password, by its scheme.
DEFAULT_NAMES = {
    **dict.fromkeys(REDIS_SCHEMES, "MLLESS_REDIS_PASSWORD"),
    **dict.fromkeys(("amqp", "amqps"), "MLLESS_RABBITMQ_PASSWORD"),
}
_NAMED = re.compile(r"\$\{([^{}]*)\}")
_VALID_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,99}")


def filled(field: str, url: str) -> str:
    """``url`` with the passwords in it that it names, %-encoded; they are hidden from texts from now on.

    Parameters
    ----------
    field : str
        The job's field that holds ``url``, for the message.
    url : str
        Of a server, or the address of a store.

    Raises
    ------
    JobError
        If a name stands for nothing.
    """

    def value_of(match: re.Match[str]) -> str:
        value = looked_up(match[1]) if _VALID_NAME.fullmatch(match[1]) else None
        if value is None:
            valid = (
                f"a URL whose password can be found: there is no environment variable {match[1]}, and no entry of this "
                f"name in the keyring (keyring set {KEYRING_SERVICE} {match[1]})"
            )
            raise JobError(field, mask_url(url), valid)
        return quote(value, safe="")

    found = _NAMED.sub(value_of, url)
    remember(*in_url(found))
    return _with_default(found)


def _with_default(url: str) -> str:
    """``url`` with the password of its server's default name, if it has none and one is to be found."""
    name = DEFAULT_NAMES.get(scheme_of(url))
    if name is None or is_here(url):
        return url
    try:
        parts = urlsplit(url)
        has_password = bool(parts.password or parse_qs(parts.query).get("password"))
    except ValueError:
        return url
    password = None if has_password else looked_up(name)
    if not password:
        return url
    user, _, place = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user.rstrip(':')}:{quote(password, safe='')}@{place}").geturl()


def looked_up(name: str) -> str | None:
    """What ``name`` stands for, hidden from texts from now on; None if it stands for nothing."""
    value = os.environ.get(name) or _in_keyring(name)
    remember(value)
    return value


def _in_keyring(name: str) -> str | None:
    if importlib.util.find_spec("keyring") is None:
        return None
    import keyring  # not needed, and used if it is there

    try:
        found = keyring.get_password(KEYRING_SERVICE, name)
    except Exception:  # there is no keyring on this machine, or it is locked
        return None
    return str(found) if found else None
