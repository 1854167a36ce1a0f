"""``mlless-nb runs`` and ``mlless-nb spend``: all runs of a user, and what they have cost, as text."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

#: The subcommands, and their help.
SUBCOMMANDS = {
    "runs": "list all runs, of all notebooks and days: mlless-nb runs --help",
    "spend": "what all runs have cost, by day and project",
}


def main(arguments: Sequence[str]) -> int:
    """Carry out ``runs [N] [--project NAME] [--sweep NAME]`` or ``spend [--project NAME]``; returns the exit status."""
    from ..driver import listing
    from ..errors import MllessError

    which, *words = arguments
    parser = argparse.ArgumentParser(f"mlless-nb {which}", description=SUBCOMMANDS[which].partition(":")[0])
    parser.add_argument("--project", metavar="NAME", help="those of this project only")
    if which == "runs":
        parser.add_argument("n", nargs="?", type=int, metavar="N", help="the newest N only")
        parser.add_argument("--sweep", metavar="NAME", help="the trials of this sweep, the best one first")
    given = parser.parse_args(words)
    try:
        if which == "spend":
            print(listing.spend(given.project))
        else:
            print(listing.runs(given.n, project=given.project, sweep=given.sweep))
    except MllessError as error:
        print(error, file=sys.stderr)
        return 1
    return 0
