"""The options of the ``%%mlless`` line. Pure: text in, values out; the job checks the values."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Mapping
from typing import Any

from IPython.core.error import UsageError

from ..exchange.stores import store_forms
from ..job.scale_in import ScaleIn

#: Rules of `mlless_nb.Stop` that are options.
STOP_RULES = ("target", "epochs", "steps", "time_s", "patience", "confirmations")
#: Options of the magic itself; all others are fields of the job.
BEHAVIOUR = ("resume", "wait", "force", "on_interrupt", "dry_run")


def words_of(magic: str, line: str) -> list[str]:
    """The words of the ``line`` of a ``magic``, as a shell reads them: quotation marks hold one together."""
    try:
        return shlex.split(line)
    except ValueError as error:  # a quotation mark without another one
        raise UsageError(f"{magic} {line}: {error}") from None


def number(text: str) -> float | int:
    """``text`` as an integer if it is one, else as a float."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def integer(text: str) -> int:
    """``text`` as an integer."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer") from None


def fraction(text: str) -> float | int | None:
    """``text`` as a number, None for ``none``."""
    return None if text.lower() == "none" else number(text)


def scale_in(text: str) -> ScaleIn:
    """``on`` or ``off`` as a `ScaleIn`."""
    if text not in ("on", "off"):
        raise argparse.ArgumentTypeError(f"{text!r} is not on or off; the cell's scale_in = ScaleIn(...) says more")
    return ScaleIn() if text == "on" else ScaleIn.off()


def speculation(text: str) -> float | str:
    """``text`` as a number, or ``off``."""
    return text if text == "off" else number(text)


def _option(flag: str, metavar: str, kind: Callable[[str], Any], help: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return flag, {"metavar": metavar, "type": kind, "help": help, "default": argparse.SUPPRESS, **more}


def _switch(flag: str, help: str) -> tuple[str, dict[str, Any]]:
    return flag, {"action": "store_true", "help": help, "default": argparse.SUPPRESS}


#: Flags, each with the arguments of argparse's ``add_argument``. Without a flag the job's default is used.
OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    _option(
        "--workers",
        "N",
        integer,
        "worker functions; a supervisor function comes on top (default 4, fewer for few rows)",
    ),
    _option(
        "--budget",
        "USD",
        number,
        "the most the run may cost, US dollars (default: no cap); without a stop rule the run trains until it is spent",
    ),
    _option("--target", "X", number, "end when the validation loss is at or below X"),
    _option(
        "--epochs",
        "N",
        number,
        "end after N passes over the training data (default: once the loss has settled, or the budget is spent)",
    ),
    _option("--steps", "N", integer, "end after N steps"),
    _option("--time-s", "S", number, "end S seconds after the functions were invoked"),
    _option("--patience", "N", integer, "end after N evaluations in a row without a better validation loss"),
    _option(
        "--confirmations", "N", integer, "evaluations in a row at or below the target that end the run (default 1)"
    ),
    _option("--scale-in", "on|off", scale_in, "remove workers when that pays (default on), or keep them all"),
    _option("--speculation", "K|off", speculation, "replace workers K times slower than the median (default 3)"),
    _option("--name", "NAME", str, "name of the run and of the notebook's variable for it (default run)"),
    _option(
        "--minibatch",
        "B",
        integer,
        "rows that one worker takes in a step (default: 36 steps an epoch, at most 6250 rows)",
    ),
    _option("--seed", "N", integer, "decides the split, the order of the rows and the first parameters (default 0)"),
    _option("--validation", "F", fraction, "fraction of the data to hold out, or none (default 0.1)"),
    _option("--aggregate", "HOW", str, "mean or sum of the workers' updates (default mean)"),
    _option("--local-steps", "H", integer, "minibatches a worker takes on its own in a step (default 1)"),
    _option("--codec", "NAME", str, "encoding of published values: float32 (default), bf16 or int8"),
    _option(
        "--pattern", "NAME", str, "how updates are exchanged: broadcast, scatter-reduce, allreduce or auto (default)"
    ),
    _option(
        "--store",
        "NAME",
        str,
        f"where updates are kept: {', '.join(store_forms())} (default redis)".replace("'", ""),
    ),
    _option("--partition", "BY", str, "how data is sharded across workers: rows, user or auto (default)"),
    _option(
        "--schedule",
        "HOW",
        str,
        "auto (default): cut the learning rate once the loss stops falling; or constant",
    ),
    _option("--execution", "HOW", str, "workers that live as long as the run (default), map-reduce or events"),
    _option("--backend", "B", str, "embedded (this machine, the default) or the name of a Lithops backend"),
    _option("--redis", "URL", str, "URL of Redis; if repeated, updates are sharded over the servers", action="append"),
    _option(
        "--redis-for-functions",
        "URL",
        str,
        "the same Redis as functions reach it, if the notebook goes another way (a tunnel); repeated as --redis",
        action="append",
    ),
    _option("--bus", "URL", str, "URL of the control bus: amqp://... for RabbitMQ"),
    _option("--prices", "PROFILE", str, "price profile that the run is billed by (default aws-lambda-x86)"),
    _option("--memory-mb", "MB", integer, "memory of a function; clouds price by it (default 1769)"),
    _option("--eval-every", "N", integer, "steps between two evaluations of the held-out rows"),
    _option("--checkpoint-every", "N", integer, "the most steps that are trained again when a function is lost"),
    _option("--resume", "NAME", str, "resume from an ended run of this name or id, with its optimiser's state"),
    _switch("--detach", "let the run go on when the kernel ends; %%mlless attach NAME finds it again"),
    _switch("--insecure", "allow Redis or RabbitMQ on another machine without TLS and a password"),
    _switch("--dry-run", "check the cell, say what it would take and what looks wrong, and start nothing"),
    _switch("--wait", "return when the run has ended, not at once"),
    _switch("--force", "start even if a run of this name is live, as NAME-2"),
    _option(
        "--on-interrupt",
        "stop|detach",
        str,
        "what an interrupt does while --wait waits: stop the run, or leave it running (default stop)",
        choices=("stop", "detach"),
    ),
)


def job_options(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """``given`` options (argparse's ``vars``), split into fields of the job and rules of `mlless_nb.Stop`."""
    fields = {name: value for name, value in given.items() if name not in BEHAVIOUR}
    rules = {rule: fields.pop(rule) for rule in STOP_RULES if rule in fields}
    for name in ("redis", "redis_for_functions"):
        if len(fields.get(name, ())) == 1:
            fields[name] = fields[name][0]
    return fields, rules
