"""Ten million rows of CSV and Parquet become a data set within twice the memory of their table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

N, PART = 10_000_000, 1_000_000
#: Run in a process of its own: the memory that is resident at most, less what imports have taken, bytes.
READ = """
import json, resource, sys
import numpy, pyarrow.csv, pyarrow.parquet, scipy.sparse
from mlless_nb import datasets
def peak():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
before = peak()
path, kind = sys.argv[1:]
if kind == "ratings":
    data = datasets.ratings(path, user="user", item="film", rating="stars", time="at")
else:
    data = datasets.table(path, label="stars", features=["user", "film", "at"], hashed=["user"])
    n = sum(minibatch.n for minibatch in data.minibatches(100_000, 0))
    assert n == data.n
assert data.n == int(sys.stdin.read())
print(json.dumps(peak() - before))
"""


def written(folder: Path, suffix: str) -> tuple[Path, int]:
    """A file of N ratings, and the size of its table in memory, bytes."""
    rng, path, n_bytes = np.random.default_rng(0), folder / f"ratings{suffix}", 0
    names = pa.array([f"user-{number}" for number in range(200_000)])
    writer = None
    for _ in range(N // PART):
        part = pa.table({
            "user": names.take(pa.array(rng.integers(0, 200_000, PART))),
            "film": rng.integers(1, 20_000, PART),
            "stars": rng.integers(1, 11, PART) / 2,
            "at": rng.integers(1_500_000_000, 1_600_000_000, PART),
        })  # fmt: skip
        n_bytes += part.nbytes
        if writer is None:
            kind = pq.ParquetWriter if suffix == ".parquet" else pyarrow.csv.CSVWriter
            writer = kind(path, part.schema)
        writer.write_table(part)
    assert writer is not None
    writer.close()
    return path, n_bytes


@pytest.mark.proof
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_files_are_read_within_twice_the_memory_of_their_table(tmp_path: Path, suffix: str) -> None:
    path, n_bytes = written(tmp_path, suffix)
    for kind in ("ratings", "table"):
        command = [sys.executable, "-c", READ, str(path), kind]
        done = subprocess.run(command, input=str(N), cwd=tmp_path, capture_output=True, text=True, check=True)
        peak = json.loads(done.stdout)
        print(f"{path.name} as {kind}: {peak / 1e6:.0f} MB at most, its table {n_bytes / 1e6:.0f} MB")
        assert peak <= 2 * n_bytes
