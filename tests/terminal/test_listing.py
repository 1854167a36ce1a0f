"""``mlless-nb runs`` and ``spend``, in a user's folder of their own."""

from __future__ import annotations

import pytest

import mlless_nb
from mlless_nb.terminal import command


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two runs that have ended."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
    ratings = mlless_nb.datasets.synthetic_ratings(60, 40, 900, rank=2)
    for name in ("one", "two"):
        job = mlless_nb.TrainingJob(
            mlless_nb.PMF(rank=2), data=ratings, workers=1, stop=mlless_nb.Stop(steps=3), name=name
        )
        assert mlless_nb.train(job).wait(120) == "finished"
    return ["one", "two"]


def test_runs_and_what_they_have_cost_are_listed(names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["runs"]) == 0
    every = capsys.readouterr().out
    assert all(f"\n{name} " in every for name in names)
    assert command.main(["runs", "1"]) == 0
    newest = capsys.readouterr().out
    assert "\ntwo " in newest
    assert "\none " not in newest
    assert command.main(["spend"]) == 0
    total = capsys.readouterr().out.splitlines()[-1].split()
    assert total[:2] == ["total", "2"]


def test_a_wrong_number_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["runs", "0"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
