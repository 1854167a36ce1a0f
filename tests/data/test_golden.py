"""One seed, one set of bytes: generated data, splits, shuffles and packing are equal on every processor."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys

import pytest

from mlless_nb import datasets
from mlless_nb.data.dataset import Csr, Ratings
from mlless_nb.data.prepare import pack
from mlless_nb.storage.objects import MemoryObjects

#: SHA-256, the first 16 digits. They change with the format of minibatches, and then on purpose.
GOLDEN = {
    "dense ratings": "d699fc6e77c235af",
    "sparse ratings": "d3d5867679ca18d4",
    "clicks": "6bfb2e2597e388b4",
    "split": "f5352538d4130693",
    "packed ratings": "a6691663f0d6a61f",
    "packed users": "6114bb35d4920970",
    "packed clicks": "88946d58bc984c08",
}
#: NumPy's dispatch, as a processor without AVX2 or AVX-512 has it.
PLAIN = "X86_V3 X86_V4 AVX2 FMA3 AVX512F AVX512_SKX AVX512_ICL AVX512_SPR"


def short(*blobs: bytes) -> str:
    return hashlib.sha256(b"".join(blobs)).hexdigest()[:16]


def packed(data: Ratings | Csr, by_user: bool = False) -> str:
    objects = MemoryObjects()
    pack(data, 100, 3, objects, data.owners(3) if by_user and isinstance(data, Ratings) else None)
    return short(*(objects.blobs[key] for key in sorted(objects.blobs)))


def hashes() -> dict[str, str]:
    dense, sparse = datasets.synthetic_ratings(60, 40, 1000, seed=1), datasets.synthetic_ratings(900, 700, 3000, seed=2)
    clicks = datasets.synthetic_clicks(500, 3000, seed=3)
    train, held_out = sparse.split(0.1, seed=4)
    return {
        "dense ratings": dense.fingerprint(),
        "sparse ratings": sparse.fingerprint(),
        "clicks": clicks.fingerprint(),
        "split": short(train.fingerprint().encode(), held_out.fingerprint().encode()),
        "packed ratings": packed(sparse),
        "packed users": packed(dense, by_user=True),
        "packed clicks": packed(clicks),
    }


def test_data_are_those_of_every_machine() -> None:
    assert {name: digest[:16] for name, digest in hashes().items()} == GOLDEN


@pytest.mark.parametrize("features", [PLAIN, "X86_V4 AVX512F AVX512_SKX AVX512_ICL AVX512_SPR"])
def test_data_do_not_depend_on_the_processor(features: str) -> None:
    code = "import json, sys; sys.path.insert(0, sys.argv[1]); from data.test_golden import hashes as made; "
    tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    answer = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-c", code + "print(json.dumps(made()))", tests],
        env={**os.environ, "NPY_DISABLE_CPU_FEATURES": features},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(answer.stdout) == hashes()
