"""The end of a run in what nbconvert makes of a notebook: there is no kernel, and nothing is missing."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

CELLS = [
    "%load_ext mlless_nb\nfrom mlless_nb import PMF, SGD, datasets\n"
    "ratings = datasets.synthetic_ratings(300, 200, 20_000, rank=3, seed=0)",
    "%%mlless --workers 2 --minibatch 500 --epochs 3 --name first\nmodel = PMF(rank=4)\n"
    "optimizer = SGD(learning_rate=1.0)\ndata = ratings",
    "%%mlless --dry-run --epochs 3\nmodel = PMF(rank=4)\ndata = ratings",
    "first",
    "from mlless_nb import TrainingJob\nTrainingJob(model=PMF(rank=4), data=ratings, workers=0)",
]


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A notebook after its cells were run, the last of which is wrong."""
    from nbclient import NotebookClient

    folder: Path = tmp_path_factory.mktemp("exported")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        patch.delenv("MLLESS_PROGRESS", raising=False)
        NotebookClient(
            notebook, timeout=300, allow_errors=True, resources={"metadata": {"path": str(folder)}}
        ).execute()
    return notebook


@pytest.mark.long
def test_html_has_the_end_of_the_run_as_pictures_and_text(executed: Any) -> None:
    from nbconvert import HTMLExporter

    html, _ = HTMLExporter().from_notebook_node(executed)
    cards = html.count("All 3 epochs are done")
    assert cards >= 2, "the run's own cell, and the cell that shows its handle"
    pictures = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', html)
    assert len(pictures) == 6
    assert all(base64.b64decode(picture).startswith(b"<svg") for picture in pictures)
    assert "application/vnd.jupyter.widget-view+json" not in html
    assert "Expected: about $" in html
    assert "dry run, nothing was started" in html
    assert "JobError in cell In[5], line 2: workers=0: must be" in re.sub(r"<[^>]+>", "", html)
    assert "Traceback" not in html


@pytest.mark.long
@pytest.mark.parametrize("name", ["MarkdownExporter", "ScriptExporter", "RSTExporter"])
def test_other_forms_are_made_too(executed: Any, name: str) -> None:
    import nbconvert

    exporter = getattr(nbconvert, name)
    try:
        text, _ = exporter().from_notebook_node(executed)
    except nbconvert.utils.pandoc.PandocMissing:
        pytest.skip("pandoc is not installed")
    assert "first" in text
