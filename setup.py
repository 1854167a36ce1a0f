"""Compiled kernels only; every other fact about the package stands in setup.cfg."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

#: The ones that take longest first: the others are compiled beside them.
LONGEST = ["optimize", "codec", "merge"]
KERNELS = sorted(Path("kernels").glob("*.pyx"), key=lambda path: (path.stem not in LONGEST, path.stem != "optimize"))
HEADERS = sorted(str(path) for path in Path("kernels").glob("*.h"))
#: Cython's memoryviews, compiled once instead of within every kernel.
MEMORYVIEWS = "mlless_nb.kernels._memoryviews"
FLAGS = ["-O3", "-g0"]


def main() -> None:
    """Build; a function, so that Cython's processes do not build too where they import this file."""
    if os.environ.get("MLLESS_WITHOUT_KERNELS"):  # they lie in the tree (make demo, lab, test), or are not asked for
        setup()
        return
    kernels = [
        Extension(f"mlless_nb.kernels.{path.stem}", [str(path)], ["kernels"], depends=HEADERS, extra_compile_args=FLAGS)
        for path in KERNELS
    ]
    setup(
        ext_modules=cythonize(
            [*kernels, Extension(MEMORYVIEWS, ["kernels/_memoryviews.c"], extra_compile_args=["-O2", "-g0"])],
            build_dir="build/cython",
            nthreads=os.cpu_count() or 1,
            shared_utility_qualified_name=MEMORYVIEWS,
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


if __name__ == "__main__":
    main()
