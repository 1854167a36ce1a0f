"""Loading and unloading the magics, their help and completion, and their public names."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell

import mlless_nb
from mlless_nb.magics import completion, load_ipython_extension, unload_ipython_extension
from mlless_nb.tracking import RunLedger, TrackedRun


class TestExtension:
    def test_loading_twice_and_unloading(self, stage: Any) -> None:
        InteractiveShell.clear_instance()
        shell = InteractiveShell.instance()
        try:
            before = len(shell.Completer.custom_matchers)
            load_ipython_extension(shell)
            load_ipython_extension(shell)
            assert len(shell.Completer.custom_matchers) == before + 1
            unload_ipython_extension(shell)
            unload_ipython_extension(shell)
            assert len(shell.Completer.custom_matchers) == before
            assert shell.find_line_magic("mlless") is None
            assert shell.find_cell_magic("mlless") is None
        finally:
            InteractiveShell.clear_instance()

    def test_stays_loaded_while_a_run_is_live(self, shell: InteractiveShell, stage: Any) -> None:
        stage.add("first")
        with pytest.raises(UsageError, match=r"first \(\$0.01250 so far\) is live; %mlless stop first"):
            unload_ipython_extension(shell)
        assert shell.find_cell_magic("mlless") is not None

    def test_load_ext_by_the_packages_name(self, stage: Any) -> None:
        InteractiveShell.clear_instance()
        shell = InteractiveShell.instance()
        try:
            shell.run_line_magic("load_ext", "mlless_nb")
            assert shell.find_cell_magic("mlless") is not None
            shell.run_line_magic("unload_ext", "mlless_nb")
            assert shell.find_cell_magic("mlless") is None
        finally:
            InteractiveShell.clear_instance()

    def test_help_lists_options_and_commands(self, shell: InteractiveShell) -> None:
        text = shell.find_cell_magic("mlless").__doc__
        for word in ("--budget USD", "--on-interrupt", "%mlless scale_in", "US dollars"):
            assert word in text


@pytest.mark.parametrize(
    ("line", "offers"),
    [
        ("%%mlless --bud", {"--budget"}),
        ("%%mlless --budget 1 --bu", {"--bus"}),
        ("%%mlless --workers 4 --e", {"--epochs", "--eval-every"}),
        ("%%mlless --resume fi", {"first"}),
        ("%mlless sta", {"status"}),
        ("%mlless stop fi", {"first"}),
        ("mlless --bud", set()),
        ("%mlless runs fi", set()),
        ("%mlless tune o", {"on", "off"}),
        ("%mlless tune on fi", {"first"}),
        ("%mlless tune on o", set()),
        ("%mlless attach la", {"lasting"}),
        ("%mlless compare first la", {"lasting"}),
        ("%mlless forget la", {"lasting"}),
        ("%%mlless --resume la", {"lasting"}),
        ("%mlless stop la", set()),
        ("%mlless stop ra", {"rates"}),
        ("%mlless status ra", {"rates"}),
        ("%mlless tune ra", set()),
    ],
)
@pytest.mark.filterwarnings("ignore:`Completer.complete`:PendingDeprecationWarning")
def test_completion(
    shell: InteractiveShell,
    stage: Any,
    line: str,
    offers: set[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(completion, "sweeps", lambda: [SimpleNamespace(name="rates")])
    RunLedger().begin(TrackedRun("id-1", "lasting", 1.0, status="finished"))  # of another kernel
    stage.add("first")
    shell.Completer.use_jedi = False
    _, found = shell.Completer.complete(line_buffer=line, cursor_pos=len(line))
    known = {"--budget", "--bus", "status", "first", "lasting", "rates", "on", "off"}
    ours = {word.lstrip("%") for word in found} & {*offers, *known}
    assert ours == offers


def test_completion_goes_on_without_the_list_of_runs(
    shell: InteractiveShell, stage: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    (tmp_path / "file").write_text("no folder")
    stage.add("first")
    assert completion.candidates(["%mlless", "attach", ""]) == ["first"]


def test_public_face_of_the_magics() -> None:
    assert mlless_nb.magics.__all__ == ["load_ipython_extension", "unload_ipython_extension"]
