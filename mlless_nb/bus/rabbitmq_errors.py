"""pika's errors as ours: whether the broker refuses permanently, and the message for the user."""

from __future__ import annotations

import pika

from ..errors import ServiceError


def is_refusal(error: BaseException) -> bool:
    """Whether the broker answers and refuses permanently."""
    if isinstance(error, pika.exceptions.AuthenticationError | pika.exceptions.ProbableAuthenticationError):
        return True
    if isinstance(error, pika.exceptions.ProbableAccessDeniedError):
        return True
    # 403 access refused, 406 a queue of this name has other properties (another ttl_s)
    return isinstance(error, pika.exceptions.ChannelClosedByBroker) and error.reply_code in (403, 406)


def refusal_of(error: BaseException, shown: str) -> ServiceError | None:
    """The error to raise if the broker refuses permanently, else None."""
    return service_error(error, shown) if is_refusal(error) else None


def service_error(error: BaseException, shown: str) -> ServiceError:
    """The error to raise for pika's ``error``; ``shown`` is the broker's URL with the password masked."""
    if isinstance(error, pika.exceptions.ProbableAuthenticationError | pika.exceptions.AuthenticationError):
        return ServiceError(f"the control bus at {shown} refuses the user or the password")
    if isinstance(error, pika.exceptions.ProbableAccessDeniedError):
        return ServiceError(f"the control bus at {shown} refuses the user this virtual host")
    if is_refusal(error):
        return ServiceError(f"the control bus at {shown} refuses: {first_cause(error)}")
    return ServiceError(f"the control bus at {shown} does not answer: {first_cause(error)}")


def first_cause(error: BaseException | None) -> str:
    """The innermost reason of one of pika's nested errors, in one line."""
    inner: list[BaseException | None] = [error]
    while inner:
        error = inner[-1]
        wrapped = [one] if (one := getattr(error, "exception", None)) is not None else ()
        parts = getattr(error, "exceptions", None) or wrapped or getattr(error, "args", None) or ()
        inner = [part for part in parts if isinstance(part, BaseException)]
    return (str(error).strip() or type(error).__name__).splitlines()[0]
