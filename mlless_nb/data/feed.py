"""Minibatches for one worker: fetched ahead in a thread, checked, retried, and kept in memory while there is room."""

from __future__ import annotations

import time
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor

from ..errors import DecodeError, RunError, ServiceError
from ..objects import ObjectStore
from .minibatches import Minibatch, decode_minibatch
from .prepare import Manifest

#: Decoded minibatches that a worker keeps, bytes.
CACHE_BYTES = 256 << 20
#: How often a missing or damaged minibatch is fetched before the run fails.
TRIES = 3
#: Seconds before the second of these tries; twice that before the third.
RETRY_S = 0.1


class MinibatchFeed:
    """The minibatches of one packed dataset.

    Parameters
    ----------
    objects : ObjectStore
    manifest : Manifest
    n_rows : int
        Rows of the parameter table; every row id in a minibatch is below it.
    """

    def __init__(self, objects: ObjectStore, manifest: Manifest, n_rows: int) -> None:
        self._objects, self._manifest, self._n_rows = objects, manifest, n_rows
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="mlless-feed")
        self._ahead: dict[int, Future[tuple[Minibatch, int]]] = {}
        self._kept: OrderedDict[int, tuple[Minibatch, int]] = OrderedDict()
        self._kept_bytes = 0

    def get(self, index: int) -> Minibatch:
        """Minibatch number ``index`` (0-based).

        Raises
        ------
        RunError
            When the object is missing or damaged, after several tries; it names the object.
        """
        kept = self._kept.get(index)
        if kept is None:
            ahead = self._ahead.pop(index, None)
            kept = ahead.result() if ahead is not None else self._fetch(index)
            self._kept[index] = kept
            self._kept_bytes += kept[1]
            while self._kept_bytes > CACHE_BYTES and len(self._kept) > 1:
                _, (_, n_bytes) = self._kept.popitem(last=False)
                self._kept_bytes -= n_bytes
        else:
            self._kept.move_to_end(index)
        return kept[0]

    def has(self, index: int) -> bool:
        """Whether minibatch ``index`` is in memory."""
        return index in self._kept

    def prefetch(self, index: int) -> None:
        """Begin to fetch minibatch ``index`` unless it is at hand."""
        if index not in self._kept and index not in self._ahead:
            self._ahead[index] = self._pool.submit(self._fetch, index)

    def _fetch(self, index: int) -> tuple[Minibatch, int]:
        key = self._manifest.object_key(index)
        for attempt in range(TRIES):
            try:
                blob = self._objects.get(key)
                return decode_minibatch(blob, self._n_rows), len(blob)
            except (KeyError, DecodeError, ServiceError) as error:
                time.sleep(RETRY_S * attempt)
                if attempt == TRIES - 1:
                    what = "is missing" if isinstance(error, KeyError) else f"is damaged ({error})"
                    raise RunError(
                        f"minibatch {key!r} {what}; delete its folder so that the data is packed anew"
                    ) from None
        raise AssertionError("unreachable")

    def close(self) -> None:
        """Stop fetching."""
        self._pool.shutdown(wait=False, cancel_futures=True)
