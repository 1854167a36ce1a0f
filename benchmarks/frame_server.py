"""Pushing and pulling frames through the frame server, and through one like it over gRPC, with TLS and a token.

    python benchmarks/frame_server.py [--workers 1 4] [--runs 9] [--quick]

Each server is a process, and so is each worker. A worker has a connection to every server. It pushes a frame of its own
and pulls that of the next worker, again and again, through one way at a time: the ways take turns of some tenths of a
second, each turn beginning with another one.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from report import NOT_INSTALLED, Report, descendants, median, number, parser, runs_of, span, version
from store_servers import frame_server

from mlless_nb.clouds.archive import pack
from mlless_nb.clouds.packages import prune
from mlless_nb.exchange.stores import open_store
from mlless_nb.function.malloc import keep_memory
from mlless_nb.server import make_certificate
from mlless_nb.storage.objects import MemoryObjects

OURS = "ours"
#: Bytes of a frame, and how often a worker pushes and pulls in a turn. With --quick: the first sizes, less often.
SIZES = {224: 150, 12_000: 150, 418_000: 40, 12_000_000: 3, 89_000_000: 1}
QUICK_SIZES, QUICK_SHARE = 3, 10
PREFIX = "mlless:bench:"
#: What gRPC needs and a function's layer does not have.
DISTRIBUTIONS = ("grpcio", "typing_extensions")
IMPORTED = """
import time, mlless_nb.function.entry
began = time.perf_counter()
import grpc
print(time.perf_counter() - began)
"""


class Turn(NamedTuple):
    """Of one turn: seconds of a push and of a pull, means over the workers; processor seconds of all processes."""

    push_s: float
    pull_s: float
    cpu_s: float

    @property
    def round_s(self) -> float:
        """Seconds of a push and a pull."""
        return self.push_s + self.pull_s


class Ours:
    """Pushes and pulls frames as a worker does."""

    def __init__(self, url: str) -> None:
        store = open_store(url, PREFIX, MemoryObjects())
        assert store is not None
        self._store = store

    def push(self, key: str, frame: bytes) -> None:
        """Push ``frame``; the server has it when this returns."""
        self._store.put_many({key: frame})

    def pull(self, key: str) -> Any:
        """The frame of ``key``."""
        return self._store.get_many([key])[0]


def work(slot: int, workers: int, servers: dict[str, str], certificate: str, token: str) -> None:
    """A worker: do what the lines of stdin say, (way, bytes of a frame, count), and answer each with two numbers."""
    keep_memory()  # as functions do
    clients: dict[str, Any] = {OURS: Ours(servers.pop(OURS))}
    for way, port in servers.items():
        import grpc_frames

        clients[way] = grpc_frames.client(way.split(", ")[0], port, Path(certificate), token)
    own, peers, frame = f"{PREFIX}{slot}", f"{PREFIX}{(slot + 1) % workers}", b""
    for line in sys.stdin:
        way, n_bytes, count = json.loads(line)
        if len(frame) != n_bytes:
            frame = np.random.default_rng(slot).bytes(n_bytes)
        client, push_s, pull_s = clients[way], 0.0, 0.0
        if not count:  # that peers find a frame of this size
            client.push(own, frame)
        for _ in range(count):
            began = time.perf_counter()
            client.push(own, frame)
            pushed = time.perf_counter()
            found = client.pull(peers)
            push_s, pull_s = push_s + pushed - began, pull_s + time.perf_counter() - pushed
            assert len(found) == n_bytes
        print(json.dumps([push_s, pull_s]), flush=True)


class Workers:
    """The processes of the workers."""

    def __init__(self, count: int, servers: dict[str, str], certificate: Path, token: str) -> None:
        self._processes = [
            subprocess.Popen(
                [sys.executable, __file__, "--child", json.dumps([slot, count, servers, str(certificate), token])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for slot in range(count)
        ]

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.communicate()

    def turn(self, way: str, n_bytes: int, count: int) -> Turn:
        """All workers push and pull ``count`` times through ``way``, at the same time."""
        before = sum(usage.cpu_s for usage in descendants().values())
        for process in self._processes:
            assert process.stdin is not None
            print(json.dumps([way, n_bytes, count]), file=process.stdin, flush=True)
        answers = [json.loads(process.stdout.readline()) for process in self._processes if process.stdout is not None]
        cpu_s = sum(usage.cpu_s for usage in descendants().values()) - before
        push_s, pull_s = (float(np.mean(seconds)) / max(count, 1) for seconds in zip(*answers, strict=True))
        return Turn(push_s, pull_s, cpu_s)


@contextlib.contextmanager
def servers_of(certificate: Path, key: Path, token: str, with_grpc: bool) -> Iterator[dict[str, str]]:
    """The addresses of the servers, by way; gRPC's unary calls and streams share a server of either kind."""
    with contextlib.ExitStack() as running:
        options = ("--certificate", str(certificate), "--key", str(key))
        found = {OURS: running.enter_context(frame_server(*options))}
        if with_grpc:
            import grpc_frames

            kinds = dict.fromkeys(server for _, server in grpc_frames.WAYS)
            ports = {kind: running.enter_context(grpc_frames.serving(kind, certificate, key, token)) for kind in kinds}
            found |= {f"{call}, {server}": ports[server] for call, server in grpc_frames.WAYS}
        yield found


def compare(workers: Workers, ways: Sequence[str], n_bytes: int, count: int, turns: int) -> dict[str, list[Turn]]:
    """The turns of each way."""
    for way in ways:
        workers.turn(way, n_bytes, 0)
        workers.turn(way, n_bytes, 1)
    found: dict[str, list[Turn]] = {way: [] for way in ways}
    for turn in range(turns):
        first = turn % len(ways)
        for way in (*ways[first:], *ways[:first]):
            found[way].append(workers.turn(way, n_bytes, count))
    return found


def weight() -> tuple[float, float]:
    """(MB unzipped, MB zipped) of `DISTRIBUTIONS` in a layer: without the files that functions do not need."""
    with tempfile.TemporaryDirectory() as folder:
        for name in DISTRIBUTIONS:
            for file in metadata.files(name) or ():
                if file.suffix != ".pyc" and ".." not in file.parts:
                    target = Path(folder, "layer", file)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(str(file.locate()), target)
        prune(Path(folder, "layer"))
        unzipped = pack(Path(folder, "layer"), Path(folder, "layer.zip"))
        return unzipped / 1e6, Path(folder, "layer.zip").stat().st_size / 1e6


def import_s() -> float:
    """Seconds that importing gRPC takes in a new function, after what each function imports."""
    # -P: run beside the checkout's own folders, the package would be taken from there.
    answer = subprocess.run([sys.executable, "-P", "-c", IMPORTED], stdout=subprocess.PIPE, check=True, text=True)
    return float(answer.stdout)


def row_of(found: dict[str, list[Turn]], count: int, workers: int) -> tuple[list[Any], dict[str, Any]]:
    """(cells, figures) of one size: each way's milliseconds, and the best of gRPC's against ours, turn by turn."""
    ms = {way: median(1e3 * turn.round_s for turn in turns) for way, turns in found.items()}
    cells = [span(1e3 * turn.round_s for turn in found[OURS]), *(ms[way] for way in found if way != OURS)]
    best = min((way for way in found if way != OURS), key=ms.__getitem__, default=None)
    if best is None:
        return [*cells, *[NOT_INSTALLED] * 6], {"ms": ms}

    def ratios(of: Callable[[Turn], float]) -> list[float]:
        return [of(theirs) / of(ours) for theirs, ours in zip(found[best], found[OURS], strict=True)]

    whole, pushes, pulls = ratios(lambda t: t.round_s), ratios(lambda t: t.push_s), ratios(lambda t: t.pull_s)
    cpu = [1e3 * sum(turn.cpu_s for turn in found[way]) / (len(found[way]) * count * workers) for way in (OURS, best)]
    cells += [best, span(whole), median(pushes), median(pulls), *cpu]
    return cells, {"ms": ms, "best": best, "ratio": median(whole), "cpu_ms": cpu}


def main() -> None:
    """Measure and report."""
    arguments = parser(__doc__)
    arguments.add_argument("--workers", type=int, nargs="+", default=[1, 4])
    arguments.add_argument("--child", metavar="JSON", help="(used by the benchmark itself)")
    options = arguments.parse_args()
    if options.child:
        work(*json.loads(options.child))
        return
    report = Report("frame_server", "Is a frame pushed and pulled sooner through the frame server or over gRPC?")
    grpcio, runs = version("grpcio"), runs_of(options)
    cold_s = [import_s() for _ in range(runs)] if grpcio else []
    sizes = (
        {n: max(count // QUICK_SHARE, 1) for n, count in list(SIZES.items())[:QUICK_SIZES]} if options.quick else SIZES
    )
    rows, cases = [], []
    token = os.environ["MLLESS_SERVER_TOKEN"] = secrets.token_urlsafe(24)
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = make_certificate(Path(folder))
        with servers_of(certificate, key, token, grpcio is not None) as servers:
            for workers in options.workers:
                with Workers(workers, servers, certificate, token) as processes:
                    for n_bytes, count in sizes.items():
                        found = compare(processes, list(servers), n_bytes, count, runs)
                        cells, figures = row_of(found, count, workers)
                        rows.append([f"{n_bytes:,} B, P={workers}", *cells])
                        cases.append({"bytes": n_bytes, "P": workers, **figures})
    ways = [f"gRPC: {way}" for way in list(servers)[1:] or ["-"]]
    ratio = "best of gRPC / ours (range)"
    columns = ["ours (range)", *ways, "best of gRPC", ratio, "of a push", "of a pull", "ours, CPU-ms", "gRPC, CPU-ms"]
    report.table(
        f"Milliseconds of a push and a pull, grpcio {grpcio or NOT_INSTALLED}, {runs} turns",
        ["frame, workers", *columns],
        rows,
    )
    sooner = [f"{case['bytes']:,} B with P={case['P']}" for case in cases if case.get("ratio", 1.0) < 1]
    report.remark(
        f"gRPC is sooner {'with frames of ' + ', '.join(sooner) if sooner else 'nowhere'}. Ratios are medians of those "
        "of single turns, for the way of gRPC with the least median of each row; its four ways are unary calls or one "
        "stream, with a server of threads or of asyncio. Both sides have the same certificate, a token, the same "
        "table under its lock, and no Protocol Buffers; gRPC's limits on messages are lifted. CPU-ms are of the "
        "client and of the server, for a push and a pull; the kernel counts them in ticks of 10 ms. All processes "
        f"share {os.cpu_count()} cores."
    )
    if grpcio:
        unzipped_mb, zipped_mb = weight()
        report.remark(
            f"In a function grpcio and what it needs would take {unzipped_mb:.1f} MB unzipped, {zipped_mb:.1f} MB "
            f"zipped, beside the layer of docs/clouds.md, and importing it {number(1e3 * median(cold_s))} ms (files in "
            "the page cache), after what each function imports; ours needs neither."
        )
        cases.append({"unzipped_mb": unzipped_mb, "zipped_mb": zipped_mb, "import_s": median(cold_s)})
    report.end(runs=runs, cases=cases)


if __name__ == "__main__":
    main()
