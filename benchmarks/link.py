"""Training over a slow link, to the same held-out loss: Redis is behind a token bucket in both directions.

    python benchmarks/link.py [--rates 1gbit 100mbit] [--workers 8] [--runs 3] [--quick]

What publishes less takes more steps to a loss, and each of them is quicker: only seconds to the same loss can tell what
is won. Redis runs in a network namespace of its own.

Needs Linux, root and iproute2 (``ip``, ``tc``); without them it says so and measures nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from report import Report, amount, least_in_bold, median, number, parser, runs_of, span, times
from runs import SEALED, measure, packing_s
from sets import Split, ml1m

from mlless_nb import BSP, ISP, PMF, SGD, Stop
from mlless_nb.driver.servers.embedded_redis import find_programs

JOB = {
    "model": PMF(rank=20, l2=0.05),
    "optimizer": SGD(30.0, 0.9, nesterov=True, lazy=True),
    "minibatch": 6250,
    "partition": "rows",
    "eval_every": 5,
}
PATTERNS = ("broadcast", "scatter-reduce")
#: The held-out RMSE that all are to reach, and the steps after which one that did not is given up.
TARGET, QUICK_TARGET, MOST_STEPS = 0.93, 1.0, 150
#: Runs at most by rate: BSP moves 27 MB a step with eight workers, and the link sets the pace.
MOST_RUNS = {"100mbit": 1}
#: Both ends of the link; 198.18.0.0/15 is set aside for measurements.
HERE, THERE, PORT = "198.18.77.1", "198.18.77.2", 6379
#: A token bucket that lets whole segments through, and a queue that takes all that a step's readers are sent at once:
#: what a short one throws away is sent again only 200 ms later (`link_floor.py`), whatever the protocol.
BUCKET, QUEUE = "256kb", "3s"
START_S = 5.0


def missing() -> str | None:
    """Why a link cannot be shaped here, None where it can."""
    if not sys.platform.startswith("linux"):
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "making a network namespace needs root"
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            return f"there is no {program}: install iproute2"
    return None


def _run(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@contextlib.contextmanager
def namespace() -> Iterator[tuple[str, str]]:
    """(name of a network namespace, name of this side's end of the link to it); both are gone afterwards."""
    name, near, far = f"mlless-{os.getpid()}", f"mla{os.getpid()}", f"mlb{os.getpid()}"
    try:
        _run("ip", "netns", "add", name)
        _run("ip", "link", "add", near, "type", "veth", "peer", "name", far)
        _run("ip", "link", "set", far, "netns", name)
        _run("ip", "addr", "add", f"{HERE}/30", "dev", near)
        _run("ip", "link", "set", near, "up")
        _run("ip", "-n", name, "addr", "add", f"{THERE}/30", "dev", far)
        _run("ip", "-n", name, "link", "set", far, "up")
        _run("ip", "-n", name, "link", "set", "lo", "up")
        yield name, near
    finally:
        for words in (("ip", "link", "del", near), ("ip", "netns", "del", name)):
            subprocess.run(words, check=False, capture_output=True)


def shape(name: str, near: str, rate: str, queue: str = QUEUE) -> None:
    """Limit the link to ``rate`` in either direction; what would wait for longer than ``queue`` is lost."""
    bucket = ("root", "tbf", "rate", rate, "burst", BUCKET, "latency", queue)
    _run("tc", "qdisc", "replace", "dev", near, *bucket)
    _run("tc", "-n", name, "qdisc", "replace", "dev", near.replace("mla", "mlb"), *bucket)


def lost(name: str, near: str) -> int:
    """Packets that the queues at both ends of the link have thrown away so far."""
    ends = ((), near), (("-n", name), near.replace("mla", "mlb"))
    said = [json.loads(_run("tc", *where, "-s", "-j", "qdisc", "show", "dev", end)) for where, end in ends]
    return sum(int(one["drops"]) for found in said for one in found)


@contextlib.contextmanager
def redis_server(name: str) -> Iterator[str]:
    """URL of a Redis server inside the namespace."""
    import redis

    password = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="mlless-link-") as folder:
        config = f'bind {THERE}\nport {PORT}\nrequirepass {password}\nsave ""\nappendonly no\ndir {folder}\n'
        process = subprocess.Popen(
            ["ip", "netns", "exec", name, next(find_programs()), "-"],  # the password is not for the process list
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        try:
            process.stdin.write(config)  # type: ignore[union-attr]
            process.stdin.close()  # type: ignore[union-attr]
            client = redis.Redis(THERE, PORT, password=password, socket_connect_timeout=1.0)
            give_up_at = time.monotonic() + START_S
            while True:
                try:
                    client.ping()
                    break
                except redis.exceptions.RedisError:
                    if time.monotonic() > give_up_at:
                        raise
                    time.sleep(0.05)
            client.close()
            yield f"redis://:{password}@{THERE}:{PORT}/0"
        finally:
            process.kill()
            process.wait()


def variants() -> list[tuple[str, dict[str, Any]]]:
    """(name, fields of `TrainingJob`)."""
    found: list[tuple[str, dict[str, Any]]] = [
        ("BSP", {"sync": BSP()}),
        ("ISP(0.7)", {"sync": ISP(0.7)}),
        ("ISP(0.7), bf16", {"sync": ISP(0.7), "codec": "bf16"}),
    ]
    return [(f"{name}, {pattern}", {**fields, "pattern": pattern}) for name, fields in found for pattern in PATTERNS]


def reach(split: Split, workers: int, target: float, **fields: Any) -> dict[str, Any]:
    """One run to a held-out loss, and what it took to get there."""
    done = measure(split, MOST_STEPS, workers, stop=Stop(target=target, steps=MOST_STEPS), **JOB, **fields)
    history = done.run.history
    there = np.flatnonzero(history["validation_loss"] <= target)
    nothing = float("nan")
    return done.figures | {
        # The first step began a step before it ended.
        "target_s": float(history["time_s"][there[0]] - history["time_s"][0] + done.step_ms / 1e3)
        if there.size
        else nothing,
        "target_step": float(history["step"][there[0]]) if there.size else nothing,
        "sent_to_target": float(history["sent_bytes"][: there[0] + 1].sum()) / workers if there.size else nothing,
        "packed_s": packing_s(done.run.job),
    }


def main() -> None:
    """Measure and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--rates", nargs="+", default=["1gbit", "100mbit"])
    arguments.add_argument("--workers", type=int, default=8)
    options = arguments.parse_args()
    report = Report("link", "What do ISP, codecs and scatter-reduce bring when Redis is behind a slow link?")
    reason = missing()
    if reason is not None:
        report.remark(f"Skipped: {reason}.")
        report.end(skipped=reason)
        return
    # The namespace goes also when this is asked to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    split, cases, target = ml1m(), [], QUICK_TARGET if options.quick else TARGET
    with namespace() as (name, near), redis_server(name) as url:
        for rate in options.rates:
            shape(name, near, rate)
            seen: dict[str, list[dict[str, Any]]] = {}
            for label, fields in variants():
                fields = {**fields, "redis": url, "insecure": True}
                runs = runs_of(options, MOST_RUNS.get(rate))
                seen[label] = [reach(split, options.workers, target, **fields) for _ in range(runs)]
            rows = []
            for label, found in seen.items():
                ours = {key: median(one[key] for one in found) for key in found[0]}
                cases.append({"rate": rate, "P": options.workers, "variant": label, "runs": len(found), **ours})
                base = next(one for one in cases if one["rate"] == rate)
                rows.append(
                    [
                        label,
                        number(ours["target_s"]) if ours["target_s"] == ours["target_s"] else "not reached",
                        times(base["target_s"], ours["target_s"]),
                        number(ours["target_step"]),
                        amount(ours["sent_to_target"]) if ours["target_s"] == ours["target_s"] else "-",
                        span(one["step_ms"] for one in found),
                        ours["startup_s"],
                        ours["packed_s"],
                        ours["target_s"] + ours["startup_s"] + ours["packed_s"],
                    ]
                )
            report.table(
                f"{split.label}, P={options.workers}, partition='rows', {JOB['optimizer']}, {rate} in either direction "
                f"in front of Redis: to a held-out RMSE of {target:g}",
                [
                    "variant",
                    "training, s",
                    f"{next(iter(seen))} / this",
                    "steps",
                    "published by a worker",
                    "step, ms (range)",
                    "start-up, s",
                    "packing, s",
                    "all of it, s",
                ],
                least_in_bold(rows, 8),
            )
    report.remark(
        "Held-out rows are evaluated every 5 steps. All of it is training, the start-up (from the call to the end of "
        "the first step) and packing, which is done once for the data; the quickest is in bold. Workers, Redis and the "
        "link share this machine; the link is a token bucket on a veth pair. What has no range was run once."
    )
    report.remark(SEALED)
    report.end(target=target, cases=cases)


if __name__ == "__main__":
    main()
