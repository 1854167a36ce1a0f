"""Runs of these tests share an interpreter, but for those that look at processes from outside."""

from __future__ import annotations

import pytest

#: Modules whose runs start their processes as users' runs do.
AS_USERS_DO = {"test_faults", "test_left_behind", "test_storage", "test_without_redis"}


@pytest.fixture(autouse=True, scope="module")
def runtime(request: pytest.FixtureRequest) -> None:
    """Fork the functions of this module's runs from an interpreter that is loaded already."""
    if request.path.stem not in AS_USERS_DO:
        request.getfixturevalue("shared_runtime")
