"""Ctrl-C at random moments of a run from a terminal, once or twice: it says how it ends, and leaves nothing."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from engine.jobs import PATIENCE_S
from engine.test_faults import eventually
from folders import paths_below
from terminal.test_train import environment, words

from mlless_nb.terminal.train import FINISHED, INTERRUPTED

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks at processes through /proc")
SEED, N = 30, 20
#: Seconds from the process' start, or from its first line, within which it is interrupted, and from there once more.
FROM_START_S, FROM_LINE_S, AGAIN_S = 3.0, 5.0, 1.5


def started(folder: Path, epochs: int) -> subprocess.Popen[bytes]:
    """The process of a run; what it says is in a file."""
    known = environment(folder) | {"TMPDIR": f"{folder}/tmp"}
    with open(folder / "said", "wb") as said:
        options = "--set", f"epochs={epochs}"
        return subprocess.Popen(
            words(folder, *options), cwd=folder, env=known, stdout=said, stderr=said, start_new_session=True
        )


def processes(folder: Path) -> list[str]:
    """Those that were started in the environment of ``folder``."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            if f"TMPDIR={folder}/".encode() in (process / "environ").read_bytes():
                found.append(process.name)
    return found


def files(folder: Path) -> set[Path]:
    """Temporary files, but for the copy of itself that Lithops makes once: half of it is there after an interrupt."""
    found = {path.relative_to(folder / "tmp") for path in paths_below(folder / "tmp")}
    return {path for path in found if not path.parts[1:2] or not path.parts[1].startswith("lithops")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a run has packed its data, which is kept."""
    made = tmp_path_factory.mktemp("terminal")
    (made / "tmp").mkdir()
    assert started(made, 1).wait(PATIENCE_S) == FINISHED, (made / "said").read_text()
    return made


@pytest.mark.proof
@pytest.mark.parametrize("number", range(N))
def test_an_interrupt_at_any_moment_ends_the_run_and_leaves_nothing(number: int, folder: Path) -> None:
    rng, before, said = random.Random(f"{SEED}.{number}"), files(folder), folder / "said"
    process, from_line, is_twice = started(folder, 10**6), number % 2 == 1, number % 4 >= 2
    assert not from_line or eventually(lambda: "starting" in said.read_text(), PATIENCE_S)
    for within_s in (FROM_LINE_S if from_line else FROM_START_S, *[AGAIN_S] * is_twice):
        time.sleep(rng.uniform(0.0, within_s))  # the random moment
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert process.wait(PATIENCE_S) in (INTERRUPTED, -signal.SIGINT), said.read_text()
    if "starting" in said.read_text():
        assert "first: interrupted; it ends in good order" in said.read_text()
        assert "Traceback" not in said.read_text()
        assert process.returncode == INTERRUPTED or is_twice  # again when there was nothing left to do but to exit
    assert eventually(lambda: not processes(folder), PATIENCE_S), processes(folder)
    assert eventually(lambda: files(folder) <= before, PATIENCE_S), files(folder) - before
