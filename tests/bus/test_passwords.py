"""Passwords that URLs name: from the environment or the keyring, hidden from all texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlless_nb import JobError, ServiceError, redaction
from mlless_nb.bus.passwords import filled
from mlless_nb.bus.urls import check_redis

KEYRING = """
def get_password(service, name):
    if name == "LOCKED":
        raise RuntimeError("the keyring is locked")
    return {("mlless_nb", "FROM_KEYRING"): "planted/keyring"}.get((service, name))
"""


@pytest.fixture
def keyring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package ``keyring`` with one entry."""
    (tmp_path / "keyring.py").write_text(KEYRING)
    monkeypatch.syspath_prepend(tmp_path)


def test_a_name_stands_for_an_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_PASSWORD", "planted @:/?#")
    assert filled("redis", "rediss://me:${OUR_PASSWORD}@host:1/0") == "rediss://me:planted%20%40%3A%2F%3F%23@host:1/0"
    assert filled("redis", "unix:///run/socket?password=${OUR_PASSWORD}").endswith("planted%20%40%3A%2F%3F%23")
    assert redaction.scrubbed("it is planted @:/?#, planted%20%40%3A%2F%3F%23") == "it is ***, ***"


@pytest.mark.usefixtures("keyring")
def test_a_name_stands_for_an_entry_of_the_keyring() -> None:
    assert filled("bus", "amqps://me:${FROM_KEYRING}@host/v") == "amqps://me:planted%2Fkeyring@host/v"
    assert redaction.scrubbed("planted/keyring") == "***"


@pytest.mark.usefixtures("keyring")
@pytest.mark.parametrize("name", ["NOWHERE", "LOCKED", "", "a b", "../x"])
def test_a_name_that_stands_for_nothing_is_told(name: str) -> None:
    with pytest.raises(JobError, match=r"redis=.*no environment variable .*keyring set mlless_nb"):
        filled("redis", f"rediss://me:${{{name}}}@host")


def test_without_a_keyring_only_the_environment_is_asked() -> None:
    with pytest.raises(JobError, match="no environment variable NOWHERE"):
        filled("redis", "rediss://me:${NOWHERE}@host")


def test_a_server_elsewhere_has_a_default_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLLESS_REDIS_PASSWORD", "planted-default")
    monkeypatch.setenv("MLLESS_RABBITMQ_PASSWORD", "planted-broker")
    assert filled("redis", "rediss://10.9.8.7:6379/0") == "rediss://:planted-default@10.9.8.7:6379/0"
    assert filled("redis", "rediss://me@10.9.8.7") == "rediss://me:planted-default@10.9.8.7"
    assert filled("redis", "rediss://me:other@10.9.8.7") == "rediss://me:other@10.9.8.7"
    assert filled("redis", "rediss://10.9.8.7?password=other") == "rediss://10.9.8.7?password=other"
    assert filled("bus", "amqps://me@10.9.8.7/v") == "amqps://me:planted-broker@10.9.8.7/v"
    for url in ("redis://127.0.0.1:6379", "redis://localhost", "unix:///run/socket", "storage", "memcached://10.9.8.7"):
        assert filled("redis", url) == url


def test_an_error_with_the_password_in_it_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_PASSWORD", "planted-in-error")
    with pytest.raises(ServiceError) as caught:
        check_redis(filled("redis", "redis://:${OUR_PASSWORD}@127.0.0.1:1/0"))
    assert "planted" not in str(caught.value)
    assert "planted" not in str(ServiceError("a library says: planted-in-error"))
    assert "planted" not in repr(JobError("redis", "planted-in-error", "planted-in-error"))


def test_secrets_are_found_where_configurations_and_urls_hold_them() -> None:
    config = {
        "aws": {"secret_access_key": "one", "region": "no", "nested": [{"api_key": "two"}]},
        "ibm": {"iam_api_key": "three", "endpoint": "https://me:four@host?token=five"},
        "runtime": "python",
    }
    assert set(redaction.in_configuration(config)) == {"one", "two", "three", "four", "five"}
    assert redaction.in_url("amqp://me:p@w#/d@host") == ["p@w#/d"]
    assert redaction.in_url("redis://me:a%20b@host/0?x=1") == ["a%20b", "a b"]


def test_errors_are_scrubbed_with_all_that_they_tell_of() -> None:
    redaction.remember("planted-deep-inside")
    inner = ValueError("planted-deep-inside", 3)
    outer = RuntimeError("x planted-deep-inside y")
    outer.__cause__ = inner
    inner.__context__ = outer
    redaction.scrub(outer)
    assert (outer.args, inner.args) == (("x *** y",), ("***", 3))


def test_what_is_remembered_again_is_not_the_first_to_be_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server's password was, after many runs each of which had added one of its own."""
    monkeypatch.setattr(redaction, "_known", {})
    for number in range(redaction.MOST_SECRETS + 10):
        redaction.remember("planted-first", f"planted-of-run-{number}")
    assert redaction.scrubbed("planted-first planted-of-run-0") == "*** planted-of-run-0"


def test_short_secrets_and_numbers_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_known", {})  # other tests have these digits in account numbers
    redaction.remember("abc", "123456", None, "")
    assert redaction.scrubbed("abc") == "abc"
    assert redaction.scrubbed_values({"123456": [0.123456, 123456, "a 123456"]}) == {
        "123456": [0.123456, 123456, "a ***"]
    }
