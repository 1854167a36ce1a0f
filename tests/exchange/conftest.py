"""Every kind of frame store, for the tests of all that a store promises."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from exchange.dict_store import DictStore
from exchange.places import Place, kept_on, listed
from servers import S3_BACKEND

from mlless_nb.exchange.stores import FrameStore
from mlless_nb.storage.objects import LithopsObjects, MemoryObjects


@pytest.fixture(
    params=["dict", "storage", pytest.param("s3", marks=pytest.mark.long), "memcached", "dynamodb", "server"]
)
def place(request: pytest.FixtureRequest, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A store on a server of its own; nothing but what a test wrote is in it."""
    if request.param == "dict":
        return Place("dict", MemoryObjects(), lambda job_id: [key for key in DictStore.kept if job_id in key])
    if request.param == "memcached":
        url = request.getfixturevalue("memcached_url")
        return Place(url, MemoryObjects(), lambda job_id: [key for key in listed(url) if job_id in key])
    if request.param == "server":
        url = request.getfixturevalue("frame_server").url
        return Place(url, MemoryObjects(), lambda job_id: kept_on(url, f"mlless:{{{job_id}}}:"))
    if request.param == "dynamodb":
        client = request.getfixturevalue("dynamodb")
        return Place("dynamodb", MemoryObjects(), lambda job_id: client.list_tables()["TableNames"])
    import lithops
    from lithops.storage.backends.localhost import localhost

    if request.param == "s3":
        request.getfixturevalue("s3")
        config = S3_BACKEND
    else:
        monkeypatch.setattr(localhost, "LITHOPS_TEMP_DIR", str(tmp_path))
        config = {"lithops": {"backend": "localhost", "storage": "localhost"}}
    objects = LithopsObjects(lithops.Storage(config=config), "mlless-nb-test/")
    return Place("storage", objects, lambda job_id: objects.list(f"runs/{job_id}/"))


@pytest.fixture
def job_id(place: Place) -> Iterator[str]:
    """A job of which nothing may be left in the store."""
    name = uuid.uuid4().hex
    yield name
    assert place.left(name) == []


@pytest.fixture
def store(place: Place, job_id: str) -> Iterator[FrameStore]:
    """The store of one job."""
    opened = place.open(job_id)
    yield opened
    opened.clear()
    opened.close()
