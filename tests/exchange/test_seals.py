"""Sealed frames: what a function of the job did not write is never applied, on any server."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from exchange.dict_store import DictStore
from exchange.test_coordinator import ALL, copied, part
from hypothesis import given
from hypothesis import strategies as st

from mlless_nb.errors import DecodeError
from mlless_nb.exchange import Frame, RedisCoordinator
from mlless_nb.exchange.frame_count import FrameCount
from mlless_nb.exchange.redis.client import connect
from mlless_nb.exchange.seals import SEAL_BYTES, Seal
from mlless_nb.exchange.stores import FrameStore, MemcachedStore, ServerStore
from mlless_nb.storage.objects import MemoryObjects

KEY = bytes(range(32))
Write = Callable[[str, bytes], None]


def seal(prefix: str = "mlless:a:") -> Seal:
    return Seal(KEY, prefix)


@given(frame=st.binary(max_size=300), step=st.integers(1, 99), slot=st.integers(0, 9), to=st.none() | st.integers(0, 9))
def test_a_sealed_frame_is_opened_as_it_was(frame: bytes, step: int, slot: int, to: int | None) -> None:
    name = str(step), slot, to
    sealed = seal().sealed(frame, *name)
    assert len(sealed) == len(frame) + SEAL_BYTES
    assert bytes(seal().opened(sealed, *name)) == frame


@given(frame=st.binary(max_size=60), at=st.integers(0, 91), bit=st.integers(0, 7))
def test_a_changed_bit_is_refused(frame: bytes, at: int, bit: int) -> None:
    sealed = bytearray(seal().sealed(frame, "1", 0, None))
    sealed[at % len(sealed)] ^= 1 << bit
    with pytest.raises(DecodeError, match="its seal is wrong"):
        seal().opened(bytes(sealed), "1", 0, None)


@pytest.mark.parametrize("name", [("2", 0, None), ("1m", 0, None), ("1", 1, None), ("1", 0, 2), ("11", 0, None)])
def test_a_frame_in_the_place_of_another_is_refused(name: tuple[str, int, int | None]) -> None:
    sealed = seal().sealed(b"frame", "1", 0, None)
    with pytest.raises(DecodeError):
        seal().opened(sealed, *name)
    with pytest.raises(DecodeError):
        seal("mlless:b:").opened(sealed, "1", 0, None)
    with pytest.raises(DecodeError):
        Seal(KEY[::-1], "mlless:a:").opened(sealed, "1", 0, None)


def test_what_is_refused_is_counted_and_told() -> None:
    here = seal()
    for n, body in enumerate((b"", b"short", bytes(500))):
        with pytest.raises(DecodeError, match="the update of worker 3 in round 7 was refused") as caught:
            here.opened(body, "7", 3, None)
        assert here.n_refused == n + 1
    assert "3 were refused so far" in str(caught.value)
    with pytest.raises(ValueError, match="at least 16 bytes"):
        Seal(b"short", "mlless:a:")


# -- on servers


@pytest.fixture(
    params=[
        pytest.param("redis", marks=pytest.mark.redis),
        pytest.param("dictionary", marks=pytest.mark.redis),
        pytest.param("memcached", marks=[pytest.mark.redis, pytest.mark.memcached]),
        pytest.param("server", marks=pytest.mark.redis),
    ]
)
def sealed_job(request: pytest.FixtureRequest) -> Iterator[tuple[list[RedisCoordinator], Write]]:
    """The coordinators of three workers whose frames are sealed, and a foe who writes to their server."""
    url, job_id = request.getfixturevalue("redis_url"), uuid.uuid4().hex
    prefix, client = f"mlless:{{{job_id}}}:", connect(request.getfixturevalue("redis_url"))
    objects = MemoryObjects()

    def store() -> FrameStore | None:
        if request.param == "memcached":
            return MemcachedStore(prefix, objects, request.getfixturevalue("memcached_url").partition("://")[2])
        if request.param == "server":
            return ServerStore(prefix, objects, request.getfixturevalue("frame_server").url.partition("://")[2])
        return DictStore(prefix, objects) if request.param == "dictionary" else None

    logs = [RedisCoordinator([url], job_id, "1", f"nonce {slot}", store(), KEY.hex()) for slot in ALL]
    logs[0].create(cap_nusd=None, reserved_nusd=0)
    assert all(log.claim(slot) for slot, log in enumerate(logs))
    foe = store()

    def write(name: str, frame: bytes) -> None:
        if foe is None:
            client.set(prefix + name, frame)
        else:
            foe.put_many({prefix + name: frame})

    yield logs, write
    logs[0].delete()
    for log in logs:
        log.close()


def test_rounds_of_sealed_frames_are_those_of_plain_ones(
    sealed_job: tuple[list[RedisCoordinator], Write],
) -> None:
    logs, _ = sealed_job
    for slot, log in enumerate(logs):
        log.publish(part(1, slot))
    assert [copied(log.frames(part(1, slot))) for slot, log in enumerate(logs)] == [
        [f"1 of {other}".encode() for other in ALL if other != slot] for slot in ALL
    ]
    # What is moved has the seals.
    n_bytes = len(b"1 of 0") + SEAL_BYTES
    assert [log.frame_count() for log in logs] == [FrameCount(1, 2, n_bytes, 2 * n_bytes)] * 3
    # A scatter: each receiver has a frame of its own.
    scatters = [replace(part(2, slot), parts={to: b"%d to %d" % (slot, to) for to in ALL}) for slot in ALL]
    for log, scatter in zip(logs, scatters, strict=True):
        log.publish(scatter)
    assert copied(logs[1].frames(scatters[1])) == [b"0 to 1", b"2 to 1"]
    _, found = logs[0].publish_and_poll(part(3, 0), [("3", 1), ("2", 1)])
    assert found == [None, None]
    logs[1].publish(part(3, 1))
    assert [each and bytes(each) for each in logs[0].wait_for_any(part(3, 0), [("3", 1)], int)] == [b"3 of 1"]
    logs[0].put_model(b"the model")
    model: Frame | None = logs[2].get_model()
    assert model is not None
    assert bytes(model) == b"the model"


def test_a_foe_with_the_servers_password_changes_nothing(
    sealed_job: tuple[list[RedisCoordinator], Write],
) -> None:
    logs, write = sealed_job
    for slot, log in enumerate(logs):
        log.publish(part(1, slot))
    write("frame:1:2", b"1 of 2" + bytes(SEAL_BYTES))
    for read in (
        lambda: logs[0].frames(part(1, 0)),
        lambda: logs[0].exchange(part(1, 0), int),
        lambda: logs[0].wait_for_any(part(1, 0), [("1", 2)], int),
        lambda: logs[0].publish_and_poll(part(1, 0), [("1", 2)]),
    ):
        with pytest.raises(DecodeError, match="the update of worker 2 in round 1 was refused, its seal is wrong"):
            read()
    write("frame:model:0", b"another model")
    with pytest.raises(DecodeError, match="the shared model was refused"):
        logs[0].get_model()
