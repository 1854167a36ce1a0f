"""The end of a function whose requests have used up what is reserved."""

from __future__ import annotations

import os

import pytest

from mlless_nb.money import Rates, price_profile
from mlless_nb.money.budget import Prepaid
from mlless_nb.money.request_gate import LAST_CALL_PUTS, RequestGate


def test_a_request_beyond_what_is_reserved_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    class Exited(BaseException):
        pass

    def leave(code: int) -> None:
        raise Exited(code)

    def last_call() -> None:
        calls.append(spent[0])
        spent[0] = 150_000 - start
        gate()  # its own requests are made

    calls: list[int] = []
    monkeypatch.setattr(os, "_exit", leave)
    rates, spent = Rates(price_profile("aws-lambda-x86"), 512), [0]
    prepaid = Prepaid(rates, 100_000, lambda: 0.0, lambda: spent[0], margin_nusd=50_000)
    start, kept = prepaid.spent_nusd, rates.requests_nusd(0, LAST_CALL_PUTS)
    gate = RequestGate(prepaid, last_call)
    assert prepaid.rest_nusd(start) == 150_000 - start
    for spent[0] in (100_000, 150_000 - start - kept):
        gate()
    assert calls == []
    first = 150_000 - start - kept + 1
    gate.call()  # the watch does, and the function goes on
    assert calls == [150_000 - start - kept]
    spent[0] = first
    with pytest.raises(Exited):
        gate()
    assert calls == [first - 1, first]
    spent[0] += 1
    with pytest.raises(Exited):
        gate()
    assert len(calls) == 2
    prepaid.learn(None, 0)
    gate()  # nothing is to be kept
    prepaid.learn(1_000_000, 0)
    prepaid.end()
    gate()  # the last requests are on the bill in advance
    assert len(calls) == 2
