"""Invocations of functions on AWS Lambda: each is accepted within some seconds, or the launch fails with the cause.

Lithops sends them in threads that nobody asks for results, and repeats for ever what gets no answer. It sends through a
session of botocore's, and this one takes its place.
"""

from __future__ import annotations

import re
import threading
import time
from typing import Any

from ...errors import ServiceError
from ...remedies import POLICY

#: Longest wait for AWS to accept an invocation, for a connection and for an answer, seconds.
DELIVERY_S, CONNECT_S, ANSWER_S = 20.0, 5.0, 10.0
#: Pause between two tries, seconds.
PAUSE_S = 0.2
#: What AWS answers to an accepted invocation.
ACCEPTED = 202
#: Of an answer that is repeated: too many requests, and the service's own failures.
BUSY = 429
#: What to do about a refusal, by its status.
REMEDIES = {
    403: POLICY,
    404: "`mlless-nb deploy aws` deploys it again",
}
_MESSAGE = re.compile(r'"[mM]essage"\s*:\s*"([^"]{1,300})')


class Unanswered:
    """What Lithops gets for an invocation that AWS has not answered."""

    status_code = 599

    def __init__(self, text: str) -> None:
        self.text = text


class Deliveries:
    """A session as `lithops` uses it on AWS Lambda, which counts.

    Parameters
    ----------
    session : botocore.httpsession.URLLib3Session
        What sends.
    patience_s : float
        Until when an invocation is repeated.
    """

    def __init__(self, session: Any, patience_s: float = DELIVERY_S) -> None:
        self._session, self._patience_s = session, patience_s
        self._changed = threading.Condition()
        self._n_done, self._refusals = 0, list[str]()

    def send(self, request: Any) -> Any:
        """Send one invocation; an answer in any case."""
        give_up_at = time.monotonic() + self._patience_s
        while True:
            try:
                answer = self._session.send(request)
                why = "" if answer.status_code == ACCEPTED else _refusal(answer.status_code, answer.text)
                is_final = answer.status_code != BUSY and answer.status_code < 500
            except Exception as error:
                why, is_final = f"no answer: {error}", False
                answer = Unanswered(why)
            if not why or is_final or time.monotonic() > give_up_at:
                with self._changed:
                    self._n_done += 1
                    self._refusals += [why] if why else []
                    self._changed.notify_all()
                return answer
            time.sleep(PAUSE_S)

    def begin(self) -> None:
        """Count from here on."""
        with self._changed:
            self._n_done = 0
            self._refusals.clear()

    def wait(self, n: int) -> None:
        """Wait until ``n`` invocations have an answer.

        Raises
        ------
        ServiceError
            If one was refused, or there is no answer.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._n_done >= n, self._patience_s + CONNECT_S + ANSWER_S):
                self._refusals.append("no answer")
            if self._refusals:
                raise ServiceError(f"AWS Lambda accepted {n - len(self._refusals)} of {n}: {self._refusals[0]}")


def _refusal(status: int, text: str) -> str:
    """An answer of AWS in one line: its status, its message and what to do."""
    found = _MESSAGE.search(text)
    said = found[1] if found else " ".join(text.split())[:300]
    return ": ".join(filter(None, [str(status), said, REMEDIES.get(status)]))


def deliveries_of(executor: Any) -> Deliveries | None:
    """Put one in the place of the session of ``executor``; None on backends without such a session."""
    handler = getattr(executor.compute_handler, "backend", None) or executor.compute_handler
    if getattr(handler, "name", "") != "aws_lambda" or not hasattr(handler, "session"):
        return None
    from botocore.httpsession import URLLib3Session

    made = Deliveries(URLLib3Session(timeout=(CONNECT_S, ANSWER_S)))
    handler.session = made
    return made
