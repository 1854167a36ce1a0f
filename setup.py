"""Compiled kernels only; every other fact about the package stands in setup.cfg."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

KERNELS = sorted(Path("kernels").glob("*.pyx"))
HEADERS = sorted(str(path) for path in Path("kernels").glob("*.h"))

setup(
    ext_modules=cythonize(
        [
            Extension(
                f"mlless_nb.kernels.{path.stem}",
                [str(path)],
                include_dirs=["kernels"],
                depends=HEADERS,
                extra_compile_args=["-O3"],
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
    )
)
