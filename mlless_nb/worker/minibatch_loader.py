"""The minibatches of one worker: a thread prefetches them in runs, checks and retries reads; a cache keeps them."""

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

#: Size of a worker's cache of minibatches, bytes.
CACHE_BYTES = 256 << 20
#: Bundles up to this size are read with one request, bytes.
SMALL_BYTES = 2 << 20
#: Tries to read a missing or damaged object before the run fails.
TRIES = 3
#: Seconds before the second of these tries; twice that before the third.
RETRY_S = 0.1


class MinibatchFeed:
    """The minibatches of one packed dataset. For one thread.

    Parameters
    ----------
    objects : ObjectStore
    manifest : Manifest
    """

    def __init__(self, objects: ObjectStore, manifest: Manifest) -> None:
        self._objects, self._manifest = objects, manifest
        # Two threads, so that decoding does not wait behind a read.
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="mlless-feed")
        self._decoding = ThreadPoolExecutor(1, thread_name_prefix="mlless-decode")
        self._runs = Runs(manifest)
        self._indexes: dict[int, BundleIndex] = {}  # by bundle; written by the reading thread
        self._small: dict[int, bytes] = {}  # bundles that were read as a whole
        self._asked: set[int] = set()  # bundles whose index was read or requested
        self._kept: OrderedDict[Run, Future[bytes]] = OrderedDict()  # read, or being read
        self._kept_bytes = 0
        self._minibatches: dict[int, Future[Minibatch] | Minibatch] = {}

    def expect(self, indices: Iterable[int]) -> None:
        """Announce the minibatches (0-based) needed from now on, in about this order: they are read in runs."""
        self._runs.expect(indices, list(self._kept))

    @property
    def has_all(self) -> bool:
        """Whether all expected minibatches are in memory or being read."""
        return len(self._minibatches) >= self._runs.n_minibatches

    def get(self, index: int) -> Minibatch:
        """Minibatch number ``index`` (0-based).

        Raises
        ------
        RunError
            When its object is missing or damaged after several tries; the message names the object.
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
        """Begin to read minibatch ``index`` unless it is in memory, and the run that is likely to be needed next."""
        run = self._begin(index)
        if index not in self._minibatches:
            self._minibatches[index] = self._decoding.submit(self._decode, run, index, self._kept[run])
        following = self._runs.after(run)
        if following is None or following in self._kept or not self._kept[run].done():
            return
        if self._runs.n_bytes(run) + self._runs.n_bytes(following) <= CACHE_BYTES:
            self._read(following)

    def n_gets(self, indices: Collection[int]) -> int:
        """Upper bound of the requests to read these minibatches in runs, and the runs prefetched after them."""
        runs = {self._runs.of(index) for index in indices}
        runs |= {run for run in map(self._runs.after, runs) if run is not None}
        if sum(map(self._runs.n_bytes, runs)) <= CACHE_BYTES:
            for run in runs & self._kept.keys():
                self._kept.move_to_end(run)  # other runs are evicted first
            runs -= self._kept.keys()
        return len(runs) + len({run.bundle for run in runs} - self._asked)

    def _begin(self, index: int) -> Run:
        """Make sure that the run of ``index`` is read or being read."""
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
        """The index of a bundle: the positions of its minibatches."""
        found = self._indexes.get(bundle)
        if found is None:
            found = self._indexes[bundle] = self._tried(bundle, lambda: self._read_index(bundle))
        return found

    def _read_index(self, bundle: int) -> BundleIndex:
        first, end = self._manifest.bundles[bundle : bundle + 2]
        if (end - first) * self._manifest.minibatch_bytes <= SMALL_BYTES:
            # One request for the whole bundle costs less than one for its index and one for a part.
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
        """A minibatch of a run. If it is damaged, it alone is read again."""
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
        """The result of ``read``, which is tried up to `TRIES` times."""
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
