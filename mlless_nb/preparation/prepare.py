"""Plans the stages of a preparation, and joins what their functions have found: the part that one process does.

It has the labels, a bit each for most formats, and the place of every row in the order of minibatches; never the rows.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from ..data.bundle import padded
from ..data.format import Facts
from ..data.prepare import Manifest, bundle_bounds, bundle_key, described, last_key, pack_key, told_of
from ..data.spans import Files, leaf_bytes
from ..data.stored_files import Source, StoredFiles, StoredRows, digest_of, listed, unpacked_labels
from ..errors import DataError
from ..job.column_sums import ColumnSums, summed_rows
from ..job.units import ColumnUnits
from ..storage.objects import ObjectStore

#: Invokes the functions of a stage, ``n`` of them, with a plan; returns what each has found.
RunStage = Callable[[str, dict[str, Any], int], list[dict[str, Any]]]
#: Rows that a function makes minibatches of at a time, bytes.
LOT_BYTES = 64 << 20


@dataclass(frozen=True)
class Place:
    """Where a preparation keeps its objects, and where the files are.

    Attributes
    ----------
    objects : ObjectStore
    folder : str
        What the keys of all objects begin with that are there only until the data is packed.
    """

    objects: ObjectStore
    folder: str

    def key(self, name: str) -> str:
        """The key of an object, or of one for each function where ``name`` has a {}."""
        return f"{self.folder}{name}"

    def clear(self, keys: Sequence[str] | None = None) -> None:
        """Remove these objects; None: all that are listed."""
        self.objects.delete(self.objects.list(self.folder) if keys is None else keys)


def scanned(spec: StoredFiles, files: Files, place: Place, run_stage: RunStage) -> StoredRows:
    """The rows of stored files, counted and checked by functions.

    Raises
    ------
    DataError
        Naming the object and the line that is wrong.
    """
    sizes, form = listed(files, spec), spec.form
    bucket = spec.place[0]
    try:
        first = form.first_line(files, *sizes[0])
        form.layout(f"{bucket}/{sizes[0][0]}", first)
        shares = form.shares(files, sizes, spec.functions)
    except DataError as error:
        if error.field != "path":
            raise
        what = f"an object of {dict(sizes)[str(error.value)]} bytes"
        raise DataError(f"{bucket}/{error.value}", what, error.valid) from None
    plan = {
        **_common(spec, sizes, first, shares),
        "labels": place.key("labels-{}"),
    }
    found = run_stage("scan", plan, len(shares))
    _check(bucket, sizes, found, form.unit)
    all_facts = [Facts.from_json(one["facts"]) for one in found]
    facts = reduce(Facts.merged, all_facts)
    form.check(spec.prefix, facts)
    keys = [plan["labels"].format(index) for index in range(len(shares))]
    labels = [
        unpacked_labels(place.objects.get(key), one.n_rows, has_bits=form.has_bits)
        for key, one in zip(keys, all_facts, strict=True)
    ]
    place.clear(keys)
    digests = tuple(tuple(one["digests"]) for one in found)
    digest = digest_of(spec, first, list(itertools.chain.from_iterable(digests)))
    source = Source(spec, sizes, first, facts, tuple(one.n_rows for one in all_facts), digests, digest)
    rows = StoredRows(source, files, np.concatenate(labels))
    known: dict[str, ColumnSums] = {}  # by the content of the rows before a change of their units

    def sum_columns(dataset: StoredRows) -> ColumnSums:
        kept = np.packbits(dataset.kept).tobytes()
        if (key := hashlib.sha256(kept).hexdigest()) not in known:
            known[key] = _summed(dataset, kept, place, run_stage)
        return known[key]

    rows.sum_columns = sum_columns
    return rows


def _summed(dataset: StoredRows, kept: bytes, place: Place, run_stage: RunStage) -> ColumnSums:
    """The sums of the columns of a dataset's rows, before any change of their units, by a function."""
    source = dataset.source
    plan = {
        **_common(source.spec, source.sizes, source.first, source.spec.form.shares(dataset.files, source.sizes, 1)),
        "facts": source.facts.to_json(),
        "n_features": source.n_features,
        "units": "",
        "most": summed_rows(dataset),
        "kept": place.key("kept"),
        "sums": place.key("sums"),
    }
    place.objects.put(plan["kept"], kept)
    [found] = run_stage("sum", plan, 1)
    sums = ColumnSums.decode(place.objects.get(plan["sums"]), found["n"], source.n_features)
    place.clear([plan["kept"], plan["sums"]])
    return sums


def _common(spec: StoredFiles, sizes: Sequence[tuple[str, int]], first: bytes, shares: Any) -> dict[str, Any]:
    """What both passes over the files need."""
    return {
        "format": spec.form.to_json(),
        "leaf": leaf_bytes(size for _, size in sizes),
        "first": first.decode("latin-1"),
        "shares": [[list(span) for span in share] for share in shares],
    }


def _check(bucket: str, sizes: Sequence[tuple[str, int]], found: Sequence[dict[str, Any]], unit: str) -> None:
    """Raise DataError for the first bad line, and for a file without rows."""
    n_rows = dict.fromkeys((key for key, _ in sizes), 0)
    n_lines = dict(n_rows)
    for one in found:
        for key, lines, rows in one["n_lines"]:
            n_lines[key] += lines
            n_rows[key] += rows
        if one["error"] is not None:
            key, number, line, valid = one["error"]
            if not number:
                raise DataError(f"{bucket}/{key}", line, valid)
            number += n_lines[key]
            where = f"{unit} {number}" if line is not None else f"from {unit} {number}"
            raise DataError(f"{bucket}/{key}, {where}", line if line is not None else "text", valid)
    for key, n in n_rows.items():
        if not n:
            raise DataError(f"{bucket}/{key}", "no rows", "a file with at least one row")


def pack(
    datasets: Sequence[tuple[StoredRows, int | None]], size: int, place: Place, run_stage: RunStage
) -> dict[str, Manifest]:
    """Pack parts of the same files, each with its seed; returns the manifests by key.

    The objects are those that `mlless_nb.data.prepare.write` writes for the same rows.
    """
    source, n_functions = datasets[0][0].source, datasets[0][0].source.spec.functions
    # Minibatches are numbered through all data sets; lots are ranges of them, each of one data set.
    firsts = [0, *itertools.accumulate(-(-dataset.n // size) for dataset, _ in datasets)]
    bounds, n_rows = [0], []
    for (dataset, _), (first, end) in zip(datasets, itertools.pairwise(firsts), strict=True):
        n_lots = min(max(-(-dataset.most_bytes // LOT_BYTES), n_functions), end - first)
        cuts = [(end - first) * (lot + 1) // n_lots for lot in range(n_lots)]
        bounds += [first + each for each in cuts]
        n_rows += [min(stop * size, dataset.n) - start * size for start, stop in itertools.pairwise([0, *cuts])]
    shares = source.spec.form.shares(datasets[0][0].files, source.sizes, n_functions)
    pieces = _scatter(datasets, firsts, bounds, size, shares, place, run_stage)
    n_lots = len(bounds) - 1
    cut_key = place.key("cut-{}")
    n_cutters = min(n_functions, n_lots)
    lots = list(itertools.pairwise(n_lots * index // n_cutters for index in range(n_cutters + 1)))
    plan = {
        "bounds": bounds,
        "n_rows": n_rows,
        "size": size,
        "lots": lots,
        "n_features": source.n_features,
        "pieces": pieces,
        "cut": cut_key,
    }
    found = run_stage("cut", plan, n_cutters)
    place.clear(pieces)
    sizes = list(itertools.chain.from_iterable(one["sizes"] for one in found))  # by lot
    touched = list(itertools.chain.from_iterable(one["touched"] for one in found))
    manifests = {}
    earlier, last = [], []
    for (dataset, seed), (first, end) in zip(datasets, itertools.pairwise(firsts), strict=True):
        key = pack_key(dataset, size, seed)
        here = range(bounds.index(first), bounds.index(end))
        flat = list(itertools.chain.from_iterable(sizes[lot] for lot in here))
        bundles = bundle_bounds(flat)
        n_touched = sum(touched[lot] for lot in here)
        manifest = described(dataset, size, key, (0, end - first), bundles, max(flat), n_touched)
        specs = _bundles(manifest, flat, [(cut_key.format(lot), sizes[lot]) for lot in here])
        earlier += specs[:-1]
        last.append(specs[-1])
        manifests[key] = manifest
    # The last bundle of a data set says that all others are there.
    for specs in (earlier, last):
        n = min(n_functions, len(specs))
        if n:
            run_stage("bundle", {"bundles": [specs[index::n] for index in range(n)]}, n)
    place.clear([cut_key.format(lot) for lot in range(n_lots)])
    return manifests


def _scatter(
    datasets: Sequence[tuple[StoredRows, int | None]],
    firsts: Sequence[int],
    bounds: Sequence[int],
    size: int,
    shares: Any,
    place: Place,
    run_stage: RunStage,
) -> list[str]:
    """Have every row written to its lot; returns the keys of the pieces."""
    source = datasets[0][0].source
    slots = np.full(source.facts.n_rows, -1, np.int64)
    for (dataset, seed), first in zip(datasets, firsts, strict=False):
        places = dataset.places(seed)
        slots[places >= 0] = places[places >= 0] + first * size
    key = place.key("slots-{}")
    ends = [0, *itertools.accumulate(source.counts)]
    for index, (begin, end) in enumerate(itertools.pairwise(ends)):
        place.objects.put(key.format(index), slots[begin:end].astype("<i8").tobytes())
    units, change = "", datasets[0][0].change
    if isinstance(change, ColumnUnits):
        units = place.key("units")
        place.objects.put(units, np.stack([change.shift, change.scale]).astype("<f8").tobytes())
    plan = {
        **_common(source.spec, source.sizes, source.first, shares),
        "facts": source.facts.to_json(),
        "bounds": list(bounds),
        "size": size,
        "slots": key,
        "units": units,
        "piece": place.key("piece-{}-{}"),
        "digests": [list(each) for each in source.digests],
    }
    found = run_stage("scatter", plan, len(shares))
    place.clear([*(key.format(index) for index in range(len(shares))), *filter(None, [units])])
    return [plan["piece"].format(index, k) for index, one in enumerate(found) for k in range(one["n_pieces"])]


def _bundles(manifest: Manifest, sizes: Sequence[int], cuts: Sequence[tuple[str, list[int]]]) -> list[dict[str, Any]]:
    """What the bundles of a data set are made of: ranges of the objects that ``cuts`` names, with their minibatches."""
    where = []  # of each minibatch: object, begin, end
    for key, here in cuts:
        ends = [0, *itertools.accumulate(map(padded, here))]
        where += [(key, begin, end) for begin, end in itertools.pairwise(ends)]
    specs = []
    for number, (first, end) in enumerate(itertools.pairwise(manifest.bundles)):
        is_last = end == manifest.n_minibatches
        parts: list[list[Any]] = []
        for key, begin, stop in where[first:end]:
            if parts and parts[-1][0] == key:
                parts[-1][2] = stop
            else:
                parts.append([key, begin, stop])
        specs.append(
            {
                "key": last_key(manifest.key) if is_last else bundle_key(manifest.key, number),
                "first": first,
                "sizes": list(sizes[first:end]),
                "told": told_of(manifest).decode() if is_last else "",
                "parts": parts,
            }
        )
    return specs
