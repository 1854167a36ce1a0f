"""Every path that a wheel carries: the tests of the kernels again, at each instruction set of this processor."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from mlless_nb.kernels.update import instruction_set


def run(level: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python with the kernels lowered to ``level``, from the root of the checkout."""
    return subprocess.run(
        [sys.executable, "-P", *arguments],
        env={**os.environ, "MLLESS_KERNELS": level},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="what the processor has is read from /proc/cpuinfo")
def test_the_instruction_set_is_the_best_that_this_processor_has() -> None:
    cpuinfo = Path("/proc/cpuinfo").read_text() if platform.machine() == "x86_64" else ""
    flags = set(next((line for line in cpuinfo.splitlines() if line.startswith("flags")), "").split())
    best = "avx2" if {"avx2", "fma"} <= flags else "generic"
    if {"avx2", "fma", "avx512f", "avx512vl", "avx512dq", "avx512bw"} <= flags:
        best = "avx512"
    asked = run("", "-c", "from mlless_nb.kernels.update import instruction_set; print(instruction_set())")
    assert asked.stdout.strip() == best, asked.stderr


@pytest.mark.parametrize(
    "level", ["generic", *(pytest.param(level, marks=pytest.mark.long) for level in ("avx2", "avx512"))]
)
def test_kernels_pass_at_every_instruction_set(level: str) -> None:
    if instruction_set() == level:
        pytest.skip(f"this run's own level is {level}: the tests beside this one run at it")
    asked = run(level, "-c", "from mlless_nb.kernels.update import instruction_set; print(instruction_set())")
    assert asked.returncode == 0, asked.stderr
    if asked.stdout.strip() != level:
        pytest.skip(f"this processor has no {level}: the {level} kernels are not tested")
    here = Path(__file__).parent
    files = [str(path) for path in sorted(here.glob("test_*.py")) if path.name != Path(__file__).name]
    done = run(level, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", "not damage", *files)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_the_reference_has_a_twin_of_every_kernel() -> None:
    from mlless_nb import kernels
    from mlless_nb.kernels import reference, reference_frames, reference_products

    modules = reference, reference_frames, reference_products
    assert all(any(hasattr(module, name) for module in modules) for name in kernels.__all__)
    assert kernels.__all__ == sorted(kernels.__all__)
