"""How a job names its frame store, and the lines that refuse what is no store, or none that it can use."""

from __future__ import annotations

import os
from typing import Any

import pytest
from exchange import dict_store  # noqa: F401 - registers the store "dict"

import mlless_nb
from mlless_nb import PMF, SGD, JobError, ServiceError, TrainingJob, datasets
from mlless_nb.exchange.stores import (
    DynamoDBStore,
    MemcachedStore,
    ServerStore,
    StorageStore,
    check_store,
    open_store,
)
from mlless_nb.magics.options import OPTIONS
from mlless_nb.storage.objects import MemoryObjects


def make(**changes: Any) -> TrainingJob:
    return TrainingJob(PMF(rank=2), SGD(1.0), datasets.synthetic_ratings(40, 30, 500), **changes)


@pytest.mark.parametrize(
    ("store", "valid"),
    [
        ("memcache", "one of 'redis', 'dict', 'dynamodb', 'memcached://host:11211', 'server://:"),
        (None, "one of 'redis', "),
        (["storage"], "one of 'redis', "),
        ("memcached", "'memcached://host:11211', or several servers"),
        ("memcached://", "'memcached://host:11211', or several servers"),
        ("memcached://localhost:port", "'memcached://host:11211', or several servers"),
        ("memcached://localhost,", "'memcached://host:11211', or several servers"),
        ("memcached://localhost/0", "'memcached://host:11211', or several servers"),
        ("memcached://10.0.0.7", "on this machine, or set insecure=True"),
        ("storage://bucket", "'storage' without an address"),
        ("dynamodb://", "'dynamodb', or with a region"),
        ("dynamodb://frankfurt", "'dynamodb', or with a region"),
        ("server", "'server://:token@host:7337/fingerprint', as `python -m mlless_nb.server` says"),
        ("server://localhost", "'server://:token@host:7337/fingerprint', as `python -m mlless_nb.server` says"),
        ("server://:token@localhost/abc", "'server://:token@host:7337/fingerprint', as `python"),
        ("server://:token@10.0.0.7", "on this machine, or set insecure=True"),
    ],
)
def test_a_wrong_store_is_refused_in_one_line(store: Any, valid: str) -> None:
    with pytest.raises(JobError) as caught:
        make(store=store)
    assert caught.value.field == "store"
    assert valid in caught.value.valid
    assert "\n" not in str(caught.value)


def test_the_help_of_the_cell_names_each_store() -> None:
    said = dict(OPTIONS)["--store"]["help"]
    for kind in (DynamoDBStore, MemcachedStore, ServerStore, StorageStore):
        assert kind.form.strip("'") in said


def test_the_forms_of_a_store_that_are_valid() -> None:
    for store in ("storage", "memcached://localhost", "memcached://[::1]:11212,127.0.0.1", "dynamodb://eu-central-1"):
        assert make(store=store).store == store
    assert make(store="memcached://10.0.0.7", insecure=True).store == "memcached://10.0.0.7"


def test_a_store_whose_package_is_missing_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemcachedStore, "package", "pymemcache_that_is_missing")
    with pytest.raises(JobError, match=r"pymemcache_that_is_missing is not: pip install 'mlless_nb\[memcached\]'"):
        make(store="memcached://localhost")


def test_a_store_without_a_price_is_refused() -> None:
    with pytest.raises(JobError, match="prices='ibm-paper': must be one with a price of dynamodb: 'aws-lambda-x86'"):
        make(store="dynamodb", prices="ibm-paper")
    assert make(store="memcached://localhost", prices="ibm-paper").prices == "ibm-paper"


def test_a_model_that_is_larger_than_a_frame_may_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StorageStore, "max_frame_bytes", 500)
    with pytest.raises(JobError, match=r"store='storage': must be one that takes frames of \d+ bytes .* at most 500"):
        make(store="storage", workers=2, minibatch=100)
    assert make(store="storage", workers=1, minibatch=100).workers == 1


def test_secrets_of_an_address_are_not_shown() -> None:
    for store in ("memcached://:planted-secret@host", "server://:planted-secret@host/abc", "serve://:planted-secret@a"):
        with pytest.raises(JobError) as caught:
            check_store(store)
        assert "planted-secret" not in str(caught.value)
    job = make(store=f"server://:planted-secret@10.0.0.7/{'0' * 64}")
    assert "planted-secret" not in repr(job)
    assert "store='server://:***@10.0.0.7/" in repr(job)


@pytest.mark.parametrize(
    ("store", "valid"),
    [
        ("dynamodb", "with a region, e.g. 'dynamodb://eu-west-1'; boto3 finds none (AWS_DEFAULT_REGION)"),
        ("dynamodb://eu-west-1", "used where boto3 finds credentials; it finds none"),
    ],
)
def test_what_boto3_lacks_is_one_line_that_names_the_store(
    store: str, valid: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)  # it keeps the credentials that another test gave it
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(JobError) as caught:
        mlless_nb.train(make(store=store, workers=2, minibatch=100))
    assert (caught.value.field, caught.value.value) == ("store", store)
    assert valid in caught.value.valid


def test_a_store_that_does_not_answer_is_refused_before_anything_is_launched() -> None:
    store = open_store("memcached://127.0.0.1:1", "mlless:job:", MemoryObjects())
    assert store is not None
    with pytest.raises(ServiceError, match=r"memcached at 127\.0\.0\.1:1 does not answer"):
        store.check()
