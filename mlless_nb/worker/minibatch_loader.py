"""Minibatches for one worker: read ahead in runs by a thread, checked, retried, kept in memory while there is room."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from ..data.bundle import BundleIndex, decode_index, index_bytes
from ..data.minibatches import Minibatch, decode_minibatch
from ..data.prepare import Manifest
from ..data.read_plan import Run, Runs
from ..errors import DecodeError, RunError, ServiceError
from ..storage.objects import ObjectStore

T = TypeVar("T")

#: Minibatches that a worker keeps, bytes.
CACHE_BYTES = 256 << 20
#: A bundle of at most so many bytes is read as a whole.
SMALL_BYTES = 2 << 20
#: How often what is missing or damaged is read before the run fails.
TRIES = 3
#: Seconds before the second of these tries; twice that before the third.
RETRY_S = 0.1


class MinibatchFeed:
    """The minibatches of one packed dataset. To be used by one thread.

    Parameters
    ----------
    objects : ObjectStore
    manifest : Manifest
    """

    def __init__(self, objects: ObjectStore, manifest: Manifest) -> None:
        self._objects, self._manifest = objects, manifest
        # Two threads: what is at hand is not decoded behind what is still on its way.
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="mlless-feed")
        self._decoding = ThreadPoolExecutor(1, thread_name_prefix="mlless-decode")
        self._runs = Runs(manifest)
        self._indexes: dict[int, BundleIndex] = {}  # by bundle; written by the reading thread
        self._small: dict[int, bytes] = {}  # bundles that were read as a whole
        self._asked: set[int] = set()  # bundles whose index is there, or was asked for
        self._kept: OrderedDict[Run, Future[bytes]] = OrderedDict()  # at hand, or on their way
        self._kept_bytes = 0
        self._minibatches: dict[int, Future[Minibatch] | Minibatch] = {}

    def expect(self, indices: Iterable[int]) -> None:
        """From now on these minibatches (0-based) are needed, in about this order: they are read many at a time."""
        self._runs.expect(indices, list(self._kept))

    def get(self, index: int) -> Minibatch:
        """Minibatch number ``index`` (0-based).

        Raises
        ------
        RunError
            When its object is missing or damaged, after several tries; it names the object.
        """
        run = self._begin(index)
        found = self._minibatches.get(index)
        if found is None:
            found = self._decode(run, index, self._kept[run])
        elif isinstance(found, Future):
            found = found.result()
        self._minibatches[index] = found
        return found

    def has(self, index: int) -> bool:
        """Whether minibatch ``index`` is in memory."""
        blob = self._kept.get(self._runs.of(index))
        return blob is not None and blob.done()

    def prefetch(self, index: int) -> None:
        """Begin to read minibatch ``index`` unless it is at hand, and what is likely to be needed after its run."""
        run = self._begin(index)
        if index not in self._minibatches:
            self._minibatches[index] = self._decoding.submit(self._decode, run, index, self._kept[run])
        following = self._runs.after(run)
        if following is None or following in self._kept or not self._kept[run].done():
            return
        if self._runs.n_bytes(run) + self._runs.n_bytes(following) <= CACHE_BYTES:
            self._read(following)

    def n_gets(self, indices: Collection[int]) -> int:
        """Requests, at most, that reading these minibatches, run by run, takes, and what is read ahead of them."""
        runs = {self._runs.of(index) for index in indices}
        runs |= {run for run in map(self._runs.after, runs) if run is not None}
        if sum(map(self._runs.n_bytes, runs)) <= CACHE_BYTES:
            for run in runs & self._kept.keys():
                self._kept.move_to_end(run)  # others are to make room before they do
            runs -= self._kept.keys()
        return len(runs) + len({run.bundle for run in runs} - self._asked)

    def _begin(self, index: int) -> Run:
        """See to it that the run of ``index`` is at hand or on its way."""
        run = self._runs.of(index)
        if run in self._kept:
            self._kept.move_to_end(run)
        else:
            self._read(run)
        return run

    def _read(self, run: Run) -> None:
        self._asked.add(run.bundle)
        self._kept[run] = self._reading.submit(self._fetch, run)
        self._kept_bytes += self._runs.n_bytes(run)
        while self._kept_bytes > CACHE_BYTES and len(self._kept) > 1:
            dropped, _ = self._kept.popitem(last=False)
            self._kept_bytes -= self._runs.n_bytes(dropped)
            for index in range(dropped.first, dropped.end):
                self._minibatches.pop(index, None)

    # -- in the threads

    def _fetch(self, run: Run) -> bytes:
        """The bytes of a run."""
        index = self._index(run.bundle)
        begin, end = index.span(run.first, run.end)
        whole = self._small.get(run.bundle, b"")
        if len(whole) >= end:
            return whole[begin:end]
        return self._tried(run.bundle, lambda: self._range(run.bundle, begin, end))

    def _index(self, bundle: int) -> BundleIndex:
        """Where the minibatches of a bundle lie."""
        found = self._indexes.get(bundle)
        if found is None:
            found = self._indexes[bundle] = self._tried(bundle, lambda: self._read_index(bundle))
        return found

    def _read_index(self, bundle: int) -> BundleIndex:
        first, end = self._manifest.bundles[bundle : bundle + 2]
        if (end - first) * self._manifest.minibatch_bytes <= SMALL_BYTES:
            # One request for all of it costs less than one for the index and one for a part.
            self._small[bundle] = blob = self._objects.get(self._manifest.object_key(bundle), 0, 2 * SMALL_BYTES)
        else:
            blob = self._range(bundle, 0, index_bytes(end - first))
        index = decode_index(blob, self._manifest.minibatch_bytes)
        if (index.first, len(index.sizes)) != (first, end - first):
            raise DecodeError(f"minibatches {index.first} to {index.first + len(index.sizes)}, not {first} to {end}")
        return index

    def _range(self, bundle: int, first: int, end: int) -> bytes:
        blob = self._objects.get(self._manifest.object_key(bundle), first, end)
        if len(blob) != end - first:
            raise DecodeError(f"it ends after {first + len(blob)} bytes: must have at least {end}")
        return blob

    def _decode(self, run: Run, number: int, blob: Future[bytes]) -> Minibatch:
        """A minibatch of a run. One that is damaged is read once more, alone."""
        bytes_read, index = blob.result(), self._indexes[run.bundle]
        try:
            return decode_minibatch(
                index.part(bytes_read, int(index.begins[run.first - index.first]), number), self._manifest.n_ids
            )
        except DecodeError:
            span = index.span(number, number + 1)
            return self._tried(
                run.bundle, lambda: decode_minibatch(self._range(run.bundle, *span), self._manifest.n_ids), first=1
            )

    def _tried(self, bundle: int, read: Callable[[], T], first: int = 0) -> T:
        """What ``read`` returns, at one of `TRIES` tries."""
        for attempt in range(first, TRIES):
            time.sleep(RETRY_S * attempt)
            try:
                return read()
            except (KeyError, DecodeError, ServiceError) as error:
                if attempt == TRIES - 1:
                    what = "is missing" if isinstance(error, KeyError) else f"is damaged ({error})"
                    key = self._manifest.object_key(bundle)
                    raise RunError(
                        f"packed data {key!r} {what}; delete its folder so that the data is packed anew"
                    ) from None
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Stop fetching."""
        self._reading.shutdown(wait=False, cancel_futures=True)
        self._decoding.shutdown(wait=False, cancel_futures=True)
