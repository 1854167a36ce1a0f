"""``mlless-nb stop``: stops a live run or sweep of any process in good order, and waits until it has ended."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..errors import CommandError, MllessError

#: The subcommand's help.
HELP = (
    "stop a live run or sweep of a notebook, a script or a process of its own, and keep its models: mlless-nb stop NAME"
)


def main(words: Sequence[str]) -> int:
    """Carry out ``stop NAME``; returns the exit status: 1 if none is live, or one failed meanwhile."""
    from ..driver import stopping
    from ..widgets.format import usd

    parser = argparse.ArgumentParser("mlless-nb stop", description=HELP.partition(":")[0])
    parser.add_argument("name", metavar="NAME", help="the name or id of a run or a sweep: mlless-nb runs lists them")
    given, has_failed = parser.parse_args(words), False
    try:
        runs = stopping.ask(given.name)
        for run in runs:
            print(f"{run.name}: asked to stop, {usd(run.usd)} so far", file=sys.stderr, flush=True)
        for ended in map(stopping.wait, runs):
            print(_last_line(ended.id) or f"{ended.name}: {ended.status} · {ended.reason}", flush=True)
            has_failed |= ended.status == "failed"
    except KeyboardInterrupt:
        print(f"{given.name}: it stops without being waited for", file=sys.stderr)
        return 130
    except MllessError as error:
        print(error, file=sys.stderr)
        return 1
    return int(has_failed)


def _last_line(run_id: str) -> str:
    """The ended run in one line; "" if it has no record, since it was stopped before its functions were invoked."""
    from ..driver.runs import attach
    from ..widgets.view_model import line_of

    try:
        state = attach(run_id).telemetry.state
    except CommandError:
        return ""
    return f"{line_of(state)} · {state.reason}"
