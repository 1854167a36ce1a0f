"""Leases as objects: each says until when its holder is alive, by the storage's clock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ...storage.conditional import Conditional

#: A publishing worker renews its lease once this share of it has passed.
SHARE = 1 / 3


class Leases:
    """The leases of one job, for several threads.

    Parameters
    ----------
    storage : Conditional
    folder : str
        Prefix of their keys.
    freshness_s : float
        Seconds that a lease which was seen alive is not read again.
    note : callable
        Called with the numbers of reads and writes made.
    """

    def __init__(self, storage: Conditional, folder: str, freshness_s: float, note: Callable[[int, int], None]) -> None:
        self._storage, self._folder, self._freshness_s, self._note = storage, folder, freshness_s, note
        self._lock = threading.Lock()
        self._renewed: dict[str, float] = {}  # by role: when this process did, by its own clock
        self._seen: dict[str, tuple[float, float]] = {}  # by role: until when it holds, and when that was read

    def renew(self, role: str, lease_s: float, share: float = 0.0) -> None:
        """Renew the lease of ``role`` unless this process did so within ``share`` of its ``lease_s`` seconds."""
        now = time.monotonic()
        with self._lock:
            if share and now - self._renewed.get(role, -1e9) < share * lease_s:
                return
            self._renewed[role] = now
        self._note(0, 1)
        # A renewal is late by up to the share, and takes a request.
        until_s = self._storage.now_s() + lease_s * (1 + share)
        self._storage.objects.put(self._folder + role, repr(until_s).encode())

    def is_alive(self, role: str, freshness_s: float | None = None) -> bool:
        """Whether ``role`` holds a lease; one that was seen alive is read again after ``freshness_s`` seconds."""
        fresh_s, now = self._freshness_s if freshness_s is None else freshness_s, time.monotonic()
        until_s, read_at = self._seen.get(role, (-1e9, -1e9))
        if now - read_at < fresh_s and until_s > self._storage.now_s():
            return True
        self._note(1, 0)
        try:
            until_s = float(self._storage.objects.get(self._folder + role))
        except (KeyError, ValueError):
            until_s = -1e9
        self._seen[role] = (until_s, now)
        return until_s > self._storage.now_s()

    def bury(self, role: str) -> None:
        """End the lease of ``role``."""
        self._seen.pop(role, None)
        self._storage.objects.delete([self._folder + role])
