"""The model of rounds, plan and hand-overs is checked by spin, which must also find planted faults."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

MODEL = Path(__file__).parents[2] / "docs/protocol/rounds.pml"
#: Without faults of functions: eviction, checkpoints and a hand-over in every order of requests.
BOUNDS = ("-DSTEPS=3", "-DKILLS=0", "-DSUPERVISORS=1")
#: With a lost function, and no hand-over.
LOST = ("-DSTEPS=3", "-DKILLS=1", "-DSUPERVISORS=1", "-DSUCCESSORS=0")

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not shutil.which("spin") or not shutil.which("gcc"), reason="needs spin and gcc: make model"),
]


@pytest.mark.parametrize(
    ("planted", "bounds"),
    [
        ("", BOUNDS),
        ("-DWITHOUT_ENOUGH_NOTICE", BOUNDS),
        ("-DWITHOUT_OWNER_IN_RELEASE", BOUNDS),
        ("-DWITHOUT_NUMBERS_IN_KEYS", LOST),
        ("-DWITHOUT_NUMBER_IN_LAST_MESSAGE", LOST),
    ],
)
def test_the_model_holds_and_a_planted_fault_is_found(planted: str, bounds: tuple[str, ...], tmp_path: Path) -> None:
    subprocess.run(["spin", *bounds, *planted.split(), "-a", MODEL], cwd=tmp_path, check=True, capture_output=True)
    compiling = ["gcc", "-O2", "-w", "-DCOLLAPSE", "-DVECTORSZ=2048", "-DNOCLAIM", "-o", "pan", "pan.c"]
    subprocess.run(compiling, cwd=tmp_path, check=True)
    done = subprocess.run(["./pan", "-m200000"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert ("errors: 0" in done.stdout) == (not planted), done.stdout
