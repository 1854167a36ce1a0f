"""Lithops' folder on this machine: each Unix user has one, also where ``USER`` is missing or another one's."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from mlless_nb import unix_user
from mlless_nb.driver.backends import lithops_paths
from mlless_nb.errors import ServiceError

FOLDER = "import mlless_nb, lithops.constants as known, os; print(known.LITHOPS_TEMP_DIR, os.environ['USER'])"


def own_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


@pytest.mark.parametrize("user", [None, "", "another", "unknown to the system"])
def test_the_folder_has_the_name_of_the_user_of_the_process(tmp_path: Path, user: str | None) -> None:
    if user == "another":
        user = next(each.pw_name for each in pwd.getpwall() if each.pw_uid != os.getuid())
    env = {name: value for name, value in os.environ.items() if name != "USER"} | {"TMPDIR": str(tmp_path)}
    if user is not None:
        env["USER"] = user
    done = subprocess.run(
        [sys.executable, "-c", FOLDER], env=env, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    )
    name = user if user == "unknown to the system" else own_name()
    assert done.stdout.strip() == f"{tmp_path.resolve()}/lithops-{name} {name}"


def test_a_user_without_a_name_goes_by_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "lithops", raising=False)
    monkeypatch.setenv("USER", pwd.getpwuid(0).pw_name)
    monkeypatch.setattr(unix_user.os, "getuid", lambda: 4_000_000_123)
    unix_user.set_user()
    assert os.environ["USER"] == "4000000123"


def test_a_folder_of_another_user_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lithops.constants.LITHOPS_TEMP_DIR", str(tmp_path))
    assert lithops_paths.keep_private() == str(tmp_path)
    monkeypatch.setattr(lithops_paths.os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
    with pytest.raises(ServiceError, match=rf"{tmp_path} .* another user: set TMPDIR"):
        lithops_paths.keep_private()
