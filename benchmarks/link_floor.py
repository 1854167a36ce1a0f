"""What a step of many workers costs over a link of known latency and bandwidth, against the least that it can cost.

    python benchmarks/link_floor.py [--workers 24] [--rate 1gbit] [--round-trip-ms 1] [--runs 2] [--quick]

Redis is in a network namespace of its own behind a token bucket (`link.py`), and a relay delays all that goes to it and
comes from it (`delaying_relay.py`). A step needs the processor time that all processes spend in it over the
cores of this machine, all bytes to and from Redis over the link's bandwidth, and a round trip. Workers overlap them:
while some compute, the frames of others are on the link. So a step's floor is the longest of the three; their sum is
beside it.

Needs Linux, root and iproute2 (``ip``, ``tc``); without them it says so and measures nothing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import redis
from link import HERE, PORT, THERE, lost, missing, namespace, redis_server, shape
from report import Report, amount, median, number, parser, runs_of, span
from runs import SEALED, WARM_UP, measure
from sets import Split, folder_of_sets, named

from mlless_nb import BSP, ISP, PMF, SGD, Adam, LogisticRegression

#: Where the relay listens.
RELAY_PORT = 6380
#: Bits per second of a rate as ``tc`` writes it.
UNITS = {"gbit": 1e9, "mbit": 1e6}
#: The queue at both ends of the link: it takes all that a step's readers are sent at once, so that nothing is lost;
#: and one as long as a switch's.
LONG_QUEUE, SHORT_QUEUE = "400ms", "20ms"
STEPS, QUICK_STEPS = 300, 60
PINGS = 200


def bits_of(rate: str) -> float:
    """Bits per second of "1gbit" or "500mbit"."""
    for unit, bits in UNITS.items():
        if rate.endswith(unit):
            return float(rate.removesuffix(unit)) * bits
    raise SystemExit(f"--rate {rate}: must end with {' or '.join(UNITS)}")


@contextlib.contextmanager
def relay(one_way_s: float) -> Iterator[None]:
    """A relay in front of Redis, until the end."""
    script = str(Path(__file__).with_name("delaying_relay.py"))
    words = [HERE, str(RELAY_PORT), THERE, str(PORT), repr(one_way_s)]
    with subprocess.Popen([sys.executable, script, *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise SystemExit("the relay did not start")
            yield
        finally:
            process.kill()


def round_trip_of(url: str) -> float:
    """Seconds of a round trip to Redis when nothing else is under way: the relay and both ends take some of it."""
    with redis.Redis.from_url(url) as client:
        seconds = []
        for _ in range(PINGS):
            began = time.perf_counter()
            client.ping()
            seconds.append(time.perf_counter() - began)
    return median(seconds)


def variants(quick: bool) -> list[tuple[str, str, str, dict[str, Any]]]:
    """(name, data set, queue of the link, fields of `TrainingJob`): updates from some kilobytes to half a megabyte."""
    ratings: dict[str, Any] = {"model": PMF(rank=20, l2=0.02), "optimizer": SGD(8.0, 0.8, nesterov=True, lazy=True)}
    clicks: dict[str, Any] = {"model": LogisticRegression(), "optimizer": Adam(0.01, lazy=True)}
    by_user = {**ratings, "sync": ISP(0.7), "partition": "user", "minibatch": 1024}
    scattered = {**ratings, "sync": BSP(), "pattern": "scatter-reduce", "minibatch": 256}
    filtered, whole = ({**clicks, "sync": sync, "minibatch": 256} for sync in (ISP(0.7), BSP()))
    broadcast = {**whole, "pattern": "broadcast"}
    short = f"logistic regression, BSP, broadcast, a queue of {SHORT_QUEUE}"
    found = [
        ("PMF, ISP(0.7), by user", "ml1m", LONG_QUEUE, by_user),
        ("PMF, BSP, scatter-reduce", "ml1m", LONG_QUEUE, scattered),
        ("logistic regression, ISP(0.7)", "criteo", LONG_QUEUE, filtered),
        ("logistic regression, BSP", "criteo", LONG_QUEUE, whole),
        ("logistic regression, BSP, broadcast", "criteo", LONG_QUEUE, broadcast),
        (short, "criteo", SHORT_QUEUE, broadcast),
    ]
    return found[:1] if quick else found


def step(split: Split, steps: int, workers: int, bits: float, round_trip_s: float, **fields: Any) -> dict[str, float]:
    """One run: a step and the parts of its floor, ms."""
    done = measure(split, steps, workers, **fields)
    computing_ms = (done.functions_cpu_ms + done.redis_cpu_ms) * workers / (os.cpu_count() or 1)
    wire_ms = 8e3 * (done.sent_bytes + done.received_bytes) * workers / bits
    parts_ms = (computing_ms, wire_ms, round_trip_s * 1e3)
    # The mean, as processor time is one.
    step_ms = 1e3 * float(np.mean(np.diff(done.run.history["time_s"][WARM_UP:])))
    return {
        "step_ms": step_ms,
        "computing_ms": computing_ms,
        "wire_ms": wire_ms,
        "floor_ms": max(parts_ms),
        "times_floor": step_ms / max(parts_ms),
        "sum_ms": sum(parts_ms),
        "times_sum": step_ms / sum(parts_ms),
        "sent_bytes": done.sent_bytes,
        "moved_bytes": (done.sent_bytes + done.received_bytes) * workers,
    }


def main() -> None:
    """Measure and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--workers", type=int, default=24)
    arguments.add_argument("--rate", default="1gbit")
    arguments.add_argument("--round-trip-ms", type=float, default=1.0)
    arguments.add_argument("--steps", type=int, default=None)
    options = arguments.parse_args()
    report = Report(
        "link_floor", "How near is a step of many workers to the least that it can cost over a cloud's link?"
    )
    reason = missing()
    if reason is not None:
        report.remark(f"Skipped: {reason}.")
        report.end(skipped=reason)
        return
    bits = bits_of(options.rate)
    steps = options.steps or (QUICK_STEPS if options.quick else STEPS)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the namespace goes also when this is asked to end
    cases, rows, labels, optimizers = [], [], dict[str, None](), dict[str, None]()
    with namespace() as (name, near), redis_server(name) as url, relay(options.round_trip_ms / 2e3):
        shape(name, near, options.rate, LONG_QUEUE)
        url = url.replace(f"{THERE}:{PORT}", f"{HERE}:{RELAY_PORT}")
        round_trip_s = round_trip_of(url)
        for label, data, queue, fields in variants(options.quick):
            split = named(data, folder_of_sets(options.sets))
            labels[split.label] = None
            job = {**fields, "redis": url, "insecure": True}
            optimizers[str(fields["optimizer"])] = None
            shape(name, near, options.rate, queue)
            before = lost(name, near)
            found = [step(split, steps, options.workers, bits, round_trip_s, **job) for _ in range(runs_of(options))]
            ours = {key: median(one[key] for one in found) for key in found[0]}
            ours["lost_packets"] = (lost(name, near) - before) / (steps * len(found))
            cases.append({"variant": label, "P": options.workers, "runs": len(found), **ours})
            rows.append(
                [
                    label,
                    span(one["step_ms"] for one in found),
                    *(
                        ours[key]
                        for key in ("computing_ms", "wire_ms", "floor_ms", "times_floor", "sum_ms", "times_sum")
                    ),
                    amount(ours["sent_bytes"]),
                    amount(ours["moved_bytes"]),
                    ours["lost_packets"],
                ]
            )
    report.table(
        f"P={options.workers}, {options.rate} in either direction in front of Redis, held up for "
        f"{options.round_trip_ms:g} ms: a round trip takes {number(round_trip_s * 1e3)} ms; {', '.join(optimizers)}; "
        "users of ratings sharded",
        [
            "variant",
            "step, ms (range)",
            "computing, ms",
            "bytes over bandwidth, ms",
            "floor, ms",
            "step / floor",
            "one after the other, ms",
            "step / one after the other",
            "sent by a worker",
            "moved by all",
            "packets lost in a step",
        ],
        rows,
    )
    report.remark(
        f"{'; '.join(labels)}. The floor is the longest of computing, bytes over bandwidth, and one round trip, which "
        "workers overlap; one after the other is their sum: below 1 a step has overlapped them. A step is the mean of "
        "a run's, as computing is. Computing is the processor time of all workers, of the supervisor, of Redis and of "
        f"the relay in a step, over the {os.cpu_count()} cores that they share here: on a cloud each worker has a core "
        "of its own, and computing is a worker's alone. So many processes on so few cores also wait for each other's "
        "turns. Scatter-reduce takes two exchanges a step, the second of which needs what the first has brought: two "
        "round trips at least. Where nothing else is said the pattern is left open: the run has measured the link, and "
        "chosen."
    )
    report.remark(
        "Redis sends the frames of a step to all workers at once. The queue in front of the link holds them "
        f"({LONG_QUEUE} of the link's bandwidth), except in the last row: there it throws away what waits for longer "
        f"than {SHORT_QUEUE}. Linux then tries to send the rest of a reply 200 ms later if nothing else of that "
        "connection is on its way, and all workers wait for the one whose reply that is. A bare client that reads as "
        "much on as many connections, without a relay or any worker, sees the same. Fewer bytes at once help: "
        "scatter-reduce, or ISP."
    )
    report.remark(SEALED)
    report.end(cases=cases, rate=options.rate, round_trip_ms=round_trip_s * 1e3)


if __name__ == "__main__":
    main()
