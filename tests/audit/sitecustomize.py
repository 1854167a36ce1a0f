"""Python imports this when it starts, in every process of a test run: this folder is on ``PYTHONPATH``."""

import os
import sys
from pathlib import Path

import unpickling

unpickling.install()
if "MORTAL_WORKER" in os.environ:  # functions that are not forked from `runtime_server`, as those that use PyTorch
    sys.path.append(str(Path(__file__).parents[1]))
    import mortal

    mortal.prepare()
