"""One seed gives the same bytes on every machine: generated data, splits, shuffles, units of training, packing."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from unittest.mock import patch

import numpy as np
from entries import matrix_of
from scipy.sparse import csr_array

from mlless_nb import datasets
from mlless_nb.data.csr import Csr
from mlless_nb.data.dataset import Dataset
from mlless_nb.data.minibatches import CsrMinibatch, Minibatch, RatingsMinibatch
from mlless_nb.data.prepare import pack
from mlless_nb.data.ratings import Ratings
from mlless_nb.job.units import ColumnUnits, RatingUnits
from mlless_nb.storage.objects import MemoryObjects

#: The first 16 digits of each SHA-256. A change of the stored format changes those of what is packed, and no others.
GOLDEN = {
    "dense ratings": "d699fc6e77c235af",
    "sparse ratings": "d3d5867679ca18d4",
    "clicks": "6bfb2e2597e388b4",
    "split ratings": "f5352538d4130693",
    "split clicks": "6672910973c2a3a9",
    "standardised ratings": "6d61ac6ae84b8d4b",
    "scaled columns": "bcc7aee39bcae916",
    "shuffled ratings": "06788995d0903345",
    "shuffled clicks": "c3cbbaaec36d4818",
    "split stream": "ae44a9e934ebeaf4",
    "shuffled stream": "a26c302a03d103b8",
    "owners": "16074c305b8bc0b7",
    "packed ratings": "3aa17120a78c93cb",
    "packed by user": "94b8fbaf41b75287",
    "packed clicks": "d6b2f5e293e3e9ba",
    "packed columns": "f10258b0aa3c3846",
}

#: A processor without AVX2, FMA and AVX-512, as far as each library can be told so: NumPy's loops, the C library's
#: exponentials and logarithms, the matrix product, the kernels. What a library or a processor does not know is ignored.
PLAIN_PROCESSOR = {
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX2 FMA3 AVX512F AVX512_SKX AVX512_ICL AVX512_SPR",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX512F,-AVX512VL",
    "OPENBLAS_CORETYPE": "Nehalem",
    "MLLESS_KERNELS": "generic",
}


def sha(*blobs: bytes) -> str:
    return hashlib.sha256(b"".join(blobs)).hexdigest()[:16]


def of_arrays(*arrays: np.ndarray) -> str:
    return sha(*(np.ascontiguousarray(array).tobytes() for array in arrays))


def of_split(data: Dataset) -> str:
    return sha(*(part.fingerprint().encode() for part in data.split(0.1, seed=4)))


def of_minibatches(minibatches: Iterable[Minibatch]) -> str:
    """Which rows each minibatch holds, in which order and with which values; not how it is stored."""
    parts = []
    for minibatch in minibatches:
        if isinstance(minibatch, RatingsMinibatch):
            user, item = minibatch.ids[minibatch.user], minibatch.ids[minibatch.item]
            parts.append(of_arrays(user, item, minibatch.rating))
        else:
            assert isinstance(minibatch, CsrMinibatch)
            X = matrix_of(minibatch, int(minibatch.ids[-1]) + 1)
            X.sort_indices()
            labels = np.asarray(minibatch.labels, np.float32)
            parts.append(of_arrays(X.indptr.astype(np.int64), X.indices.astype(np.int64), X.data, labels))
    return sha("".join(parts).encode())


def of_packed(data: Dataset, n_owners: int = 0) -> str:
    objects = MemoryObjects()
    pack(data, 100, 3, objects, data.owners(n_owners) if isinstance(data, Ratings) and n_owners else None)
    return sha(*(objects.blobs[key] for key in sorted(objects.blobs)))


def numbers() -> Csr:
    """Rows of numbers: a column that is centred in the units of training, and sparse ones that are divided."""
    rng = np.random.default_rng(5)
    X = np.where(rng.random((300, 8)) < 0.3, rng.integers(1, 1000, (300, 8)) / 64, 0).astype(np.float32)
    X[:, 0] = rng.integers(1, 1000, 300) / 64
    return datasets.csr(csr_array(X), rng.integers(0, 2, 300))


def of_stream() -> dict[str, str]:
    """Rows read from a file, shuffled through several parts as those are that exceed memory."""
    rng = np.random.default_rng(6)
    lines = (
        f"{rng.integers(2)} {1 + rng.integers(20)}:0.5 {21 + rng.integers(20)}:{rng.integers(1, 99)}\n"
        for _ in "x" * 400
    )
    with tempfile.TemporaryDirectory() as folder, patch("mlless_nb.data.stream.PART_BYTES", 4096):
        path = Path(folder) / "rows.libsvm"
        path.write_text("".join(lines))
        data = datasets.libsvm(path)
        return {"split stream": of_split(data), "shuffled stream": of_minibatches(data.minibatches(64, seed=3))}


def hashes() -> dict[str, str]:
    dense, sparse = datasets.synthetic_ratings(60, 40, 1000, seed=1), datasets.synthetic_ratings(900, 700, 3000, seed=2)
    clicks = datasets.synthetic_clicks(500, 3000, seed=3)
    standard, scaled = RatingUnits.of(dense).apply(dense), ColumnUnits.of(numbers()).apply(numbers())
    return {
        "dense ratings": dense.fingerprint()[:16],
        "sparse ratings": sparse.fingerprint()[:16],
        "clicks": clicks.fingerprint()[:16],
        "split ratings": of_split(sparse),
        "split clicks": of_split(clicks),
        "standardised ratings": of_arrays(standard.ratings),
        "scaled columns": of_arrays(scaled.X.data),
        "shuffled ratings": of_minibatches(sparse.minibatches(64, seed=3)),
        "shuffled clicks": of_minibatches(clicks.minibatches(64, seed=3)),
        **of_stream(),
        "owners": of_arrays(dense.owners(3)),
        "packed ratings": of_packed(standard),
        "packed by user": of_packed(dense, n_owners=3),
        "packed clicks": of_packed(clicks),
        "packed columns": of_packed(scaled),
    }


def test_data_are_those_of_every_machine() -> None:
    assert hashes() == GOLDEN


def test_data_do_not_depend_on_the_instruction_set() -> None:
    code = "import json, sys; sys.path.insert(0, sys.argv[1]); from data.test_golden import hashes; "
    answer = subprocess.run(
        [
            sys.executable,
            "-P",
            "-W",
            "ignore",
            "-c",
            code + "print(json.dumps(hashes()))",
            str(Path(__file__).parents[1]),
        ],
        env={**os.environ, **PLAIN_PROCESSOR},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(answer.stdout) == GOLDEN
