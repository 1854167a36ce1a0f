"""The memory twin of the object storage, and the storage of Lithops behind the same face."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import S3_BACKEND

from mlless_nb.errors import ServiceError
from mlless_nb.storage.folder import Folder
from mlless_nb.storage.objects import LithopsObjects, MemoryObjects, ObjectStore


class Bucket:
    """A storage as Lithops makes it, in memory."""

    bucket, backend = "bucket", ""

    def __init__(self) -> None:
        self.blobs: dict[tuple[str, str], bytes] = {}
        self.error: Exception | None = None

    def _answer(self) -> None:
        if self.error is not None:
            raise self.error

    def get_object(self, bucket: str, key: str, extra_get_args: dict[str, str] | None = None) -> bytes:
        """The blob, or the storage's own error."""
        from lithops.storage.utils import StorageNoSuchKeyError

        self._answer()
        if (bucket, key) not in self.blobs:
            raise StorageNoSuchKeyError(bucket, key)
        span = (extra_get_args or {}).get("Range")
        if span is None:
            return self.blobs[bucket, key]
        first, last = map(int, span.removeprefix("bytes=").split("-"))
        return self.blobs[bucket, key][first : last + 1]

    def put_object(self, bucket: str, key: str, body: bytes) -> None:
        """Keep the blob."""
        self._answer()
        self.blobs[bucket, key] = body

    def list_keys(self, bucket: str, prefix: str) -> list[str]:
        """Keys in no order."""
        self._answer()
        return sorted((key for where, key in self.blobs if where == bucket and key.startswith(prefix)), reverse=True)

    def list_objects(self, bucket: str, prefix: str) -> list[dict[str, Any]]:
        """Keys and sizes."""
        return [{"Key": key, "Size": len(self.blobs[bucket, key])} for key in self.list_keys(bucket, prefix)]

    def delete_objects(self, bucket: str, keys: list[str]) -> None:
        """Remove blobs."""
        self._answer()
        for key in keys:
            self.blobs.pop((bucket, key), None)


@pytest.fixture(params=["memory", "lithops", "localhost", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """An empty object storage."""
    if request.param == "memory":
        yield MemoryObjects()
    elif request.param == "lithops":
        yield LithopsObjects(Bucket())
    elif request.param == "s3":
        import lithops

        request.getfixturevalue("s3")
        yield LithopsObjects(lithops.Storage(config=S3_BACKEND), "mlless-nb-test/")
    else:
        import lithops
        from lithops.storage.backends.localhost import localhost

        monkeypatch.setattr(localhost, "LITHOPS_TEMP_DIR", str(tmp_path))
        config = {"lithops": {"backend": "localhost", "storage": "localhost"}}
        yield LithopsObjects(lithops.Storage(config=config), "mlless-nb-test/")


def test_what_is_put_is_got_listed_and_removed(objects: ObjectStore) -> None:
    objects.put("runs/a/two", b"2")
    objects.put("runs/a/one", bytearray(b"1"))  # type: ignore[arg-type]
    objects.put("runs/b/one", b"")
    objects.put("runs/a/two", b"two")
    assert objects.get("runs/a/two") == b"two"
    assert objects.get("runs/a/one") == b"1"
    assert objects.get("runs/b/one") == b""
    assert objects.list("runs/a/") == ["runs/a/one", "runs/a/two"]
    assert objects.list("runs/") == ["runs/a/one", "runs/a/two", "runs/b/one"]
    assert objects.list("nothing/") == []
    assert isinstance(objects, (MemoryObjects, LithopsObjects))
    assert objects.sizes("runs/") == {"runs/a/one": 1, "runs/a/two": 3, "runs/b/one": 0}
    objects.delete(["runs/a/one", "runs/a/never-was"])
    objects.delete([])
    assert objects.list("runs/") == ["runs/a/two", "runs/b/one"]
    with pytest.raises(KeyError):
        objects.get("runs/a/one")


@pytest.mark.parametrize(
    ("first", "end", "part"), [(0, 4, b"0123"), (3, 4, b"3"), (2, 10, b"23456789"), (9, 10, b"9"), (5, 400, b"56789")]
)
def test_a_part_is_got_as_far_as_there_is_one(objects: ObjectStore, first: int, end: int, part: bytes) -> None:
    objects.put("digits", b"0123456789")
    assert objects.get("digits", first, end) == part
    assert objects.gets == 1
    with pytest.raises(KeyError):
        objects.get("letters", first, end)


def test_a_part_behind_the_end_is_empty_or_refused(objects: ObjectStore) -> None:
    objects.put("digits", b"0123456789")
    part = b""
    with contextlib.suppress(ServiceError):
        part = objects.get("digits", 10, 20)
    assert part == b""


def test_what_is_put_is_a_copy(objects: ObjectStore) -> None:
    blob = bytearray(b"before")
    objects.put("key", blob)  # type: ignore[arg-type]
    blob[:] = b"after "
    assert objects.get("key") == b"before"


def test_requests_are_counted_for_the_meter(objects: ObjectStore) -> None:
    assert (objects.gets, objects.puts) == (0, 0)
    objects.put("a", b"1")
    objects.put("b", b"2")
    objects.get("a")
    objects.list("")
    with pytest.raises(KeyError):
        objects.get("c")
    objects.delete(["a", "b"])
    assert (objects.gets, objects.puts) == (2, 3)


def test_a_storage_that_does_not_answer_is_said_to_and_what_was_asked_of_it() -> None:
    bucket = Bucket()
    objects = LithopsObjects(bucket)
    bucket.error = OSError("no route to host")
    with pytest.raises(ServiceError, match=r"object storage: reading 'a' failed: no route"):
        objects.get("a")
    with pytest.raises(ServiceError, match=r"object storage: writing 'a' failed"):
        objects.put("a", b"")
    with pytest.raises(ServiceError, match=r"object storage: listing 'a' failed"):
        objects.list("a")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("AccessDenied", "permission: s3:{action} is denied: `mlless-nb policy aws` prints what an administrator has"),
        ("ExpiredToken", "credentials: they have expired: log in again"),
        ("SlowDown", "AWS is busy: s3:{action} was put off too often"),
        ("Other", "An error occurred (Other) when calling the"),
    ],
)
def test_what_s3_refuses_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch, code: str, said: str) -> None:
    from botocore.exceptions import ClientError

    bucket = Bucket()
    objects = LithopsObjects(bucket)
    for ask, action in (
        (lambda: objects.get("a"), "GetObject"),
        (lambda: objects.put("a", b""), "PutObject"),
        (lambda: objects.list("a"), "ListBucket"),
        (lambda: objects.sizes("a"), "ListBucket"),
        (lambda: objects.delete(["a"]), "DeleteObject"),
    ):
        bucket.error = ClientError({"Error": {"Code": code, "Message": "Refused."}}, "Operation")
        bucket.backend = "aws_s3"
        with pytest.raises(ServiceError, match=r"^object storage: .* failed: ") as refused:
            ask()
        assert said.format(action=action) in str(refused.value)
        # MinIO has the same codes, and its rights are another one's to give.
        bucket.backend = "minio"
        with pytest.raises(ServiceError, match=rf"failed: An error occurred \({code}\)"):
            ask()
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "mlless")
    bucket.backend = "aws_s3"
    with pytest.raises(ServiceError, match="deploy aws" if code == "AccessDenied" else "failed"):
        objects.delete(["a"])


def test_all_keys_lie_below_one_prefix() -> None:
    bucket = Bucket()
    bucket.blobs["bucket", "of/somebody/else"] = b"theirs"
    objects = LithopsObjects(bucket)
    objects.put("runs/a", b"")
    assert ("bucket", "mlless-nb/runs/a") in bucket.blobs
    assert objects.list("") == ["runs/a"]
    objects.delete(objects.list(""))
    assert bucket.blobs == {("bucket", "of/somebody/else"): b"theirs"}


def test_what_a_killed_writer_has_left_is_swept(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    folder.put("runs/one/frames/7", b"whole")
    (tmp_path / "runs/one/frames/.8-123-0-1").write_bytes(b"half")
    (tmp_path / "runs/one/frames/3").mkdir()
    (tmp_path / "runs/one/frames/3/.9-123-0-2").touch()
    folder.sweep("runs/one")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["7"]
    folder.delete("runs/one/frames/7")
    (tmp_path / "runs/one").mkdir(parents=True, exist_ok=True)
    folder.sweep("runs/one")
    folder.sweep("runs/never")
    assert not (tmp_path / "runs/one").exists()
