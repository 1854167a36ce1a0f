"""The README and docs/how-fast.md quote no figure that benchmarks/RESULTS.md does not have."""

from __future__ import annotations

import csv
import importlib.util
import math
import random
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"
#: Characters in a rendered line, lines that a picture takes, and lines of two screens.
WIDTH, PICTURE, TWO_SCREENS = 110, 20, 100
#: What a template may say in figures of its own: settings, that is, and not what was measured.
SETTINGS = re.compile(
    r"\{\{[^{}]*\}\}|`[^`]*`|ISP\([\d.]+\)|P=\d+|\(\d+ to \d+\)|MovieLens-\d+M|held-out (?:RMSE|log loss) \|.*"
    r"|[\d,]+ (?:rows|epochs|clicks|Mbit/s|workers?|process(?:es)?|threads?)\b|log loss of 0\.50|1/time x 1/price"
    r"|with 24\b|^\| \$[\d.]+|held-out RMSE of 0\.(?:86|93)\b|what \$0\.004 buys",
    re.MULTILINE,
)


def loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def readme() -> ModuleType:
    return loaded("readme")


def test_the_pages_quote_the_results(readme: ModuleType) -> None:
    results = readme.RESULTS.read_text("utf-8")
    n_digits = {}
    for template, page in readme.PAGES.items():
        text = readme.render(template.read_text("utf-8"), results)
        assert readme.section_of(page.read_text("utf-8"), template) == text, "run python benchmarks/readme.py"
        n_digits[page.name] = len(re.findall(r"\d", text))
    assert n_digits["README.md"] > 80
    assert n_digits["how-fast.md"] > 200


def test_no_measured_figure_is_typed_into_a_template(readme: ModuleType) -> None:
    for template in readme.PAGES:
        lines = SETTINGS.sub("", template.read_text("utf-8")).splitlines()
        assert [line for line in lines if re.search(r"\d", line)] == []


def n_rendered(page: str) -> int:
    """About how many lines a page takes where it is read: paragraphs and cells of tables are wrapped, code is not."""
    page = re.sub(r"<!--.*?-->\n\n", "", page, flags=re.DOTALL)
    page = re.sub(r"<picture>.*?</picture>\n", "```\n" + "picture\n" * PICTURE + "```\n", page, flags=re.DOTALL)
    page = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", page)
    texts = re.split(r"^```.*\n", page, flags=re.MULTILINE)
    n_lines = sum(code.count("\n") for code in texts[1::2])
    for text in texts[::2]:
        whole = re.sub(r"(?<=[^\n])\n(?=[^\n|#-])", " ", re.sub(r"[*`]|^\|-.*\n", "", text, flags=re.MULTILINE))
        for line in whole.splitlines():
            cells = line.strip("|").split(" | ") if line.startswith("|") else [line]
            n_lines += max(1, *(math.ceil(len(cell.strip()) / (WIDTH // len(cells))) for cell in cells))
    return n_lines


def test_lines_are_counted_as_they_are_rendered() -> None:
    word = "a" * (WIDTH - 1)
    assert n_rendered("# Title\n\nOne\nparagraph.\n") == 3
    assert n_rendered(f"[{word}](https://a.place)\n{word}\n\n- one\n- {word}\n  two\n") == 2 + 1 + 1 + 2
    assert n_rendered(f"| a | b |\n|---|---|\n| {word} | b |\n") == 1 + 2
    assert n_rendered(f"```python\n{word}{word}\n\nrun\n```\n\n<!-- no line -->\n\nend\n") == 3 + 2
    assert n_rendered("<picture>\n  <img>\n</picture>\n") == PICTURE


def test_the_readme_is_two_screens() -> None:
    assert n_rendered((BENCHMARKS.parent / "README.md").read_text("utf-8")) <= TWO_SCREENS


@pytest.mark.long
def test_the_five_lines_lead_from_a_csv_to_a_model(tmp_path: Path) -> None:
    """The README's script, as it stands there, on a file as it is described there."""
    readme = (BENCHMARKS.parent / "README.md").read_text("utf-8")
    script = re.search(r"## From your own CSV.*?```python\n(.*?)```", readme, re.DOTALL)
    assert script is not None
    (tmp_path / "first.py").write_text(script[1], "utf-8")
    draw = random.Random(0)
    with (tmp_path / "ratings.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["user", "film", "stars"])
        for user in range(200, 0, -1):
            rows.writerows((f"u{user}", f"film {film}", draw.randint(1, 5)) for film in draw.sample(range(80), 30))

    done = subprocess.run(
        [sys.executable, "first.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("film ") == 10


def test_what_pages_and_outputs_call_is_there_without_another_import(tmp_path: Path) -> None:
    """As ``mlless_nb.models.load_model``, which a finished run prints."""
    folders = "estimators", "models", "money", "simulate", "telemetry", "widgets"
    called = "".join(f"mlless_nb.{folder}\nassert {folder!r} in dir(mlless_nb)\n" for folder in folders)
    for line in (f"import mlless_nb\n{called}", "import mlless_nb\nmlless_nb.models.load_model"):
        subprocess.run([sys.executable, "-c", line], cwd=tmp_path, check=True)


RESULTS = """## A step (`step.py`)

**MovieLens-1M, minibatches**

| P, protocol | step, ms (range) | p90 |
| --- | --- | --- |
| 4, BSP | 2.96 (2.72 to 3.03) | 3.88 |
| 8, BSP | **0.22 s** | - |
"""


def test_figures_are_looked_up(readme: ModuleType) -> None:
    template = """It takes {{step > MovieLens-1M > 4, BSP > step, ms}} ms,
{{step > ...minibatches > 4, BSP > step, ms > low}} to {{step > MovieLens-1M > 4, BSP > step, ms > high}};
{{step > MovieLens-1M > 4, BSP > p90 > low}}.

A table:

| | s |
|---|---|
| eight | {{step > MovieLens-1M > 8, BSP > step, ms}} |
| nine | {{step > MovieLens-1M > 9, BSP > step, ms}} |

Of another table, which is not there:

| | s |
|---|---|
| nine | {{step > MovieLens-1M > 9, BSP > step, ms}} |

{{link > MovieLens-1M > 9, BSP > step, ms}} s."""
    missing: list[str] = []
    assert readme.render(template, RESULTS, missing).split("\n\n") == [
        "It takes 2.96 ms,\n2.72 to 3.03;\n3.88.",
        "A table:",
        "| | s |\n|---|---|\n| eight | **0.22** |",
    ]
    assert len(missing) == 3


def test_the_first_of_a_column_is_bold_beside_its_range(readme: ModuleType) -> None:
    rows = [["a", "1.30 s (1.20 to 1.40)"], ["b", "0.900 s (0.800 to 2.00)"], ["c", "not reached"], ["d", "1.10 s"]]

    bold = loaded("report").first_in_bold(rows, 1)

    assert [row[1] for row in bold] == [rows[0][1], "**0.900 s** (0.800 to 2.00)", "not reached", "1.10 s"]
    lines = ["| contender | 0.86 |", "| --- | --- |", *(f"| {' | '.join(row)} |" for row in bold)]
    results = "## Time (`time.py`)\n\n**To a loss**\n\n" + "\n".join(lines) + "\n"
    assert readme.render("{{time > To > b > 0.86}}, {{time > To > b > 0.86 > high}}", results) == "**0.900**, 2.00"
