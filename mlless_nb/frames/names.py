"""What a data set keeps of the user's ids and columns, and the model that was trained on it answers in."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.typing import NDArray

from .coding import TableCoding
from .ids import Ids

#: The names of arrays that belong to the names, in a model's file.
PREFIX = "names."


@dataclass(frozen=True)
class RatingNames:
    """The ids of users and items.

    Attributes
    ----------
    users, items : Ids
    """

    users: Ids
    items: Ids
    kind: ClassVar[str] = "ratings"

    @property
    def shape(self) -> tuple[int, ...]:
        """(n_users, n_items)."""
        return len(self.users), len(self.items)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The names as arrays, for a model's file."""
        return {**self.users.to_arrays(f"{PREFIX}users"), **self.items.to_arrays(f"{PREFIX}items")}


@dataclass(frozen=True)
class TableNames:
    """The columns of a table, and its labels.

    Attributes
    ----------
    coding : TableCoding
    classes : Ids or None
        The labels, if they are not numbers: a label's number is what is trained on.
    """

    coding: TableCoding
    classes: Ids | None = None
    kind: ClassVar[str] = "csr"

    @property
    def shape(self) -> tuple[int, ...]:
        """(n_features,)."""
        return (self.coding.n_features,)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The names as arrays, for a model's file."""
        classes = {} if self.classes is None else self.classes.to_arrays(f"{PREFIX}classes")
        return {f"{PREFIX}columns": self.coding.to_array(), **classes}


Names = RatingNames | TableNames


def digest_of(names: Names | None) -> str | None:
    """SHA-256 (hex) of names; None for None."""
    if names is None:
        return None
    sha = hashlib.sha256()
    for name, array in names.to_arrays().items():
        sha.update(f"{name} {array.size} ".encode())
        sha.update(array.tobytes())
    return sha.hexdigest()


def names_of(arrays: dict[str, NDArray[Any]]) -> Names | None:
    """The names that `to_arrays` wrote; None without any. ValueError if they are invalid."""
    columns = arrays.get(f"{PREFIX}columns")
    users, items = (Ids.from_arrays(f"{PREFIX}{name}", arrays) for name in ("users", "items"))
    if columns is not None:
        return TableNames(TableCoding.from_array(columns), Ids.from_arrays(f"{PREFIX}classes", arrays))
    if users is not None and items is not None:
        return RatingNames(users, items)
    if arrays:
        raise ValueError(f"names must be whole; there are {', '.join(arrays)}")
    return None
