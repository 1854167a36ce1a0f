"""Every decoder of bytes from elsewhere, with inputs that are valid and the errors that it may raise for others."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import io
import json
import math
import struct
import tempfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlless_nb import PMF, LogisticRegression, TrainingJob, datasets, kernels
from mlless_nb.bus.messages import Command, Ended, Invocation, Left, Message, Started, Update
from mlless_nb.data.bundle import decode_index, encode_head
from mlless_nb.data.minibatches import CsrMinibatch, RatingsMinibatch, decode_minibatch, encode_minibatch
from mlless_nb.data.prepare import Manifest
from mlless_nb.driver.backends.call_failures import failure_of
from mlless_nb.driver.detached import handover
from mlless_nb.driver.detached.control import asked
from mlless_nb.errors import DecodeError, JobError
from mlless_nb.exchange import StepEntry
from mlless_nb.exchange.kept_reports import WIDTH, KeptReports, newest_entries
from mlless_nb.exchange.plan import Plan
from mlless_nb.exchange.seals import Seal
from mlless_nb.exchange.step_report import Report
from mlless_nb.exchange.stores import parts, wire
from mlless_nb.frames.coding import Column, TableCoding
from mlless_nb.frames.ids import Ids
from mlless_nb.frames.names import RatingNames, TableNames
from mlless_nb.job.column_sums import ColumnSums
from mlless_nb.kernels import crc32c, frame_checksum
from mlless_nb.kernels.resp import ReplyReader
from mlless_nb.models import LogisticModel, PMFModel, load_model
from mlless_nb.models.definition import Definition
from mlless_nb.models.storage import read_arrays
from mlless_nb.preparation.rows import decode_head, decode_rows
from mlless_nb.storage.checkpoint import Progress
from mlless_nb.storage.worker_state import REPORTS, WorkerState
from mlless_nb.telemetry import record

N_IDS = 1000
SEAL = Seal(bytes(32), "mlless:fuzzed:")


def _failed() -> bytes:
    """What Lithops stores of a function that failed."""
    log = base64.b64encode(zlib.compress(b"Traceback\nValueError: no\n---\n")).decode()
    return json.dumps({"exception": True, "logs": log}).encode()


@dataclass(frozen=True)
class Decoder:
    """One decoder.

    Attributes
    ----------
    decode : callable
        From bytes.
    valid : list of bytes
    errors : tuple of type
        What it raises for bytes that are not valid.
    seal : callable, optional
        Puts the right checksum into damaged bytes.
    encode : callable, optional
        The bytes of what was decoded: what is accepted must come back as it was.
    is_checked : bool
        Whether any change is noticed.
    """

    decode: Callable[[bytes], Any]
    valid: list[bytes]
    errors: tuple[type[Exception], ...] = (DecodeError,)
    seal: Callable[[bytes], bytes] | None = None
    encode: Callable[[Any], bytes] | None = None
    is_checked: bool = False


def _frames() -> list[bytes]:
    rng, made = np.random.default_rng(0), []
    for index in ("dense", "u32", "varint", "rowmask", "bits"):
        positions = np.sort(rng.choice(120, 30, replace=False)).astype(np.uint32)
        values = rng.normal(size=30).astype(np.float32)
        made.append(kernels.encode_sparse(positions, values, 7, 3, 30, 4, (1.0, 2.0, 3.0, 4.0), index))
    made.append(kernels.encode_update(np.array([1, 4, 9], np.int32), np.ones((3, 4), np.float32), 7, 3, 30, (0.0,) * 4))
    return made


def _with_frame_checksum(body: bytes) -> bytes:
    if len(body) < 64:
        return body
    return body[:60] + struct.pack("<I", frame_checksum(body)) + body[64:]


def _progress(n_rows: int = 6, n_state: int = 2, n_owners: int = 0, verdict: tuple[str, str] | None = None) -> bytes:
    table = np.arange(n_rows * 3, dtype=np.float32).reshape(n_rows, 3)
    owners = np.arange(n_owners, dtype=np.int32) if n_owners else None
    return Progress(table, 9, (table,) * n_state, 9, 9, 0.5, owners, verdict).encode()


def with_progress_crc(body: bytes) -> bytes:
    """A damaged checkpoint with the checksum of its parts, as far as its header can be read."""
    head = struct.Struct("<4sIIIIIIQQd")
    if len(body) < head.size + 4:
        return body
    *_, n_rows, width, n_tables, n_owners, _, _, _ = head.unpack_from(body)
    rest, size = body[head.size + 4 :], 4 * n_rows * width
    if n_tables > 1000 or len(rest) < (end := n_tables * size + 4 * n_owners):
        return body
    pieces = [rest[n * size : (n + 1) * size] for n in range(n_tables)] + [rest[n_tables * size : end]]
    pieces += [rest[end:]] * (len(rest) > end)
    crc = zlib.crc32(body[: head.size] + b"".join(struct.pack("<I", crc32c(piece)) for piece in pieces))
    return body[: head.size] + struct.pack("<I", crc) + rest


def _states() -> list[bytes]:
    table, kept = np.arange(12, dtype=np.float32).reshape(4, 3), KeptReports()
    kept.add(9, 1.5, 2, 0, Report(loss_sum=1.0))
    tables = {"params": table, "own rows": np.array([1, 3], np.int32), REPORTS: kept.table()}
    facts = {"n_steps": 9, "state": ["velocity"], "weight": 0.5}
    return [
        WorkerState(9, 1, [0, 1], facts, tables).encode(),
        WorkerState(9, 0, [0, 1], facts, {"velocity": table}, {"params": table[:2]}).encode(),
    ]


def _with_state_crc(body: bytes) -> bytes:
    """A damaged part of a checkpoint with the checksum of its tables, as far as its facts can be read."""
    if len(body) < 16:
        return body
    end = 16 + int.from_bytes(body[8:12], "little")
    blocks, at = list[bytes](), end
    try:
        for _, _, _, *shape in json.loads(body[16:end])["tables"]:
            size = 4 * math.prod(shape)
            blocks.append(body[at : at + size])
            at += size
        crc = zlib.crc32(body[16:end] + b"".join(struct.pack("<I", crc32c(block)) for block in blocks))
    except (ValueError, TypeError, KeyError, RecursionError):
        return body
    return body[:12] + struct.pack("<I", crc) + body[16:]


def _entries(body: bytes) -> list[StepEntry]:
    table = np.frombuffer(body[: len(body) // 4 * 4], "<i4")
    return newest_entries(0, 12, {0: table.reshape(-1, WIDTH) if len(table) % WIDTH == 0 else table}, 100.0)


def _reports() -> list[bytes]:
    kept = KeptReports()
    for step in range(7, 13):
        kept.add(step, step / 2, 1, step % 2, Report(loss_sum=float(step)))
    return [kept.table().tobytes()]


def _minibatches() -> list[bytes]:
    ids = np.array([1, 5, 9, 200], np.int32)
    short = np.array([0, 1, 1], np.int32), np.array([2, 2, 3], np.int32)
    ratings = RatingsMinibatch(ids, *short, np.array([1.0, 2.0, 3.5], np.float32))
    rows = CsrMinibatch(
        ids,
        columns=np.array([3], np.int32),
        dense=np.array([[0.5, 0.25]], np.float32),
        indptr=np.array([0, 1, 3], np.int32),
        indices=np.array([0, 1, 2], np.uint16),
        values=np.array([1.0, 2.0, 3.0], np.float32),
        labels=np.array([0.0, 1.0], np.float32),
    )
    return [encode_minibatch(ratings), encode_minibatch(rows)]


def with_last_crc(body: bytes) -> bytes:
    """A damaged minibatch with the right checksum, which is at its end."""
    return body[:-4] + struct.pack("<I", crc32c(body[:-4])) if len(body) >= 4 else body


def _with_bundle_crc(body: bytes) -> bytes:
    if len(body) < 40:
        return body
    count = int.from_bytes(body[16:24], "little")
    end = 32 + 8 * count
    if end + 8 > len(body):
        return body
    return body[:end] + struct.pack("<II", crc32c(body[:end]), 0) + body[end + 8 :]


def _reply(body: bytes) -> Any:
    stream = io.BytesIO(body)
    return ReplyReader(stream.readinto).read()


class _Line(io.BytesIO):
    """Bytes as a socket that has them."""

    recv_into = io.BytesIO.readinto


def _wire(body: bytes) -> Any:
    return wire.receive(_Line(body))  # type: ignore[arg-type]


def _parts(body: bytes) -> Any:
    frame = parts.joined("key", {"key": body, **dict.fromkeys(parts.further_keys("key", body)[:10], b"")})
    if frame is None:
        raise DecodeError("no frame")
    return bytes(frame)


def _from_file(read: Callable[[Path], Any]) -> Callable[[bytes], Any]:
    folder = Path(tempfile.mkdtemp(prefix="fuzzed-"))

    def decode(body: bytes) -> Any:
        path = folder / "file"
        path.write_bytes(body)
        return read(path)

    return decode


def _model() -> bytes:
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, kind=np.array("pmf"), factors=np.ones((4, 3), np.float32))
    return file.getvalue()


def _named_models() -> list[bytes]:
    users, items = (Ids(["a", "bé"], "text"), Ids(np.array([-1, 7]), "integers"))
    columns = Column("age", fill=2.5, is_filled=True, has_mark=True), Column("city", users), Column("zip", buckets=3)
    ones = np.ones(2, np.float32)
    pmf = {"user_factors": np.ones((2, 1)), "item_factors": np.ones((2, 1)), "user_bias": ones, "item_bias": ones}
    models = [
        PMFModel({**pmf, "mean": np.array(3.0)}).with_names(RatingNames(users, items)),
        LogisticModel({"weights": np.ones(7), "intercept": np.ones(1)}).with_names(
            TableNames(TableCoding(columns), Ids(["no", "yes"], "text"))
        ),
    ]
    files = []
    for model in models:
        with tempfile.NamedTemporaryFile() as file:
            model.save(file.name)
            files.append(Path(file.name).read_bytes())
    return files


def _manifest() -> bytes:
    counts = {"n": 100, "size": 30, "n_minibatches": 4, "minibatch_bytes": 500, "n_touched": 5}
    names = {"key": "data/abc", "kind": "ratings", "name": "numbers", "is_synthetic": False}
    bounds = {"shape": [3, 4], "shards": [0, 4], "bundles": [0, 2, 4]}
    return json.dumps({**names, **counts, **bounds, "mean": 3.5, "origin": 0.0, "deviation": 1.0}).encode()


def _invocation() -> bytes:
    kinds = {"str": "", "int": 1, "float": 1.0, "bool": True, "dict[str, Any]": {}, "list[str]": []}
    fields = {}
    for field in dataclasses.fields(Invocation):
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            fields[field.name] = kinds.get(str(field.type))
    return Invocation(**fields).encode()  # type: ignore[arg-type]


def _jobs() -> list[bytes]:
    rng, made = np.random.default_rng(0), []
    ratings = datasets.ratings(rng.integers(0, 9, 40), rng.integers(0, 7, 40), rng.integers(1, 6, 40))
    clicks = datasets.csr(rng.normal(size=(40, 3)), rng.integers(0, 2, 40))
    for job in (TrainingJob(PMF(2), data=ratings, workers=2), TrainingJob(LogisticRegression(), data=clicks)):
        file = io.BytesIO()
        handover.write(file, job)
        made.append(file.getvalue())
    return made


def _definition(body: bytes) -> Definition:
    spec = json.loads(body)
    return Definition(**spec)


SOURCE = "def f():\n    return 1\n"
_DEFINED = {"name": "f", "source": SOURCE, "sha256": hashlib.sha256(SOURCE.encode()).hexdigest()}
_JSON = (ValueError, TypeError, RecursionError, JobError)
DECODERS: dict[str, Decoder] = {
    "message": Decoder(
        Message.decode,
        [
            Started(1, 0.5).encode(),
            Left(1, 2, 3, 4, 5.0, 6.0, "left", "why").encode(),
            Command("id", "scale_in", [1, 2]).encode(),
            Update([[1.0, None, 2.0]], {"step": 1}, [[0.5, "text"]], {"id": "done"}, [{"text": "x"}]).encode(),
            Ended("finished", "why", 3, "key", None, {"workers": 5}, 1.0).encode(),
            _invocation(),
        ],
    ),
    "plan": Decoder(
        Plan.decode,
        [b'{"version":0}', b'{"version":3,"leaves":{"1":9},"stop_after":12,"stop_status":"a","stop_reason":"b"}'],
    ),
    "report": Decoder(Report.decode, [Report().encode()], encode=Report.encode),
    "frame": Decoder(kernels.decode_frame, _frames(), seal=_with_frame_checksum, is_checked=True),
    "checkpoint": Decoder(
        Progress.decode,
        [_progress(), _progress(2, 0), _progress(n_owners=5), _progress(2, 0, verdict=("finished", "done"))],
        seal=with_progress_crc,
        encode=Progress.encode,
        is_checked=True,
    ),
    "state": Decoder(WorkerState.decode, _states(), seal=_with_state_crc, is_checked=True),
    "reports": Decoder(_entries, _reports()),
    "minibatch": Decoder(
        lambda body: decode_minibatch(body, N_IDS),
        _minibatches(),
        seal=with_last_crc,
        is_checked=True,
    ),
    "bundle": Decoder(
        lambda body: decode_index(body, 1 << 20), [encode_head(3, [64, 128], b"told")], seal=_with_bundle_crc
    ),
    "manifest": Decoder(
        lambda body: Manifest.from_json(json.loads(body)),
        [_manifest()],
        errors=(DecodeError, ValueError, RecursionError),
    ),
    "wire": Decoder(
        _wire,
        [
            wire._HEADER.pack(wire.Kind.PUT, 1, 18) + wire._ITEM.pack(3, 5) + b"keyvalue",
            wire._HEADER.pack(wire.Kind.GET, 1, 13) + wire._ITEM.pack(3, wire.MISSING) + b"key",
        ],
        errors=(DecodeError, ConnectionError),
    ),
    "parts": Decoder(_parts, [parts.cut("key", bytes(100), 400)["key"], parts.cut("key", b"", 400)["key"]]),
    "seal": Decoder(
        lambda body: SEAL.opened(body, "1", 0, None), [SEAL.sealed(b"frame", "1", 0, None)], is_checked=True
    ),
    "reply": Decoder(
        _reply,
        [
            b"*2\r\n$3\r\nabc\r\n*1\r\n:12\r\n",
            b"%1\r\n+a\r\n,1.5\r\n",
            b"|1\r\n+a\r\n+b\r\n~1\r\n#t\r\n",
            b"-ERR no\r\n",
        ],
        errors=(ValueError, EOFError),
    ),
    "model": Decoder(_from_file(read_arrays), [_model()]),
    "named model": Decoder(_from_file(load_model), _named_models()),
    "definition": Decoder(_definition, [json.dumps(_DEFINED).encode()], errors=_JSON),
    "rows": Decoder(
        lambda body: decode_rows(body, 10),
        [
            struct.pack("<QQ", 1, 2)
            + np.array([7], "<i8").tobytes()
            + np.array([2], "<i4").tobytes()
            + np.array([3, 4], "<i4").tobytes()
            + np.array([0.5, 0.25, 1.0], "<f4").tobytes()
        ],
    ),
    "head": Decoder(lambda body: decode_head(body, 2), [struct.pack("<QQQ", 2, 30, 40)]),
    "sums": Decoder(lambda body: ColumnSums.decode(body, 3, 2), [np.ones((4, 2)).astype("<f8").tobytes()]),
    "handover": Decoder(lambda body: handover.read(io.BytesIO(body)), _jobs(), errors=(DecodeError, JobError)),
    "control": Decoder(
        asked, [json.dumps({"command": Command("id", "stop").encode().decode(), "pending": "stopping"}).encode()]
    ),
    "failure": Decoder(lambda body: failure_of(body, "job", "00000"), [_failed()], errors=()),
    "lines": Decoder(_from_file(record._lines), [b'{"time_s": 1.0, "text": "x"}\n[1, 2, null]\n'], errors=()),
    "rows_file": Decoder(_from_file(record._read_rows), [b"[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]\n"], errors=()),
}
