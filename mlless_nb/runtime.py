"""Interpreter of localhost functions: imports what every function needs once, then becomes Lithops' own runner.

Lithops starts it as ``runtime.py RUNNER ARGUMENT...``; the functions are forked from it with everything loaded, which
is what makes a run with eight workers start in half a second.
"""

import runpy
import sys

import mlless_nb.function  # noqa: F401

if __name__ == "__main__":
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
