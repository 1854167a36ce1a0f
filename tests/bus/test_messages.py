"""What crosses a process: round trips, and everything that is not a message is refused."""

from __future__ import annotations

import dataclasses
import json
import pickle
import typing
from pathlib import Path
from typing import Any

import pytest
from audit import unpickling
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb.bus.messages import (
    KINDS,
    MAX_BYTES,
    Command,
    Ended,
    Failed,
    FromWorker,
    Invocation,
    Left,
    Message,
    Started,
    Update,
)
from mlless_nb.errors import DecodeError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a message's field."""
    inner = typing.get_args(hint)
    if hint is Any:
        return JSON
    if typing.get_origin(hint) is list:
        return st.lists(values(inner[0]), max_size=3)
    if typing.get_origin(hint) is dict:
        return st.dictionaries(st.text(max_size=3), values(inner[1]), max_size=3)
    if inner:
        return st.one_of([values(one) for one in inner])
    simple = {
        int: st.integers(),
        float: st.floats(allow_nan=False) | st.integers(-1000, 1000),
        str: st.text(max_size=8),
        bool: st.booleans(),
    }
    return simple.get(hint, st.none())


MESSAGES = st.sampled_from(list(KINDS.values())).flatmap(
    lambda kind: st.builds(kind, **{name: values(hint) for name, hint in typing.get_type_hints(kind).items()})
)
STARTED = {"kind": "Started", "slot": 3, "start_s": 0.25}


@given(MESSAGES)
def test_a_message_survives_the_journey(message: Message) -> None:
    assert Message.decode(message.encode()) == message
    assert type(message).decode(message.encode().decode()) == message


@given(MESSAGES, st.data())
def test_a_field_of_a_wrong_type_is_refused_and_named(message: Message, data: st.DataObject) -> None:
    entry = data.draw(st.sampled_from(dataclasses.fields(message)))
    fields = {"kind": type(message).__name__, **dataclasses.asdict(message)}
    # No field is a list of lists of lists.
    fields[entry.name] = [[[1]]]
    if "Any" in str(entry.type) and "list" in str(entry.type):
        fields[entry.name] = {"a": 1}
    with pytest.raises(DecodeError, match=entry.name):
        Message.decode(json.dumps(fields))


@given(JSON)
def test_json_that_is_no_message_is_refused(value: Any) -> None:
    with pytest.raises(DecodeError):
        Message.decode(json.dumps(value))


@given(st.binary(max_size=64))
def test_bytes_that_are_no_message_are_refused(body: bytes) -> None:
    with pytest.raises(DecodeError):
        Message.decode(body)


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "Nothing"},
        {"kind": "Message"},
        {"kind": "FromWorker"},
        {"kind": "__class__"},
        {"kind": ["Started"]},
        {"kind": {}},
        {"kind": None},
        {"slot": True},
        {"slot": 1.0},
        {"slot": "1"},
        {"slot": None},
        {"start_s": "soon"},
        {"start_s": [0.25]},
        {"more": 1},
        {"_check": 1},
        {"self": 1},
    ],
    ids=str,
)
def test_wrong_kinds_and_fields_are_refused(changes: dict[str, Any]) -> None:
    assert Message.decode(json.dumps(STARTED)) == Started(3, 0.25)
    with pytest.raises(DecodeError):
        Message.decode(json.dumps(STARTED | changes))


@pytest.mark.parametrize("missing", list(STARTED))
def test_a_missing_field_is_refused(missing: str) -> None:
    with pytest.raises(DecodeError):
        Message.decode(json.dumps({name: value for name, value in STARTED.items() if name != missing}))


@pytest.mark.parametrize(
    ("kind", "field", "junk"),
    [
        (Command, "slots", ["1"]),
        (Command, "slots", [True]),
        (Command, "slots", [[1]]),
        (Command, "slots", {"0": 1}),
        (Command, "nusd", 1.5),
        (Update, "rows", [[1.0, "x"]]),
        (Update, "rows", [1.0]),
        (Update, "rows", [[[1.0]]]),
        (Update, "done", {"id": 1}),
        (Update, "sentences", ["text"]),
        (Update, "state", []),
        (Ended, "costs_nusd", {"workers": 1.5}),
        (Ended, "costs_nusd", {"workers": None}),
        (Ended, "model_key", 3),
        (Invocation, "redis_urls", [None]),
        (Invocation, "redis_urls", "redis://one"),
        (Invocation, "validation", []),
        (Invocation, "manifest", None),
    ],
)
def test_junk_inside_a_field_is_refused(kind: type[Message], field: str, junk: Any) -> None:
    plain: dict[Any, Any] = {int: 1, float: 1.0, str: "x", bool: True}
    fields = {
        name: plain.get(
            hint, [] if typing.get_origin(hint) is list else {} if typing.get_origin(hint) is dict else None
        )
        for name, hint in typing.get_type_hints(kind).items()
    }
    assert isinstance(Message.decode(json.dumps({"kind": kind.__name__, **fields})), kind)
    with pytest.raises(DecodeError, match=f"{kind.__name__}.{field}"):
        Message.decode(json.dumps({"kind": kind.__name__, **fields, field: junk}))


def test_what_is_too_long_or_too_deep_is_refused() -> None:
    long = Failed(0, 1, 2, 3, "x" * MAX_BYTES).encode()
    with pytest.raises(DecodeError, match=f"{len(long)} bytes"):
        Message.decode(long)
    deep = '{"kind":"Update","state":' + '{"a":' * 100_000 + "1" + "}" * 100_001
    with pytest.raises(DecodeError):
        Message.decode(deep)
    with pytest.raises(DecodeError):
        Message.decode("[" * 200_000)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_refused_unopened(protocol: int, tmp_path: Path) -> None:
    trap = b"cos\nmkdir\n(S'" + str(tmp_path / "opened").encode() + b"'\ntR."
    for body in (pickle.dumps(STARTED, protocol), trap):
        with pytest.raises(DecodeError):
            Message.decode(body)
    assert not (tmp_path / "opened").exists()
    with unpickling.on_purpose():
        pickle.loads(trap)  # the trap is one
    assert (tmp_path / "opened").exists()


def test_every_message_can_be_decoded() -> None:
    def leaves(kind: type[Message]) -> list[type[Message]]:
        below = [leaf for each in kind.__subclasses__() for leaf in leaves(each)]
        return below or [kind]

    assert {kind.__name__: kind for kind in leaves(Message)}.items() <= KINDS.items()


def test_a_message_of_another_branch_is_refused() -> None:
    left = Left(1, 10, 5, 2, 0.5, 4.0, "finished", "done")
    assert FromWorker.decode(left.encode()) == left
    assert Left.decode(left.encode()) == left
    with pytest.raises(DecodeError, match="a Left where a Command was expected"):
        Command.decode(left.encode())
    with pytest.raises(DecodeError, match="Failed"):
        Failed.decode(left.encode())


def test_an_invocation_does_not_show_the_passwords_that_it_carries() -> None:
    fields = {entry.name: None for entry in dataclasses.fields(Invocation)}
    invocation = Invocation(**fields | {"redis_urls": ["redis://:hidden@a"], "bus_url": "amqp://me:hidden@b"})  # type: ignore[arg-type]
    assert "hidden" not in repr(invocation)
