"""The user's ids: numbered in ascending order, answered with, and kept in a model's file."""

from __future__ import annotations

import uuid
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mlless_nb.errors import DataError
from mlless_nb.frames.ids import INTEGERS, TEXTS, UUIDS, Ids, IdsBuilder, coded


def built(*parts: Any, parse_integers: bool = False) -> tuple[Ids, list[int]]:
    builder = IdsBuilder("user")
    for part in parts:
        builder.add(coded("user", np.asarray(part)))
    ids, numbers = builder.built(parse_integers=parse_integers)
    return ids, numbers.tolist()


def test_ids_are_numbered_in_ascending_order_however_they_come() -> None:
    ids, numbers = built(["u9", "u1"], ["u10", "u9"])
    assert (ids[[0, 1, 2]].tolist(), numbers) == (["u1", "u10", "u9"], [2, 0, 1, 2])
    assert built([5, -3, 2**62], [5])[1] == [1, 0, 2, 1]


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1), min_size=1))
@example([[0, -(2**63)]])
@example([[2**63 - 1, -2]])
def test_numbers_stand_for_the_integers(parts: list[list[int]]) -> None:
    ids, numbers = built(*(np.array(part, np.int64) for part in parts))
    assert [ids[number] for number in numbers] == [value for part in parts for value in part]
    assert Ids.from_arrays("names.users", ids.to_arrays("names.users")) == ids


@given(st.lists(st.lists(st.text(), min_size=1), min_size=1))
def test_numbers_stand_for_the_texts(parts: list[list[str]]) -> None:
    ids, numbers = built(*(np.array([*part, None], object)[:-1] for part in parts))
    assert [ids[number] for number in numbers] == [value for part in parts for value in part]
    assert ids.numbers("user", [value for part in parts for value in part]).tolist() == numbers
    assert Ids.from_arrays("names.users", ids.to_arrays("names.users")) == ids


def test_uuids_are_answered_as_uuids_and_found_as_texts_too() -> None:
    one, two = uuid.UUID(int=1), uuid.UUID(int=2)
    ids, numbers = built(np.array([two, one], object))
    assert (ids.kind, ids[0], numbers) == (UUIDS, one, [1, 0])
    assert ids.numbers("user", [str(two), one]).tolist() == [1, 0]
    assert Ids.from_arrays("x", ids.to_arrays("x")) == ids


def test_whole_numbers_of_a_text_file_are_integers_and_others_stay_texts() -> None:
    ids, numbers = built(["10", "-2", "9"], parse_integers=True)
    assert (ids.kind, ids[[0, 1, 2]].tolist(), numbers) == (INTEGERS, [-2, 9, 10], [2, 0, 1])
    assert built(["007", "7"], parse_integers=True)[0].kind == TEXTS


def test_whole_floats_are_integers() -> None:
    assert built(np.array([3.0, 1.0]))[1] == [1, 0]
    assert built([3, 1])[0].numbers("user", [3.0]).tolist() == [1]


@pytest.mark.parametrize(
    ("ids", "asked", "shown"),
    [
        (["a", "b"], "c", "'c'"),
        (["a", "b"], 7, "7"),
        ([1, 5], 3, "3"),
        ([1, 5], "1", "'1'"),
        ([1, 5], None, "None"),
        ([-5, 5], 2**64 - 5, "18446744073709551611"),  # the same 64 bits as -5
        ([-(2**63), 5], 1e300, r"1e\+300"),
    ],
)
def test_an_unknown_id_is_named_with_an_example(ids: Any, asked: Any, shown: str) -> None:
    known = built(ids)[0]
    with pytest.raises(DataError, match=rf"user={shown}: must be one of the 2 ids .*\({known.example}\)"):
        known.numbers("user", asked)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (np.array([1.5]), "user=1.5: must be a whole number, text or a UUID"),
        (np.array([1, "a"], object), "all of one kind"),
        (np.array([b"a"], object), r"user=b'a': must be integers, text or UUIDs, all of one kind; .astype\(str\)"),
        (np.array([2**63], np.uint64), "must be an integer below"),
        (np.array([1j]), "array of type complex128"),
    ],
)
def test_what_can_be_no_id_is_named(values: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        coded("user", values)


def test_ids_of_two_kinds_are_refused() -> None:
    with pytest.raises(DataError, match="user='integers and text': must be ids of one kind"):
        built([1, 2], ["a"])


@pytest.mark.parametrize(
    "arrays",
    [
        {"x.integers": np.array([2, 1])},
        {"x.integers": np.array([1, 1])},
        {"x.integers": np.array([1.0, 2.0])},
        {"x.text": np.frombuffer(b"ab", np.uint8)},
        {"x.text": np.frombuffer(b"ab", np.uint8), "x.ends": np.array([1])},
        {"x.text": np.frombuffer(b"ab", np.uint8), "x.ends": np.array([3, 2])},
        {"x.text": np.frombuffer(b"ba", np.uint8), "x.ends": np.array([1, 2])},
        {"x.text": np.frombuffer("é".encode(), np.uint8), "x.ends": np.array([1, 2])},
        {"x.uuid": np.frombuffer(b"ab", np.uint8), "x.ends": np.array([1, 2])},
    ],
)
def test_damaged_arrays_are_refused(arrays: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"x must be|badly formed|decode"):
        Ids.from_arrays("x", arrays)
