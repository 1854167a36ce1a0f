"""``python -m mlless_nb``: see `mlless_nb.terminal`."""

from __future__ import annotations

import sys

from .terminal.command import main

if __name__ == "__main__":
    sys.exit(main())
