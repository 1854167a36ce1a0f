"""Compiled kernels only; every other fact about the package stands in setup.cfg."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

#: The one that takes longest first: the others are compiled beside it.
KERNELS = sorted(Path("kernels").glob("*.pyx"), key=lambda path: (path.stem != "optimize", path.stem))
HEADERS = sorted(str(path) for path in Path("kernels").glob("*.h"))

setup(
    ext_modules=cythonize(
        [
            Extension(
                f"mlless_nb.kernels.{path.stem}",
                [str(path)],
                include_dirs=["kernels"],
                depends=HEADERS,
                extra_compile_args=["-O3", "-g0"],
            )
            for path in KERNELS
        ],
        build_dir="build/cython",
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "cdivision": True,
            "initializedcheck": False,
        },
    ),
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
