"""The notebooks as papermill runs them: to their ends, with results that stay and no widget."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb")))
def test_papermill_runs_it_to_its_end(name: str, tmp_path: Path) -> None:
    pytest.importorskip("papermill")
    executed = tmp_path / "executed.ipynb"
    command = [sys.executable, "-m", "papermill", "--no-progress-bar", "--cwd", str(tmp_path)]

    done = subprocess.run(
        [*command, str(NOTEBOOKS / f"{name}.ipynb"), str(executed)],
        env={**os.environ, "HOME": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    document = nbformat.read(executed, as_version=4)
    outputs = [output for cell in document.cells for output in cell.get("outputs", [])]
    kinds = {kind for output in outputs for kind in output.get("data", {})}
    assert "text/plain" in kinds
    assert "application/vnd.jupyter.widget-view+json" not in kinds
