"""Frames on memcached: servers that are full, refuse or are several."""

from __future__ import annotations

from typing import Any

import pytest
from exchange.places import listed
from servers import MemcachedProcess

from mlless_nb import ServiceError
from mlless_nb.exchange.stores import open_store
from mlless_nb.storage.objects import MemoryObjects


def test_a_full_memcached_ends_the_run_and_loses_nothing_silently(memcached_program: str, tmp_path: Any) -> None:
    server = MemcachedProcess(memcached_program, tmp_path, "-m", "8")
    server.start()
    store = open_store(server.url, "mlless:job:", MemoryObjects())
    assert store is not None
    keys = [f"mlless:job:frame:{number}:0" for number in range(40)]
    for key in keys:
        store.put_many({key: bytes(1_000_000)})
    found = store.get_many(keys)
    assert None in found
    assert all(frame is None or len(frame) == 1_000_000 for frame in found)
    server.kill()
    with pytest.raises(ServiceError, match=r"memcached at 127.0.0.1:\d+ does not answer"):
        store.get_many(keys)
    store.close()


def test_a_memcached_that_refuses_to_evict_refuses_the_frame(memcached_program: str, tmp_path: Any) -> None:
    server = MemcachedProcess(memcached_program, tmp_path, "-m", "8", "-M")
    server.start()
    store = open_store(server.url, "mlless:job:", MemoryObjects())
    assert store is not None
    frames = {f"mlless:job:frame:{number}:0": bytes(1_000_000) for number in range(40)}
    with pytest.raises(ServiceError, match=r"memcached at 127.0.0.1:\d+ .*([Oo]ut of memory|is it full)"):
        store.put_many(frames)
    store.close()
    server.kill()


def test_frames_are_spread_over_several_servers(memcached_url: str, memcached_program: str, tmp_path: Any) -> None:
    other = MemcachedProcess(memcached_program, tmp_path)
    other.start()
    both = f"{memcached_url},127.0.0.1:{other.port}"
    store = open_store(both, "mlless:job:", MemoryObjects())
    assert store is not None
    frames = {f"mlless:job:frame:{number}:0": bytes([number]) for number in range(30)}
    store.put_many(frames)
    assert [bytes(frame or b"lost") for frame in store.get_many(list(frames))] == list(frames.values())
    n_here, n_there = len(listed(memcached_url)), len(listed(other.url))
    assert n_here + n_there == 30
    assert min(n_here, n_there) > 5
    assert store.clear() == 30
    store.close()
    other.kill()
