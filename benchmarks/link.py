"""Training over a slow link: Redis in a network namespace of its own, behind a token bucket in both directions.

    python benchmarks/link.py [--rates 1gbit 100mbit] [--workers 8] [--runs 3] [--quick]

Needs Linux, root and iproute2 (``ip``, ``tc``); without them it says so and measures nothing.
"""

from __future__ import annotations

import contextlib
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

from report import Report, amount, parser, span, times
from runs import measure, medians
from sets import ml1m

from mlless_nb import BSP, ISP, PMF, SGD
from mlless_nb.driver.embedded_redis import find_programs

JOB = {
    "model": PMF(rank=20, l2=0.02),
    "optimizer": SGD(8.0, 0.8, nesterov=True, lazy=True),
    "minibatch": 6250,
    "partition": "rows",
}
PATTERNS = ("broadcast", "scatter-reduce")
#: Steps of a run by rate: BSP moves 27 MB a step with eight workers.
STEPS = {"100mbit": 40}
#: Both ends of the link; 198.18.0.0/15 is set aside for measurements.
HERE, THERE, PORT = "198.18.77.1", "198.18.77.2", 6379
#: A token bucket that lets whole segments through, and a queue as long as a switch's.
BUCKET, QUEUE = "256kb", "20ms"
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


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)


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


def shape(name: str, near: str, rate: str) -> None:
    """Limit the link to ``rate`` in either direction."""
    bucket = ("root", "tbf", "rate", rate, "burst", BUCKET, "latency", QUEUE)
    _run("tc", "qdisc", "replace", "dev", near, *bucket)
    _run("tc", "-n", name, "qdisc", "replace", "dev", near.replace("mla", "mlb"), *bucket)


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
    split, runs, cases = ml1m(), options.runs or (1 if options.quick else 3), []
    with namespace() as (name, near), redis_server(name) as url:
        for rate in options.rates:
            shape(name, near, rate)
            steps = 12 if options.quick else STEPS.get(rate, 120)
            seen: dict[str, Any] = {}
            for label, fields in variants():
                fields = {**JOB, **fields, "redis": url, "insecure": True}
                seen[label] = [measure(split, steps, options.workers, **fields) for _ in range(runs)]
            rows = []
            for label, measured in seen.items():
                ours = medians(measured)
                case = {"rate": rate, "P": options.workers, "variant": label, **ours}
                cases.append(case)
                base = next(one for one in cases if one["rate"] == rate)
                rows.append(
                    [
                        label,
                        span(one.step_ms for one in measured),
                        times(base["step_ms"], ours["step_ms"]),
                        amount(ours["sent_bytes"]),
                        amount(ours["received_bytes"]),
                        f"{measured[-1].run.history['loss'][-1]:.4f}",
                    ]
                )
            report.table(
                f"{split.label}, P={options.workers}, {rate} in either direction in front of Redis, {steps} steps",
                ["variant", "step, ms (range)", f"{next(iter(seen))} / this", "out", "in", "training RMSE at the end"],
                rows,
            )
    report.remark("Workers, Redis and the link share this machine; the link is a token bucket on a veth pair.")
    report.end(runs=runs, cases=cases)


if __name__ == "__main__":
    main()
