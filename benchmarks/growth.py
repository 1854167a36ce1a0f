"""How a step grows with the workers: broadcast against scatter-reduce, one Redis server against two.

python benchmarks/growth.py [--workers 2 4 8 12 16 24] [--servers 1 2] [--runs 5] [--quick]
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

from report import Report, amount, parser, runs_of, span, times
from runs import SEALED, Measured, measure, medians
from sets import ml1m

from mlless_nb import BSP, ISP, PMF, SGD
from mlless_nb.driver.servers.embedded_redis import EmbeddedRedis

PATTERNS = ("broadcast", "scatter-reduce")
#: Where a second server is tried, of those that are asked for: with few workers it says little.
SHARDED_WORKERS = (8, 24)
#: What the paper reports of its figure 10.
PAPER = (
    "MLLess (journal, figure 10), PMF on MovieLens-20M to RMSE 0.77: a second Redis server changes next to nothing "
    "with few workers, brings 1.4 times the speed with 64, and 10 % less time with 96; the steps to the loss become "
    "fewer up to 96 workers. There servers and workers have machines of their own, here they share one."
)
JOB = {
    "model": PMF(rank=20, l2=0.02),
    "optimizer": SGD(8.0, 0.8, nesterov=True, lazy=True),
    "minibatch": 6250,
    "partition": "rows",
}


@contextlib.contextmanager
def servers(count: int) -> Iterator[list[str]]:
    """URLs of so many private Redis servers on unix sockets."""
    with contextlib.ExitStack() as stack:
        started = [EmbeddedRedis().start() for _ in range(count)]
        for server in started:
            stack.callback(server.close)
        yield [server.url for server in started]


def main() -> None:
    """Measure and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--workers", type=int, nargs="+", default=[2, 4, 8, 12, 16, 24])
    arguments.add_argument("--servers", type=int, nargs="+", default=[1, 2])
    options = arguments.parse_args()
    split, runs = ml1m(), runs_of(options)
    report = Report("growth", "How do a worker's bytes and the step's time grow with the number of workers?")
    asked = [
        (sync, n_servers, workers, pattern)
        for sync, n_servers, workers, pattern in itertools.product(
            (BSP(), ISP(0.7)), options.servers, options.workers, PATTERNS
        )
        if n_servers == 1 or workers in SHARDED_WORKERS
    ]
    found: dict[Any, list[Measured]] = {one: [] for one in asked}
    for _ in range(runs):  # in turns, so that what else goes on meanwhile falls on all alike
        for one in asked:
            sync, n_servers, workers, pattern = one
            steps = max(20, 240 // workers) if options.quick else max(40, 1440 // workers)
            with servers(n_servers) as urls:
                found[one].append(measure(split, steps, workers, sync=sync, redis=urls, pattern=pattern, **JOB))
    cases: list[dict[str, Any]] = []
    for sync in (BSP(), ISP(0.7)):
        rows = []
        for n_servers in options.servers:
            for workers in options.workers:
                if (sync, n_servers, workers, PATTERNS[0]) not in found:
                    continue
                step_ms = {}
                for pattern in PATTERNS:
                    measured = found[sync, n_servers, workers, pattern]
                    ours = medians(measured)
                    step_ms[pattern] = ours["step_ms"]
                    # What a worker would publish were it to broadcast: its own update.
                    moved = ours["sent_bytes"] + ours["received_bytes"]
                    own = next(
                        (one["sent_bytes"] for one in cases if _is_same(one, str(sync), n_servers, workers)),
                        ours["sent_bytes"],
                    )
                    cases.append(
                        {"P": workers, "servers": n_servers, "sync": str(sync), "pattern": pattern, **ours}
                        | {"own_update_bytes": own, "moved_over_own": moved / own}
                    )
                    rows.append(
                        [
                            f"{workers}, {pattern}, {n_servers} server{'s' if n_servers > 1 else ''}",
                            span(one.step_ms for one in measured),
                            times(step_ms["broadcast"], step_ms[pattern]),
                            amount(ours["sent_bytes"]),
                            amount(ours["received_bytes"]),
                            moved / own,
                            ours["functions_cpu_ms"],
                            ours["redis_cpu_ms"],
                        ]
                    )
        report.table(
            f"{split.label}, {sync}, minibatches of 6,250, partition='rows', {JOB['optimizer']}",
            [
                "P, pattern, servers",
                "step, ms (range)",
                "broadcast / this",
                "out",
                "in",
                "(out + in) / own update",
                "CPU-ms a worker",
                "of Redis",
            ],
            rows,
        )
    report.remark(
        "Workers share this machine's cores: beyond one a core, the step's time grows with their number all the same."
    )
    report.remark(SEALED)
    report.remark(PAPER)
    report.end(runs=runs, cases=cases)


def _is_same(case: dict[str, Any], sync: str, n_servers: int, workers: int) -> bool:
    """Whether ``case`` is the broadcast of the same."""
    return (case["sync"], case["servers"], case["P"], case["pattern"]) == (sync, n_servers, workers, "broadcast")


if __name__ == "__main__":
    main()
