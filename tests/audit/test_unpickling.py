"""The audit hook of the test run: it is there, in this process and in functions, and what it refuses is not run."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from audit import unpickling
from engine.jobs import finish, job

from mlless_nb import BSP, SGD, NumpyModel, datasets


class Trap:
    """A pickle that writes a file when it is opened."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.canary),)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hook writes here instead of where the test run looks in the end."""
    monkeypatch.setenv(unpickling.LOG, str(tmp_path / "log"))
    return tmp_path / "log"


def test_a_pickle_is_refused_and_told(tmp_path: Path, log: Path) -> None:
    trap = pickle.dumps(Trap(tmp_path / "canary"))
    with pytest.raises(RuntimeError, match=r"test_unpickling.py:\d+ unpickles \w+.mkdir"):
        pickle.loads(trap)
    np.save(tmp_path / "array.npy", np.array([Trap(tmp_path / "canary")], object), allow_pickle=True)
    with pytest.raises(RuntimeError, match=r"unpickles"):
        np.load(tmp_path / "array.npy", allow_pickle=True)
    assert not (tmp_path / "canary").exists()
    assert len(log.read_text().splitlines()) == 2
    with unpickling.on_purpose():
        pickle.loads(trap)
    assert (tmp_path / "canary").exists()


def test_other_processes_are_watched(tmp_path: Path, log: Path) -> None:
    trap = pickle.dumps(Trap(tmp_path / "canary"))
    code = f"import pickle; pickle.loads({trap!r})"
    ended = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    assert "<string>:1 unpickles" in log.read_text()
    assert not (tmp_path / "canary").exists()


class Opens:
    """A model whose loss opens a pickle where it is in a function."""

    def parameters(self, n_features, seed):  # type: ignore[no-untyped-def]
        """One weight for each feature."""
        return {"w": np.zeros(n_features)}

    def loss(self, params, X, y):  # type: ignore[no-untyped-def]
        """Half of the mean square."""
        import collections
        import os
        import pickle

        if os.environ["DRIVER"] != str(os.getpid()):
            pickle.loads(pickle.dumps(collections.OrderedDict()))
        return float(np.mean((X @ params["w"] - y) ** 2) / 2)

    def gradients(self, params, X, y):  # type: ignore[no-untyped-def]
        """The gradient of the loss."""
        return {"w": X.T @ (X @ params["w"] - y) / len(y)}


def test_functions_are_watched(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRIVER", str(os.getpid()))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    data = datasets.csr(X, X @ [1.0, 2.0, 3.0])
    run = finish(job(model=NumpyModel(Opens), data=data, optimizer=SGD(0.1), sync=BSP(), workers=1, minibatch=50))
    assert run.status == "failed"
    assert "unpickles collections.OrderedDict" in run.reason
    assert "unpickles collections.OrderedDict" in log.read_text()
