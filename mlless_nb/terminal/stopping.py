"""``mlless-nb stop``: stops a live run of any process in good order, and waits until it has ended."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..errors import CommandError, MllessError

#: The subcommand's help.
HELP = "stop a live run of a notebook, a script or a process of its own, and keep its model: mlless-nb stop NAME"


def main(words: Sequence[str]) -> int:
    """Carry out ``stop NAME``; returns the exit status: 1 if no such run is live, or it failed meanwhile."""
    from ..driver import stopping
    from ..widgets.format import usd

    parser = argparse.ArgumentParser("mlless-nb stop", description=HELP.partition(":")[0])
    parser.add_argument("name", metavar="NAME", help="the run's name or id: mlless-nb runs lists them")
    given = parser.parse_args(words)
    try:
        run = stopping.ask(given.name)
        print(f"{run.name}: asked to stop, {usd(run.usd)} so far", file=sys.stderr, flush=True)
        ended = stopping.wait(run)
    except KeyboardInterrupt:
        print(f"{given.name}: it stops without being waited for", file=sys.stderr)
        return 130
    except MllessError as error:
        print(error, file=sys.stderr)
        return 1
    print(_last_line(ended.id) or f"{ended.name}: {ended.status} · {ended.reason}")
    return int(ended.status == "failed")


def _last_line(run_id: str) -> str:
    """The ended run in one line; "" if it has no record, since it was stopped before its functions were invoked."""
    from ..driver.runs import attach
    from ..widgets.view_model import line_of

    try:
        state = attach(run_id).telemetry.state
    except CommandError:
        return ""
    return f"{line_of(state)} · {state.reason}"
