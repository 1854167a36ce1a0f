"""What killed runs leave is found and removed, on real servers; what belongs to others is not touched."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pika
import pytest
import redis as redis_client
from engine.jobs import job
from servers import S3_BACKEND, S3_BUCKET

import mlless_nb
from mlless_nb import CommandError, JobError
from mlless_nb.bus import open_bus
from mlless_nb.bus.urls import mask_url
from mlless_nb.driver import leftovers
from mlless_nb.driver.backends.processes import all_processes, kill
from mlless_nb.driver.cleaning import survey
from mlless_nb.driver.servers.places import PLACES, Places, all_places, end, forget
from mlless_nb.driver.servers.services import Services
from mlless_nb.errors import DecodeError
from mlless_nb.exchange.protocol import key_prefix
from mlless_nb.exchange.stores import open_store
from mlless_nb.magics.cleaning import clean, ps
from mlless_nb.money.owner import Owner
from mlless_nb.storage.conditional import exchange_folder
from mlless_nb.storage.objects import MemoryObjects
from mlless_nb.telemetry.record import runs_folder

GONE = dataclasses.replace(Owner.this(), pid=2**22 + 1, started="1")
RUN = Places("20260101-000000-12345678", "mine", GONE, "embedded", "abc123-0", "", "localhost", "storage", [], "")


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory and a folder of Lithops of its own for each test."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr("lithops.constants.LITHOPS_TEMP_DIR", str(tmp_path / "lithops"))
    monkeypatch.setattr(leftovers, "_watchdog_folders", list)
    return tmp_path


def test_nothing_is_found_where_nothing_is() -> None:
    assert survey() == survey()
    assert (survey().runs, survey().left, survey().packed) == ([], [], {})
    assert repr(mlless_nb.clean()) == "0 left"
    assert not (runs_folder().parent / "ledger.sqlite").exists()


def test_keys_go_with_the_password_and_not_without(redis_url: str) -> None:
    client = redis_client.Redis.from_url(redis_url)
    client.config_set("requirepass", "planted-secret")
    try:
        client = redis_client.Redis.from_url(redis_url, password="planted-secret")
        with_password = redis_url.replace("://", "://:planted-secret@")
        run = dataclasses.replace(RUN, redis=[mask_url(with_password)])
        run.write()
        for key in (f"mlless:{{{run.run_id}}}:job", f"mlless:{{{run.run_id}}}:bus:driver", "mlless:{other}:job"):
            client.set(key, "")
        cleaned = mlless_nb.clean()
        assert cleaned.removed == []
        assert "its password is not kept; give its URL, redis=" in repr(cleaned)
        assert "planted-secret" not in (runs_folder() / run.run_id / PLACES).read_text()
        cleaned = mlless_nb.clean(redis=with_password)
        assert cleaned.left == []
        assert "removed 2 keys of" in repr(cleaned)
        assert "planted-secret" not in repr(cleaned)
        assert client.keys("*") == [b"mlless:{other}:job"]
        assert list(all_places()) == []
    finally:
        client.config_set("requirepass", "")


def test_keys_of_cloud_functions_at_work_stay(redis_url: str) -> None:
    run = dataclasses.replace(RUN, redis=[redis_url], backend="aws_lambda")
    client = redis_client.Redis.from_url(redis_url)
    client.set(f"mlless:{{{run.run_id}}}:lease:driver", "1")
    client.set(f"mlless:{{{run.run_id}}}:lease:0", "1", px=60_000)
    run.write()
    assert "1 function still at work" in repr(mlless_nb.clean())
    assert len(client.keys("*")) == 2
    client.delete(f"mlless:{{{run.run_id}}}:lease:0")
    assert mlless_nb.clean().left == []
    assert client.keys("*") == []


def test_a_server_that_does_not_answer_is_named_and_the_rest_goes(own_folders: Path) -> None:
    objects = own_folders / "lithops" / "storage" / "mlless-nb" / "runs" / RUN.run_id
    objects.mkdir(parents=True)
    (objects / "checkpoint").write_bytes(bytes(1000))
    folder = str(own_folders / "lithops")
    dataclasses.replace(RUN, redis=["redis://127.0.0.1:1"], folder=folder).write()
    cleaned = mlless_nb.clean()
    assert not objects.exists()
    assert len(cleaned.left) == 1
    assert "redis://127.0.0.1:1 does not answer" in cleaned.left[0]
    assert [run.state for run in survey().runs] == ["killed"]  # to be tried again


def test_what_a_run_left_that_its_living_process_has_ended_goes(own_folders: Path) -> None:
    objects = own_folders / "lithops" / "storage" / "mlless-nb" / "runs" / RUN.run_id
    objects.mkdir(parents=True)
    (objects / "checkpoint").write_bytes(bytes(1000))
    dataclasses.replace(RUN, owner=Owner.this(), folder=str(own_folders / "lithops")).write()
    assert mlless_nb.clean().removed == []
    end(RUN.run_id)
    assert [(run.state, [each.what for each in run.left]) for run in survey().runs] == [("ended", ["objects"])]
    assert survey().live == []
    assert len(mlless_nb.clean().removed) == 1
    assert not objects.exists()
    assert list(all_places()) == []


def test_a_model_that_could_not_be_read_is_kept(own_folders: Path) -> None:
    model = own_folders / "lithops" / "storage" / "mlless-nb" / "runs" / RUN.run_id / "model"
    model.parent.mkdir(parents=True)
    model.write_bytes(bytes(1000))
    dataclasses.replace(RUN, owner=Owner.this(), folder=str(own_folders / "lithops")).write()
    end(RUN.run_id, keeps_objects=True)
    assert mlless_nb.clean().removed == []
    assert model.exists()
    assert list(all_places()) == []


@pytest.mark.usefixtures("rabbitmq_url")
def test_queues_go(rabbitmq_url: str) -> None:
    bus = open_bus(rabbitmq_url, RUN.run_id, insecure=True)
    bus.send("supervisor", b"{}")
    bus.close()
    shown = mask_url(rabbitmq_url)
    dataclasses.replace(RUN, bus=shown).write()
    assert mlless_nb.clean(redis=rabbitmq_url).left == []
    connection = pika.BlockingConnection(pika.URLParameters(rabbitmq_url))
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
        connection.channel().queue_declare(f"mlless.{RUN.run_id}.supervisor", passive=True)
    connection.close()


def test_objects_in_a_clouds_storage_go(s3: Any) -> None:
    keep = [f"lithops.jobs/{RUN.executor}1-M000/aggdata.pickle", "mlless-nb/runs/another/checkpoint"]
    lithops = [f"lithops.jobs/{RUN.executor}{end}" for end in ("/function.pickle", "-M000/00000/status.json")]
    for key in (f"mlless-nb/runs/{RUN.run_id}/checkpoint", *lithops, *keep):
        s3.put_object(Bucket=S3_BUCKET, Key=key, Body=bytes(100))
    dataclasses.replace(RUN, backend="localhost", storage="aws_s3", bucket=S3_BUCKET).write()
    found = survey(backend=S3_BACKEND)
    assert [(each.what, each.n_bytes) for each in found.left] == [("3 objects", 300)]
    assert mlless_nb.clean(backend=S3_BACKEND).left == []
    kept = [entry["Key"] for entry in s3.list_objects_v2(Bucket=S3_BUCKET)["Contents"]]
    assert [key for key in kept if key.startswith(("lithops.jobs/", "mlless-nb/runs/"))] == keep


@pytest.mark.parametrize(("role", "left_s", "stays"), [("0", 20.0, True), ("0", -60.0, False), ("driver", 20.0, False)])
def test_objects_stay_while_functions_of_a_cloud_are_at_work(role: str, left_s: float, stays: bool, s3: Any) -> None:
    """They wrote some again, of a run that was forgotten by then, and nothing found these."""
    lease = f"mlless-nb/{exchange_folder(RUN.run_id)}leases/{role}"
    s3.put_object(Bucket=S3_BUCKET, Key=lease, Body=repr(time.time() + left_s).encode())
    dataclasses.replace(RUN, backend="aws_lambda", storage="aws_s3", bucket=S3_BUCKET).write()
    cleaned = mlless_nb.clean(backend=S3_BACKEND)
    kept = s3.list_objects_v2(Bucket=S3_BUCKET, Prefix=lease).get("Contents", [])
    assert (len(kept), [*all_places()] != []) == (stays, stays)
    assert ("1 function still at work, for some minutes at most" in repr(cleaned)) == stays


ELSEWHERE = dataclasses.replace(GONE, host="elsewhere")


@pytest.mark.parametrize(("owner", "has_ended"), [(Owner.this(), False), (ELSEWHERE, False), (ELSEWHERE, True)])
def test_what_may_be_in_use_is_not_touched(
    owner: Owner, has_ended: bool, own_folders: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = own_folders / "lithops" / "storage" / "mlless-nb" / "runs" / RUN.run_id
    objects.mkdir(parents=True)
    packed = own_folders / "lithops" / "storage" / "mlless-nb" / "datasets"
    packed.mkdir()
    (packed / "bundle").write_bytes(bytes(2000))
    temporary = own_folders / "lithops" / "jobs"
    temporary.mkdir()
    (temporary / "abc123-0-M000.done").touch()
    dataclasses.replace(RUN, owner=owner, has_ended=has_ended, folder=str(own_folders / "lithops")).write()
    # A killed parent of the process, with the same ids of Lithops.
    dataclasses.replace(RUN, run_id="killed", folder=str(own_folders / "lithops")).write()
    assert mlless_nb.clean().removed == []
    assert objects.exists()
    assert (temporary / "abc123-0-M000.done").exists()
    with pytest.raises(CommandError, match=r"data=True: must wait until no run is live, .* mine"):
        mlless_nb.clean(data=True)
    ps([])
    said = capsys.readouterr().out
    assert str(owner.pid) in said
    assert ("starting" if owner.host != "elsewhere" else "elsewhere") in said
    assert "datasets, 2.0 kB" in said
    forget(RUN.run_id)
    clean(["--data"])
    assert "removed packed data" in capsys.readouterr().out
    assert not packed.exists()


def test_objects_of_unknown_runs_go_when_they_are_old(own_folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    objects = own_folders / "lithops" / "storage" / "mlless-nb" / "runs" / "unknown"
    objects.mkdir(parents=True)
    assert survey().others == []
    os.utime(objects, (1, 1))
    assert [each.run for each in survey().others] == ["unknown"]
    monkeypatch.setattr(leftovers, "_watched_paths", lambda: {str(objects)})
    assert survey().others == []
    monkeypatch.undo()


@pytest.mark.parametrize("place", ["", f"{RUN.run_id}/frames", "unknown/frames"])
def test_what_is_removed_while_it_is_looked_for_is_passed_over(
    place: str, own_folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As runs that end do, and watchdogs: `survey` and `clean` failed."""
    root, look = own_folders / "lithops", os.scandir
    folder = root / "storage" / "mlless-nb" / "runs" / place
    folder.mkdir(parents=True)
    dataclasses.replace(RUN, folder=str(root)).write()

    def too_late(path: Any) -> Any:
        if Path(path) == folder:
            folder.rmdir()
        return look(path)

    monkeypatch.setattr(os, "scandir", too_late)
    found = survey()
    assert not folder.exists()
    assert ([run.state for run in found.runs], found.others) == (["killed"], [])


@pytest.mark.parametrize(
    "change",
    [
        {"run_id": "../../etc"},
        {"executor": "*"},
        {"bucket": "a/b"},
        {"redis": "redis://x"},
        {"owner": {"pid": 1}},
        {"owner": {"host": "", "boot": "", "pid": True, "started": ""}},
        {"extra": 1},
    ],
)
def test_damaged_places_are_skipped(change: dict[str, Any]) -> None:
    RUN.write()
    path = runs_folder() / RUN.run_id / PLACES
    good = json.loads(path.read_text())
    assert list(all_places()) == [RUN]
    path.write_text(json.dumps({**good, **change}))
    with pytest.raises(DecodeError):
        Places.decode(path.read_bytes())
    assert list(all_places()) == []
    path.write_bytes(b"\xff{")
    assert list(all_places()) == []


def test_only_the_named_processes_are_killed() -> None:
    code = "import sys; print(flush=True); sys.stdin.read()"
    children = [
        subprocess.Popen([sys.executable, "-c", code, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for name in ("mlless-one", "mlless-two")
    ]
    try:
        for child in children:
            assert child.stdout is not None
            child.stdout.readline()
        found = [each for each in all_processes() if "mlless-one" in each.command and each.pid == children[0].pid]
        assert len(found) == 1
        kill([dataclasses.replace(each, command="another program") for each in found])
        assert children[0].poll() is None
        kill(found)
        assert children[0].wait(30) == -9
        assert children[1].poll() is None
    finally:
        for child in children:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                assert pipe is not None
                pipe.close()


@pytest.mark.parametrize("call", [lambda: mlless_nb.clean(redis=[3]), lambda: mlless_nb.clean(data=1)])  # type: ignore[list-item, arg-type]
def test_wrong_arguments_are_named(call: Any) -> None:
    with pytest.raises(JobError, match=r"^(redis|data)="):
        call()


def test_names_and_ages_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    RUN.write()
    began_s = time.time() - 100
    os.utime(runs_folder() / RUN.run_id / PLACES, (began_s, began_s))
    ps([])
    row = capsys.readouterr().out.splitlines()[1].split()
    assert row[:3] == ["mine", str(GONE.pid), "killed"]
    assert 100 <= int(row[3]) <= time.time() - began_s + 1


@pytest.mark.parametrize("is_at_work", [False, True])
def test_the_table_of_a_run_goes_once_no_function_is_at_work(is_at_work: bool, dynamodb: Any, redis_url: str) -> None:
    """It stayed, and was shown by nothing, until the whole deployment was removed."""
    for run_id in (RUN.run_id, "20260101-000000-87654321"):
        store = open_store("dynamodb://us-east-1", key_prefix(run_id), MemoryObjects())
        assert store is not None
        store.create()
        store.close()
    client = redis_client.Redis.from_url(redis_url)
    if is_at_work:
        client.set(f"{key_prefix(RUN.run_id)}lease:0", "1", px=60_000)
    where = {"backend": "aws_lambda", "redis": [redis_url], "store": "dynamodb://us-east-1"}
    dataclasses.replace(RUN, **where).write()
    cleaned = mlless_nb.clean()
    tables = dynamodb.list_tables()["TableNames"]
    assert (f"mlless-{RUN.run_id}" in tables, [*all_places()] != []) == (is_at_work, is_at_work)
    assert "mlless-20260101-000000-87654321" in tables
    assert (f"removed frames of {RUN.run_id} (dynamodb://us-east-1)" in repr(cleaned)) != is_at_work
    assert ("(dynamodb://us-east-1: once the run's keys are removed)" in repr(cleaned)) == is_at_work
    client.delete(f"{key_prefix(RUN.run_id)}lease:0")
    assert mlless_nb.clean().left == []
    assert dynamodb.list_tables()["TableNames"] == ["mlless-20260101-000000-87654321"]
    assert [*all_places()] == []


def test_frames_behind_a_password_that_is_not_kept_or_out_of_reach_are_named() -> None:
    for store, why in (("dict://:***@host", "its password is not kept"), ("nothing://host", "does not answer")):
        dataclasses.replace(RUN, store=store).write()
        assert f"frames, if any of {RUN.run_id} ({store}" in repr(cleaned := mlless_nb.clean())
        assert why in repr(cleaned)
    assert len([*all_places()]) == 1


@pytest.mark.usefixtures("dynamodb")
def test_a_run_notes_the_store_whose_frames_do_not_expire(memcached_url: str) -> None:
    for store, noted in (("dynamodb", "dynamodb://us-east-1"), (memcached_url, ""), ("redis", "")):
        services = Services(job(store=store), RUN.run_id)
        try:
            assert [places.store for places in all_places()] == [noted]
        finally:
            services.close()
