"""Invocations on AWS Lambda that are not accepted: told with the cause, within the deadline."""

from __future__ import annotations

import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from mlless_nb.driver.backends import deliveries
from mlless_nb.driver.backends.deliveries import Deliveries
from mlless_nb.errors import ServiceError


class Session:
    """Answers with one of ``answers`` after the other: a status and a text, or an exception; the last one again."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.n_sent = list(answers), 0

    def send(self, request: Any) -> Any:
        answer = self.answers[min(self.n_sent, len(self.answers) - 1)]
        self.n_sent += 1
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(status_code=answer[0], text=answer[1], headers={})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliveries, "PAUSE_S", 0.001)


def test_accepted_invocations_are_waited_for() -> None:
    session = Session((202, ""))
    sent = Deliveries(session)
    sent.begin()
    threads = [threading.Thread(target=sent.send, args=("request",)) for _ in range(3)]
    for thread in threads:
        thread.start()
    sent.wait(3)
    assert session.n_sent == 3


def test_what_is_lost_on_the_way_or_comes_too_early_is_sent_again() -> None:
    session = Session(OSError("reset"), (429, "Rate exceeded"), (502, ""), (202, ""))
    sent = Deliveries(session)
    assert sent.send("request").status_code == 202
    sent.wait(1)
    assert session.n_sent == 4


@pytest.mark.parametrize(
    ("status", "said", "remedy"),
    [
        (403, "User: x is not authorized to perform: lambda:InvokeFunction", "`mlless-nb policy aws` prints"),
        (404, "Function not found: arn:aws:lambda:x", "`mlless-nb deploy aws` deploys it again"),
    ],
)
def test_a_refusal_is_told_with_its_remedy(status: int, said: str, remedy: str) -> None:
    sent = Deliveries(Session((status, json.dumps({"Message": said}))))
    assert sent.send("request").status_code == status
    with pytest.raises(ServiceError, match=rf"^AWS Lambda accepted 0 of 1: {status}: {said}: {remedy}"):
        sent.wait(1)
    sent.begin()
    sent.wait(0)


def test_an_unreachable_cloud_is_told_within_the_deadline() -> None:
    sent = Deliveries(Session(OSError("no route to host")), patience_s=0.05)
    assert sent.send("request").status_code == 599
    with pytest.raises(ServiceError, match="accepted 0 of 1: no answer: no route to host"):
        sent.wait(1)
