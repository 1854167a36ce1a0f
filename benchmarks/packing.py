"""What a first run pays for requests to the object storage, and what packing its data takes; nothing is packed before.

python benchmarks/packing.py [--data ml1m syn10m] [--runs 5] [--sets FOLDER] [--quick]
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from report import Report, amount, median, parser, runs_of, span
from sets import folder_of_sets, ml1m, syn10m

import mlless_nb
from mlless_nb import ISP, PMF, SGD, Stop, TrainingJob
from mlless_nb.data.prepare import write
from mlless_nb.storage.objects import MemoryObjects

#: What is run: the quick start's cell, and a first look at ten million ratings. Workers, epochs, with --quick.
CASES = {"ml1m": (4, 25, 5), "syn10m": (8, 3, 1)}
MINIBATCH = 6250


class Emptied(MemoryObjects):
    """A storage that takes what it is given, and keeps how much that was."""

    n_bytes = 0

    def put(self, key: str, blob: bytes) -> None:
        """See `ObjectStore`."""
        self.puts += 1
        self.n_bytes += len(blob)


def rss_mib() -> float:
    """The most memory that this process had so far, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 2**20)


def measure(data: str, folder: str | None, epochs: float) -> dict[str, float]:
    """Pack the training rows into nothing, then a whole run that packs them anew."""
    split, workers = {"ml1m": ml1m, "syn10m": lambda: syn10m(folder_of_sets(folder))}[data](), CASES[data][0]
    owners, objects = split.train.owners(workers), Emptied()
    split.train.fingerprint()
    before, began, cpu = rss_mib(), time.perf_counter(), time.process_time()
    write(split.train, MINIBATCH, 0, objects, owners)
    packed_s, packed_cpu_s, packed_mib = time.perf_counter() - began, time.process_time() - cpu, rss_mib() - before
    called = time.perf_counter()
    model, optimizer = PMF(rank=20, l2=0.05), SGD(30.0, momentum=0.9, nesterov=True)
    job = TrainingJob(
        model,
        optimizer,
        split.train,
        sync=ISP(0.7),
        workers=workers,
        minibatch=MINIBATCH,
        stop=Stop(epochs=epochs),
        validation=split.held_out,
    )
    run = mlless_nb.train(job)
    while run.telemetry.n_rows == 0 and run.telemetry.state.is_live:
        time.sleep(0.001)
    first_s = time.perf_counter() - called
    run.wait()
    if run.status != "finished":
        raise SystemExit(f"the run ended as {run.status}: {run.reason}")
    stored = [path for path in Path(tempfile.gettempdir()).glob("**/datasets/*/*") if path.is_file()]
    return {
        "packed_s": packed_s,
        "packed_cpu_s": packed_cpu_s,
        "packed_mib": packed_mib,
        "packed_bytes": objects.n_bytes,
        "first_s": first_s,
        "objects": len(stored),
        "storage_microusd": 1e6 * run.cost.storage,
        "bill_microusd": 1e6 * run.cost.total,
        "share_percent": 100 * run.cost.storage / run.cost.total,
    }


def in_fresh_interpreter(data: str, sets: str | None, epochs: float, cold: str) -> dict[str, float]:
    """`measure` in a new interpreter with a new temporary folder in ``cold``."""
    command = [sys.executable, __file__, "--child", str(epochs), "--data", data]
    answer = subprocess.run(
        [*command, *(["--sets", sets] if sets else [])],
        env={**os.environ, "TMPDIR": tempfile.mkdtemp(dir=cold)},
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    return json.loads(answer.stdout.strip().splitlines()[-1])


def main() -> None:
    """Measure and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--data", choices=list(CASES), nargs="+", default=list(CASES))
    arguments.add_argument("--child", type=float, help="(used by the benchmark itself)")
    options = arguments.parse_args()
    if options.child is not None:
        print(json.dumps(measure(options.data[0], options.sets, options.child)))
        return
    report = Report(
        "packing", "What does a first run pay for requests to the object storage, and how long is its data packed?"
    )
    rows: list[list[Any]] = []
    cases = []
    with tempfile.TemporaryDirectory(prefix="mlless-cold-") as cold:
        for data in options.data:
            workers, epochs, quick_epochs = CASES[data]
            epochs = quick_epochs if options.quick else epochs
            found = [in_fresh_interpreter(data, options.sets, epochs, cold) for _ in range(runs_of(options))]
            middle = {name: median(one[name] for one in found) for name in found[0]}
            rows.append(
                [
                    f"{data}, P={workers}, {epochs} epochs",
                    span(one["packed_s"] for one in found),
                    middle["packed_cpu_s"],
                    f"{middle['packed_mib']:.0f} MiB",
                    amount(middle["packed_bytes"]),
                    span(one["first_s"] for one in found),
                    int(middle["objects"]),
                    f"${middle['storage_microusd'] / 1e6:.6f} of ${middle['bill_microusd'] / 1e6:.6f}",
                    span(one["share_percent"] for one in found),
                ]
            )
            cases.append({"data": data, "P": workers, "epochs": epochs, **middle})
    columns = ("packing, s", "CPU-s", "memory", "packed", "first step seen, s", "objects", "requests", "% of the bill")
    report.table(f"First runs, minibatches of {MINIBATCH:,} rows", ["data", *columns], rows)
    report.remark(
        "Packing is that of the training rows, users sharded across workers, into a storage that keeps nothing; "
        "memory is what it took beyond the data's. Requests are those of the whole run: packing, reading, "
        "checkpoints, the model. The run is a new one, for which nothing is packed; its first step is seen so long "
        "after the call of `train`."
    )
    report.end(cases=cases)


if __name__ == "__main__":
    main()
