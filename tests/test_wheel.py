"""Wheels as users get them: installed into an empty environment they train; built again they are the same."""

from __future__ import annotations

import os
import platform
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from mlless_nb.kernels.update import instruction_set

ROOT = Path(__file__).resolve().parents[1]
#: `e_machine` of an ELF file.
MACHINES = {"x86_64": 62, "aarch64": 183}
HERE = platform.machine()
#: A job of two workers on the embedded default, as its user would write it in a script.
SCRIPT = """
from mlless_nb import PMF, SGD, Stop, TrainingJob, datasets, kernels, train

if __name__ == "__main__":
    ratings = datasets.synthetic_ratings(200, 100, 4000, rank=4, seed=1)
    job = TrainingJob(model=PMF(rank=4, l2=0.02), optimizer=SGD(2.0), data=ratings, workers=2, minibatch=200,
                      stop=Stop(steps=10))
    run = train(job)
    run.wait(120.0)
    print(kernels.__file__)
    print(len(run.history["loss"]), run.reason)
"""

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(sys.platform != "linux" or HERE not in MACHINES, reason="`make wheel` builds on Linux only"),
]


def build(folder: Path, *architectures: str) -> list[Path]:
    """What `make wheel` makes."""
    # Build tools unpickle what their own processes send, which the tests' `PYTHONPATH` would refuse.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "PYTHONPATH"))}
    command = ["make", "wheel", f"DIST={folder}", f"ARCH={' '.join(architectures)}", f"PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A wheel by architecture."""
    built = build(tmp_path_factory.mktemp("wheels"), *MACHINES)
    return {name: next(path for path in built if path.name.endswith(f"{name}.whl")) for name in MACHINES}


@pytest.mark.parametrize("architecture", MACHINES)
def test_a_wheel_has_its_architectures_kernels_and_no_sources(architecture: str, wheels: dict[str, Path]) -> None:
    path = wheels[architecture]
    assert f"manylinux_2_17_{architecture}" in path.name
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        kernels = [name for name in names if name.endswith(".so")]
        sources = {name.rpartition("/")[2] for name in names if name.endswith((".pyx", ".c", ".h"))}
        assert len(kernels) == len(list((ROOT / "kernels").glob("*.pyx"))) + 1  # the memoryviews
        assert not sources
        for name in kernels:
            head = wheel.read(name)[:20]
            assert head[:6] == b"\x7fELF\x02\x01", f"{name}: must be of 64 bits, little-endian"
            assert struct.unpack_from("<H", head, 18)[0] == MACHINES[architecture], name


def test_a_wheels_kernels_use_what_this_processor_has(wheels: dict[str, Path], tmp_path: Path) -> None:
    """The wheels' compiler is not the one that compiled the kernels of this test run."""
    with zipfile.ZipFile(wheels[HERE]) as wheel:
        wheel.extractall(tmp_path)
    script = "from mlless_nb.kernels import update; print(update.__file__, update.instruction_set())"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    where, level = done.stdout.split()
    assert where.startswith(str(tmp_path))
    assert level == instruction_set()


def test_a_second_build_is_the_same(wheels: dict[str, Path], tmp_path: Path) -> None:
    (again,) = build(tmp_path, HERE)

    assert again.name == wheels[HERE].name
    assert again.read_bytes() == wheels[HERE].read_bytes()


def test_what_a_function_needs_is_half_of_what_it_may_have(wheels: dict[str, Path], tmp_path: Path) -> None:
    """AWS Lambda takes 250 MB of unpacked packages."""
    runtime = tmp_path / "runtime"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", runtime, wheels[HERE]]
    subprocess.run(install, check=True)
    n_bytes = sum(path.stat().st_size for path in runtime.rglob("*") if path.is_file())
    roles = "import mlless_nb.function.entry, mlless_nb.supervisor.loop, mlless_nb.worker.loop as w; print(w.__file__)"
    # -S: no site-packages, so that nothing else is there to be imported.
    environment = {"PYTHONPATH": str(runtime), "HOME": str(tmp_path)}
    imported = subprocess.run(
        [sys.executable, "-S", "-c", roles], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )

    assert imported.returncode == 0, imported.stderr
    assert imported.stdout.startswith(str(runtime))
    print(f"{n_bytes / 1e6:.0f} MB")
    assert n_bytes < 125e6


def test_the_wheel_trains_in_an_empty_environment(wheels: dict[str, Path], tmp_path: Path) -> None:
    venv, script = tmp_path / "venv", tmp_path / "first.py"
    script.write_text(SCRIPT)
    # HOME too is empty; what names this checkout's packages is not passed on.
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "MLLESS_KERNELS"}}
    environment["HOME"] = str(tmp_path)
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    install = [venv / "bin/python", "-m", "pip", "install", "--quiet", "--no-compile", f"{wheels[HERE]}[notebook]"]
    subprocess.run(install, env=environment, check=True)
    trained = subprocess.run(
        [venv / "bin/python", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )

    assert trained.returncode == 0, trained.stderr
    where, outcome = trained.stdout.strip().splitlines()[-2:]
    assert where.startswith(str(venv))
    assert outcome.startswith("10 ")
