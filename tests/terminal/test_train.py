"""``mlless-nb train`` as a user has it: a process of its own, in a folder with a file."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mlless_nb.errors import ServiceError
from mlless_nb.models import load_model
from mlless_nb.terminal import command, train

CONFIG = """
model     = "PMF(rank=4)"
optimizer = "SGD(learning_rate=1.0)"
data      = "synthetic_ratings(300, 200, 20000, rank=3)"
workers   = 2
minibatch = 500
scale_in  = "off"
"""


def words(tmp_path: Path, *options: str) -> list[str]:
    (tmp_path / "first.toml").write_text(CONFIG)
    return [sys.executable, "-m", "mlless_nb", "train", "first.toml", *options]


def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}


def run(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words(tmp_path, *options),
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def test_it_trains_shows_lines_and_saves_the_model(tmp_path: Path) -> None:
    done = run(tmp_path, "--set", "epochs=3", "--save", "model.npz")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("first: starting · 2 workers")
    assert "Traceback" not in done.stderr
    assert "first: finished. All 3 epochs are done" in done.stdout
    assert "the model is in model.npz" in done.stdout
    assert load_model(tmp_path / "model.npz").params["user_factors"].shape == (300, 4)


@pytest.mark.long
def test_a_budget_that_ends_it_before_its_target_is_an_exit_status(tmp_path: Path) -> None:
    done = run(tmp_path, "--set", "budget=0.0006", "--set", "target=0.01")
    assert done.returncode == train.CAPPED, done.stderr
    assert "first: budget reached" in done.stdout
    assert run(tmp_path, "--set", "budget=0.0006").returncode == train.FINISHED


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_stops_it_in_good_order_and_keeps_the_model(tmp_path: Path, how: signal.Signals) -> None:
    with subprocess.Popen(
        words(tmp_path, "--set", "epochs=1000000", "--save", "model.npz"),
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        said = ""
        for line in process.stderr:
            said += line
            if "RMSE" in line and "interrupted" not in said:
                process.send_signal(how)
                break
        said += process.stderr.read()
        printed = process.stdout.read()
    assert process.returncode == train.INTERRUPTED, said
    assert "first: interrupted; it ends in good order" in said
    assert "Traceback" not in said
    assert "first: stopped" in printed
    assert load_model(tmp_path / "model.npz").params["user_factors"].shape == (300, 4)


class TestWithoutARun:
    """In this process; nothing is started."""

    @pytest.fixture
    def call(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(signal, "signal", lambda *_: None)
        monkeypatch.setattr("warnings.showwarning", lambda *_: None)
        (tmp_path / "first.toml").write_text(CONFIG)

        def call(*options: str) -> tuple[int, str, str]:
            status = command.main(["train", "first.toml", *options])
            said = capsys.readouterr()
            return status, said.out, said.err

        return call

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            (("--set", "workers=0"), "--set workers: workers=0: must be"),
            (("--set", "target=99"), "stop.target=99: must be below"),
            (("--set", "budget=1e-7"), "budget=1e-07: must be at least"),
            (("--save", "none/model.npz"), "--save='none/model.npz': must be a file in a folder that exists"),
            (("--save", "m" * 300), "must be a file in a folder that exists and can be written"),
            (("--resume", "never", "--dry-run"), "never"),
        ],
    )
    def test_bad_input_is_one_line_and_status_2(self, call: Any, options: tuple[str, ...], says: str) -> None:
        status, printed, said = call(*options)
        assert (status, printed) == (train.BAD_INPUT, "")
        assert says in said
        assert said.count("\n") == 1

    def test_a_model_that_cannot_be_written_is_one_line_and_where_it_is(
        self, call: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("mlless_nb.models.fitted.write_arrays", full)
        status, printed, said = call("--set", "epochs=1", "--save", "model.npz")
        assert status == train.FAILED
        assert "mlless_nb.attach('first').model has the model" in printed
        assert said.splitlines()[-1] == "--save model.npz: the model could not be written (No space left on device)"

    def test_a_missing_service_is_status_1(self, call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        status, _, said = call("--set", "redis=redis://127.0.0.1:1/0")
        assert status in (train.FAILED, train.BAD_INPUT)
        assert "127.0.0.1:1" in said
        assert said.count("\n") == 1

    def test_a_dry_run_says_what_it_would_take(self, call: Any) -> None:
        status, printed, said = call("--dry-run", "--set", "epochs=3")
        assert (status, said) == (0, "")
        assert printed.startswith("dry run, nothing was started: PMF rank 4 · generated ratings")
        assert "\nabout $" in printed
        assert "this machine" in printed

    def test_a_wrong_option_is_one_line(self, call: Any, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            call("--wrong")
        assert caught.value.code == train.BAD_INPUT
        assert capsys.readouterr().err.count("\n") == 1

    def test_help_lists_the_subcommands_as_they_are_met(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            command.main(["--help"])
        assert caught.value.code == 0
        told = capsys.readouterr().out
        listed = ["train", "stop", "runs", "spend", "policy", "deploy", "doctor", "verify", "remove", "runtime"]
        assert re.findall(r"^    (\w+) ", told, re.MULTILINE) == listed
        assert " | ".join(listed) in told

    def test_far_too_many_workers_are_one_line_before_anything_is_started(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def start(job: Any, resume: str | None) -> Any:
            said.append(capsys.readouterr().err)
            raise ServiceError("not today")

        said: list[str] = []
        monkeypatch.setattr("warnings.showwarning", lambda *_: None)
        monkeypatch.setattr("mlless_nb.driver.runs.train", start)
        (tmp_path / "first.toml").write_text(CONFIG)
        for workers in (20, 2):
            assert command.main(["train", str(tmp_path / "first.toml"), "--set", f"workers={workers}"]) == train.FAILED
        many, few = said
        assert re.fullmatch(r"warning: workers=20: \d workers? would be quicker and cheaper .*\n", many)
        assert "warning" not in few
