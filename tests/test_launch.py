"""The launcher: the functions' interpreter is never a file that another user may have made."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mlless_nb import launch
from mlless_nb.errors import ServiceError


def test_an_interpreter_of_another_user_in_a_shared_folder_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "not a folder").touch()
    monkeypatch.setattr(launch.platformdirs, "user_cache_path", lambda _: tmp_path / "not a folder")
    monkeypatch.setattr(launch.tempfile, "gettempdir", lambda: str(tmp_path))
    interpreter = Path(launch._interpreter())
    assert interpreter.parent == tmp_path / f"mlless-{os.getuid()}"
    monkeypatch.setattr(launch, "_is_ours", lambda path: path != interpreter)
    with pytest.raises(ServiceError, match="XDG_CACHE_HOME"):
        launch._interpreter()
