"""Every path that a wheel carries: the tests of the kernels again, on lesser processors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("level", ["generic", "avx2"])
def test_lesser_instruction_sets_pass_too(level: str, tmp_path: Path) -> None:
    here = Path(__file__).parent
    files = [str(path) for path in sorted(here.glob("test_*.py")) if path.name != Path(__file__).name]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", "not damage", *files],
        env={**os.environ, "MLLESS_KERNELS": level},
        cwd=here.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_the_reference_has_a_twin_of_every_kernel() -> None:
    from mlless_nb import kernels
    from mlless_nb.kernels import reference, reference_frames

    assert all(hasattr(reference, name) or hasattr(reference_frames, name) for name in kernels.__all__)
    assert kernels.__all__ == sorted(kernels.__all__)
