"""The magics in a real kernel, over the real engine: returning at once, blocking by itself, interrupts."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

SETUP = """
%load_ext mlless_nb
from mlless_nb import ISP, PMF, SGD, datasets
ratings = datasets.synthetic_ratings(300, 200, 20_000, rank=3, seed=0)
"""
BODY = "model = PMF(rank=4)\noptimizer = SGD(learning_rate=1.0)\ndata = ratings\n"
#: Far more epochs than any test waits for, and nobody leaves but whom a test asks to.
ENDLESS = f"%%mlless --workers 2 --scale-in off --minibatch 500 --epochs 1000000 --name endless {{}}\n{BODY}"


class Notebook:
    """A kernel as a front end sees it: cells in; text, outputs and errors out."""

    def __init__(self, manager: KernelManager, can_type: bool) -> None:
        self.manager, self.can_type = manager, can_type
        self.client = manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def start(self, code: str) -> str:
        """Send a cell; its message id."""
        return str(self.client.execute(code, allow_stdin=self.can_type))

    def messages(self, cell: str, timeout_s: float = 120) -> Iterator[dict[str, Any]]:
        """The messages of a cell until it is over."""
        while True:
            message = self.client.get_iopub_msg(timeout=timeout_s)
            if message["parent_header"].get("msg_id") != cell:
                continue
            if message["msg_type"] == "status" and message["content"]["execution_state"] == "idle":
                return
            yield message

    def finish(self, cell: str) -> str:
        """What the cell prints until it is over, errors included."""
        text = ""
        for message in self.messages(cell):
            content = message["content"]
            if message["msg_type"] == "stream":
                text += content["text"]
            elif message["msg_type"] == "error":
                text += f"{content['ename']}: {content['evalue']}\n"
        return text

    def run(self, code: str) -> str:
        return self.finish(self.start(code))

    def interrupt_once_it_prints(self, cell: str, word: str) -> None:
        """Interrupt the cell when ``word`` shows in what it prints."""
        for message in self.messages(cell):
            if message["msg_type"] == "stream" and word in message["content"]["text"]:
                self.manager.interrupt_kernel()
                return
        raise AssertionError(f"the cell ended without printing {word!r}")


#: What is over after a test: its runs, and the names that it made.
REST = """
from mlless_nb.driver.runs import handles
for run in handles():
    run.stop()
    run.wait()
%unload_ext mlless_nb
%reset -f
"""


@contextlib.contextmanager
def open_notebook(tmp_path: Path, can_type: bool) -> Iterator[Notebook]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("MLLESS_PROGRESS", raising=False)
        patch.setenv("HOME", str(tmp_path))
        manager = KernelManager(kernel_name="python3", transport="ipc", ip=str(tmp_path / "k"))
        manager.start_kernel(cwd=str(tmp_path))
    notebook = Notebook(manager, can_type)
    try:
        yield notebook
    finally:
        notebook.client.stop_channels()
        manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def kernel_of_a_person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    with open_notebook(tmp_path_factory.mktemp("person"), True) as notebook:
        yield notebook


@pytest.fixture(scope="module")
def kernel_of_a_program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notebook]:
    with open_notebook(tmp_path_factory.mktemp("program"), False) as notebook:
        yield notebook


def set_up(notebook: Notebook) -> Iterator[Notebook]:
    """The kernel with the magics loaded and ratings; nothing of it goes on after the test."""
    assert notebook.run(SETUP) == ""
    try:
        yield notebook
    finally:
        with contextlib.suppress(queue.Empty):
            notebook.run(REST)


@pytest.fixture
def notebook(kernel_of_a_person: Notebook) -> Iterator[Notebook]:
    """A kernel with a person in front."""
    yield from set_up(kernel_of_a_person)


@pytest.fixture
def batch(kernel_of_a_program: Notebook) -> Iterator[Notebook]:
    """A kernel as nbclient and papermill drive it."""
    yield from set_up(kernel_of_a_program)


def test_returns_at_once_and_answers_to_commands(notebook: Notebook) -> None:
    notebook.run(ENDLESS.format("--budget 0.5"))

    assert notebook.run("print(endless.status in ('starting', 'running'))") == "True\n"
    assert "a run of this name is live ($0." in notebook.run(ENDLESS.format(""))
    assert "stays loaded while endless" in notebook.run("%unload_ext mlless_nb")
    assert "endless: " in notebook.run("%mlless status")
    notebook.run(
        "feed, seen = endless.telemetry, 0\n"
        "while feed.n_rows < 3 and feed.state.is_live: seen = feed.wait_for_change(seen, 0.1)"
    )
    assert notebook.run("%mlless budget 0.75").startswith("endless: asked for a cap of $0.75")
    assert notebook.run("%mlless scale_in 1") == "endless: asked to remove 1 worker\n"
    # Commands that come together are obeyed together: the stop would be due before the departure.
    notebook.run("while feed.state.n_workers > 1 and feed.state.is_live: seen = feed.wait_for_change(seen, 0.1)")
    assert "endless: asked to stop at step" in notebook.run("%mlless stop")
    assert "endless: stopped" in notebook.run("%mlless wait")
    assert notebook.run("print(endless.budget, int(endless.history['n_workers'][-1]))") == "0.75 1\n"
    assert notebook.run("print(endless.model.params['user_factors'].shape)") == "(300, 4)\n"
    assert notebook.run("%unload_ext mlless_nb") == ""


@pytest.mark.long
def test_blocks_by_itself_where_nobody_can_click(batch: Notebook) -> None:
    printed = batch.run(f"%%mlless --workers 2 --minibatch 500 --epochs 2 --name short\n{BODY}")

    assert "short: finished" in printed
    assert batch.run("print(short.status)") == "finished\n"


def test_interrupt_while_the_cell_waits_stops_the_run(batch: Notebook) -> None:
    cell = batch.start(ENDLESS.format(""))
    batch.interrupt_once_it_prints(cell, "endless: starting")
    printed = batch.finish(cell)

    assert "endless: interrupted at step" in printed
    assert "endless: stopped after step" in printed
    assert "KeyboardInterrupt" not in printed
    # Interrupted early enough, it was stopped before its functions were invoked, and there is no model.
    assert batch.run("print(endless.status)") == "stopped\n"


def test_interrupt_of_the_wait_command_leaves_the_run_alone(notebook: Notebook) -> None:
    notebook.run(ENDLESS.format(""))
    cell = notebook.start("%mlless wait")
    notebook.interrupt_once_it_prints(cell, "endless: ")

    assert "endless: goes on" in notebook.finish(cell)
    assert notebook.run("print(endless.status in ('starting', 'running'))") == "True\n"


@pytest.mark.long
def test_interrupt_of_the_handles_wait_is_one_line(notebook: Notebook) -> None:
    notebook.run(ENDLESS.format(""))
    # told from beside the cell, once it waits
    cell = notebook.start("import threading\nthreading.Timer(1.0, print, ['waiting']).start()\nendless.wait()")
    notebook.interrupt_once_it_prints(cell, "waiting")

    said = notebook.finish(cell)
    assert "WaitInterrupted: run 'endless' goes on (step " in said
    assert said.strip().count("\n") == 0
    assert notebook.run("print(endless.status in ('starting', 'running'))") == "True\n"


@pytest.mark.long
def test_what_a_run_will_take_is_in_its_state_at_once_and_is_not_billed(notebook: Notebook) -> None:
    notebook.run(ENDLESS.format(""))
    wait = "import time\nuntil = time.monotonic() + 60\nstate = lambda: endless.telemetry.state\n"
    wait += "while not state().estimate and time.monotonic() < until: time.sleep(0.05)\n"
    assert notebook.run(f"{wait}print(state().estimate)").startswith("about $")


def test_wrong_cells_are_one_line_and_start_nothing(notebook: Notebook) -> None:
    notebook.run("import mlless_nb; known = mlless_nb.runs()")
    for line, body, says in (
        ("--wrokers 4", BODY, "is --workers meant?"),
        ("", "model = PMF(rank=0)\n", "line 2 of the cell: "),
        ("--workers 1000 --minibatch 500", BODY, "line 1 of the cell: workers=1000: must be at most 36"),
        ("--minibatch 500 --budget 0.0000001", BODY, "line 1 of the cell: budget=1e-07: must be at least"),
        ("--minibatch 500 --target 99", BODY, "line 1 of the cell: stop.target=99"),
        ("--minibatch 500", BODY + "redis = 'redis://127.0.0.1:1/0'\n", "127.0.0.1:1"),
    ):
        printed = notebook.run(f"%%mlless {line}\n{body}")
        assert says in printed, printed
        assert "Traceback" not in printed
    assert notebook.run("print(mlless_nb.runs() == known)") == "True\n"
