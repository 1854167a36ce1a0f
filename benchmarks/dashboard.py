"""How long a press in the dashboard waits for the supervisor's answer, in real JupyterLab and Chromium.

python benchmarks/dashboard.py [--presses 100] [--reloads 25] [--quick]
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from report import Report, median, parser

TESTS = Path(__file__).resolve().parent.parent / "tests"
sys.path[:0] = [str(TESTS / "browser"), str(TESTS)]

from lab import Lab, Notebook, chromium  # noqa: E402

#: What the kernel does meanwhile, as a cell.
KERNEL = {
    "idle": "None",
    "sleeping": "import time; time.sleep({s})",
    "busy": "import time\nuntil = time.monotonic() + {s}\nwhile time.monotonic() < until: sum(range(1000))",
}
CELLS = [
    "%load_ext mlless_nb\nfrom mlless_nb import ISP, PMF, SGD, datasets\n"
    "ratings = datasets.synthetic_ratings(2000, 1000, 200_000, seed=1)",
    "%%mlless --workers 2 --steps 1000000 --budget 0.40 --name pressed\n"
    "model = PMF(rank=10)\noptimizer = SGD(learning_rate=1.0)\ndata = ratings\nsync = ISP(0.7)",
]
#: Applies a new budget, and resolves with the milliseconds until the chart of dollars shows it; null after ten seconds.
PRESS = """(value) => new Promise((done) => {
  const ref = (name) => document.querySelector(`[data-ref=${name}]`);
  ref("budget").value = value;
  ref("budget").dispatchEvent(new Event("input"));
  const began = performance.now();
  ref("budgetForm").requestSubmit();
  const look = () => {
    const taken = performance.now() - began;
    if (ref("charts").textContent.includes(`cap $${value}`)) done(taken);
    else if (taken > 10000) done(null);
    else requestAnimationFrame(look);
  };
  look();
})"""
IS_DRAWN = "() => document.querySelector('[data-ref=charts]')?.textContent.includes('cap $')"
#: Seconds between two presses, so that they meet batches of rows at any moment.
PAUSES_S = [0.05 + 0.01 * (37 * i % 50) for i in range(50)]


def budgets() -> Iterator[str]:
    """Amounts of dollars, each another one."""
    return (f"{0.401 + i / 1000:.3f}".rstrip("0") for i in itertools.count())


def press(notebook: Notebook, amounts: Iterator[str], times: int) -> list[float | None]:
    """Milliseconds of each press; None of one that was not answered."""
    taken = []
    for i in range(times):
        taken.append(notebook.page.evaluate(PRESS, next(amounts)))
        time.sleep(PAUSES_S[i % len(PAUSES_S)])
    return taken


def measure(context: Any, lab: Lab, presses: int, reloads: int) -> dict[str, list[float | None]]:
    """The presses of one run, by what the kernel does."""
    needed_s = round(2 + presses)
    cells = [*CELLS, *(cell.format(s=needed_s) for cell in KERNEL.values()), "pressed.stop()"]
    notebook, amounts, found = Notebook(lab, context.new_page(), "pressed", cells), budgets(), {}
    notebook.run(0)
    notebook.start(1)
    notebook.page.wait_for_function(IS_DRAWN)
    for at, name in enumerate(KERNEL):
        notebook.start(len(CELLS) + at)
        time.sleep(1.0)
        found[name] = press(notebook, amounts, presses)
        notebook.page.evaluate("() => window.jupyterapp.commands.execute('kernelmenu:interrupt')")
        time.sleep(1.0)
    found["after reloads"] = []
    for _ in range(reloads):
        notebook.save()
        notebook.reload()
        notebook.page.wait_for_function(IS_DRAWN)
        found["after reloads"] += press(notebook, amounts, 4)
    notebook.start(len(cells) - 1)
    time.sleep(2.0)
    notebook.end_kernel()
    return found


def main() -> None:
    """Measure and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--presses", type=int, default=100, help="in each state of the kernel")
    arguments.add_argument("--reloads", type=int, default=25, help="of the page, with four presses after each")
    options = arguments.parse_args()
    presses, reloads = (5, 1) if options.quick else (options.presses, options.reloads)
    report = Report("dashboard", "How long does a press in the dashboard wait for the supervisor's answer?")
    with tempfile.TemporaryDirectory() as folder, chromium(Path(folder) / "chromium") as context:
        lab = Lab(Path(folder))
        try:
            found = measure(context, lab, presses, reloads)
        finally:
            lab.close()
    rows, cases = [], []
    for name, taken in found.items():
        known = sorted(one for one in taken if one is not None)
        worst = known[-1] if known else float("nan")
        rows.append([name, len(taken), len(taken) - len(known), median(known), known[int(0.9 * len(known))], worst])
        cases.append({"kernel": name, "lost": len(taken) - len(known), "median_ms": median(known), "max_ms": worst})
    report.table(
        "Milliseconds from a new budget's press until the chart shows what the supervisor has confirmed",
        ["kernel", "presses", "lost", "median", "90th percentile", "most"],
        rows,
    )
    report.remark(
        "Two workers, JupyterLab, its kernel and Chromium share two cores. The way of a press: page, kernel, "
        "supervisor, kernel, page, drawn. Wanted are a median of 300 ms and no more than 1,500 ms."
    )
    report.end(cases=cases)


if __name__ == "__main__":
    main()
