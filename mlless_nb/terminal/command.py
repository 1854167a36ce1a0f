"""``mlless-nb``, and ``python -m mlless_nb``: its subcommands, and the functions that carry them out."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry out ``arguments``, by default the command line's; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if words[:1] == ["train"]:
            from .train import main as train

            return train(words[1:])
        from . import stopping

        if words[:1] == ["stop"]:
            return stopping.main(words[1:])
        from .listing import SUBCOMMANDS
        from .listing import main as listed

        if words[:1] and words[0] in SUBCOMMANDS:
            return listed(words)
        from ..clouds import command

        train_help = "train the job of a TOML file: mlless-nb train --help"
        parser = command.parser({"train": train_help, "stop": stopping.HELP, **SUBCOMMANDS})
        return command.carry_out(parser.parse_args(words))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `... | head` has read enough; the interpreter would say so again at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
