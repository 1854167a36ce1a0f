"""The notebooks as `make demo` runs the quick start: headless, on the embedded default."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
import pytest

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
DATA_HOME = os.environ.get("MLLESS_DATA_HOME", "")


def execute(notebook: Path, tmp_path: Path, **env: str) -> tuple[subprocess.CompletedProcess[str], Any]:
    """Run ``notebook`` as the demo does; what it printed and the executed copy."""
    done = subprocess.run(
        [sys.executable, str(NOTEBOOKS / "run.py"), str(notebook), str(tmp_path / "out")],
        env={**os.environ, "HOME": str(tmp_path), **env},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    return done, nbformat.read(tmp_path / "out" / notebook.name, as_version=4)


def errors_of(document: Any) -> list[str]:
    return [out.evalue for cell in document.cells for out in cell.get("outputs", []) if out.output_type == "error"]


def held_out_rmse(text: str) -> float:
    found = re.search(r"held-out RMSE of the returned model: ([0-9.]+)", text)
    assert found is not None, text
    return float(found.group(1))


@pytest.mark.skipif(not (Path(DATA_HOME) / "ml-1m").is_dir(), reason="MLLESS_DATA_HOME holds no ml-1m; put it there")
def test_quickstart_on_movielens(tmp_path: Path) -> None:
    done, document = execute(NOTEBOOKS / "01_quickstart.ipynb", tmp_path)

    assert done.returncode == 0, done.stderr
    assert errors_of(document) == []
    assert held_out_rmse(done.stdout) <= 0.860
    assert str(tmp_path / "out" / "01_quickstart.ipynb") in done.stdout
    assert "first: starting" in done.stdout
    assert re.search(r"\d\.\d\d  \S.* \((19|20)\d\d\)", done.stdout), "ten films with their titles"
    # the dollars of the parts are those of the whole
    part = {name: float(usd) for name, usd in re.findall(r"^(\w+) +\$([0-9.]+)$", done.stdout, re.MULTILINE)}
    total = part.pop("total")
    assert 0 < total <= 0.10
    assert sum(part.values()) == pytest.approx(total, abs=1e-5)


@pytest.mark.long
def test_saved_notebook_keeps_a_picture_and_no_widget(tmp_path: Path) -> None:
    """Without the data and a network the notebook says so and goes on with generated ratings."""
    no_network = {
        "HTTPS_PROXY": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
        "NO_PROXY": "",
        "no_proxy": "",
    }
    done, document = execute(NOTEBOOKS / "01_quickstart.ipynb", tmp_path, MLLESS_DATA_HOME=str(tmp_path), **no_network)

    assert done.returncode == 0, done.stderr
    assert errors_of(document) == []
    assert "MovieLens-1M is not in" in done.stdout
    assert "synthetic" in done.stdout
    assert held_out_rmse(done.stdout) < 0.8
    kinds = {kind for cell in document.cells for out in cell.get("outputs", []) for kind in out.get("data", {})}
    assert "image/svg+xml" in kinds
    assert "application/vnd.jupyter.widget-view+json" not in kinds


@pytest.mark.long
def test_a_failed_cell_is_the_exit_code(tmp_path: Path) -> None:
    document = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("print('before')\n1 / 0")])
    nbformat.write(document, tmp_path / "broken.ipynb")

    done, executed = execute(tmp_path / "broken.ipynb", tmp_path)

    assert done.returncode == 1
    assert "before" in done.stdout
    assert "ZeroDivisionError: division by zero" in done.stderr
    assert errors_of(executed) == ["division by zero"]


def test_ctrl_c_stops_the_run_in_good_order(tmp_path: Path) -> None:
    cells = [
        "%load_ext mlless_nb\nfrom mlless_nb import PMF, SGD, datasets",
        "%%mlless --workers 2 --minibatch 500 --epochs 1000000\nmodel = PMF(rank=4)\n"
        "optimizer = SGD(learning_rate=1.0)\n"
        "data = datasets.synthetic_ratings(300, 200, 20_000, rank=3, seed=0)",
        "print(run.status, len(run.model.params))",
    ]
    notebook = tmp_path / "endless.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells]), notebook)
    command = [sys.executable, str(NOTEBOOKS / "run.py"), str(notebook), str(tmp_path / "out")]

    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        printed, is_sent = "", False
        for line in process.stdout:
            printed += line
            if not is_sent and re.match(r"run: running .* step [1-9]", line):
                is_sent = True
                process.send_signal(signal.SIGINT)

    assert process.returncode == 0
    assert "run: interrupted at step" in printed
    assert "stopped 8" in printed  # five arrays, what had training rows, and how many each item had


@pytest.mark.long
def test_the_designs_notebook_walks_through_all_of_them(tmp_path: Path) -> None:
    done, document = execute(NOTEBOOKS / "06_designs.ipynb", tmp_path)

    assert done.returncode == 0, done.stderr
    assert errors_of(document) == []
    assert "equal, bit for bit: True" in done.stdout
    for design in ("ADMM, 10 scans", "object storage, one leader", "SSP 3", "map-reduce", "events", "SVM: "):
        assert design in done.stdout
    shown = [(cell.source, out.data) for cell in document.cells for out in cell.get("outputs", []) if "data" in out]
    drawn = [source.splitlines()[0] for source, data in shown if "<svg" in data.get("text/html", "")]
    assert drawn == ["%mlless advise job", 'runs["events"].workflow()']
    figures = [data["application/vnd.plotly.v1+json"] for _, data in shown if "application/vnd.plotly.v1+json" in data]
    curves = {figure["layout"]["title"]["text"]: figure["data"] for figure in figures}
    assert list(curves) == ["Algorithms", "Protocols", "Stores and patterns", "Executions"]
    assert len(curves["Algorithms"]) == 3
    assert len(curves["Protocols"]) == 6
    assert {len(part["x"]) for part in curves["Stores and patterns"]} == {5}
    assert {len(part["x"]) for part in curves["Executions"]} == {3}


@pytest.mark.long
def test_come_back_outlives_its_kernel(tmp_path: Path) -> None:
    done, document = execute(NOTEBOOKS / "05_come_back.ipynb", tmp_path)

    assert done.returncode == 0, done.stderr
    assert errors_of(document) == []
    assert "the first kernel is alive: False" in done.stdout
    attached = re.search(r"^(\w+), step (\d+), \$[\d.]+ of \$0.02 after", done.stdout, re.MULTILINE)
    assert attached is not None, done.stdout
    assert attached[1] in ("starting", "running")
    assert "finished: " in done.stdout
    assert "the budget was $0.05" in done.stdout
    assert "the same from the file: True" in done.stdout
    best = [float(loss) for loss in re.findall(r"^(?:evening|morning): ([0-9.]+) for", done.stdout, re.MULTILINE)]
    assert best[1] <= best[0]


@pytest.mark.long
def test_own_data_is_answered_in_its_own_names(tmp_path: Path) -> None:
    done, document = execute(NOTEBOOKS / "07_own_data.ipynb", tmp_path)

    assert done.returncode == 0, done.stderr
    assert errors_of(document) == []
    assert "predicted stars" in done.stdout
    assert "the same model: True" in done.stdout
    assert "contract" in done.stdout
    assert "u999999" in done.stdout
    auc = re.search(r"^AUC +([0-9.]+)$", done.stdout, re.MULTILINE)
    assert auc is not None, done.stdout
    assert float(auc[1]) > 0.7


@pytest.mark.long
def test_the_exploration_notebook_finds_a_model_within_its_budget(tmp_path: Path) -> None:
    began = time.monotonic()
    done, document = execute(NOTEBOOKS / "03_exploration.ipynb", tmp_path)

    assert done.returncode == 0, done.stderr
    assert errors_of(document) == []
    found = re.search(r"held-out RMSE of the best model: ([0-9.]+)", done.stdout)
    spent = re.search(r"trials for \$([0-9.]+) of \$0.01", done.stdout)
    assert found is not None
    assert spent is not None
    assert float(found[1]) < 0.9
    assert 0 < float(spent[1]) <= 0.01
    assert "grid-4" in done.stdout
    assert re.search(r"^run +rates-", done.stdout, re.MULTILINE)
    kinds = {kind for cell in document.cells for out in cell.get("outputs", []) for kind in out.get("data", {})}
    assert "application/vnd.plotly.v1+json" in kinds
    assert "application/vnd.jupyter.widget-view+json" not in kinds
    print(f"the notebook took {time.monotonic() - began:.0f} s")


@pytest.mark.long
def test_the_protocols_notebook_sets_four_side_by_side(tmp_path: Path) -> None:
    done, document = execute(NOTEBOOKS / "02_protocols.ipynb", tmp_path)

    assert done.returncode == 0, done.stderr
    assert errors_of(document) == []
    lines = re.findall(
        r"^(bsp|isp|ssp|isp-over-ssp) +([0-9.]+) +([0-9.]+) +([0-9.]+) +[0-9.]+$", done.stdout, re.MULTILINE
    )
    published = {name: float(mb) for name, _, mb, _ in lines}
    losses = {name: float(loss) for name, _, _, loss in lines}
    assert set(published) == {"bsp", "isp", "ssp", "isp-over-ssp"}
    assert published["isp"] < published["bsp"] / 2
    assert losses["isp"] == pytest.approx(losses["bsp"], rel=0.02)
    assert re.search(r"^run +bsp", done.stdout, re.MULTILINE), "the comparison"


@pytest.mark.long
def test_the_clicks_notebook_is_better_than_the_share_alone(tmp_path: Path) -> None:
    done, document = execute(NOTEBOOKS / "04_clicks.ipynb", tmp_path)

    assert done.returncode == 0, done.stderr
    assert errors_of(document) == []
    found = {name: float(value) for name, value in re.findall(r"^([\w ]+?) +([0-9.]+)$", done.stdout, re.MULTILINE)}
    assert found["log loss"] < 0.95 * found["log loss of the share alone"]
    assert found["AUC"] > 0.7
    assert found["calibration error"] < 0.05
