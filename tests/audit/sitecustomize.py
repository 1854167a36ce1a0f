"""Python imports this when it starts, in every process of a test run: this folder is on ``PYTHONPATH``."""

import unpickling

unpickling.install()
