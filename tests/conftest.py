"""Real servers for the tests: each on free loopback ports, in a temporary folder, gone with the test run."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import signal
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import hypothesis
import pytest
import redis_cluster
from audit import unpickling
from runtimes import SharedRuntime
from servers import (
    RABBITMQ_PROGRAMS,
    S3_BUCKET,
    FrameServerProcess,
    MemcachedProcess,
    PrivateRedisProcess,
    RabbitProcess,
    RedisProcess,
    Relay,
    certificate_of,
    dies_with_parent,
    free_port,
    missing,
    server_is_up,
)

#: Folders whose tests take the longest: they begin with these, so that no worker of the test run is left alone in the
#: end with a long file.
FIRST = ("engine", "chaos", "browser", "notebooks", "kernels", "magics", "job", "supervisor", "simulate")

#: Characters of a failure's first line that are printed when it happens.
MOST_OF_WHY = 300

# Examples may take any time: machines differ, and are busy with other things.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True
)
hypothesis.settings.load_profile("any machine")


def pytest_configure(config: pytest.Config) -> None:
    """Give the tests of this process a folder of their own for what is temporary; let Ctrl-C be tested.

    Lithops and the servers keep their files there: test runs side by side, and a user's own runs, are apart.
    """
    # Callers ignore Ctrl-C sometimes, as `nohup` and a script's `&` do.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if config.getoption("dist", "no") == "no" or hasattr(config, "workerinput"):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # `tmp_path` stays where one looks for it
        folder = tempfile.mkdtemp(prefix="mlless-tests-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        _watch_unpickling(config, Path(folder))
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailuresAtOnce(config))


class FailuresAtOnce:
    """Names each failed test when it fails: a test run that is cut off prints no summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print the test's name, and in a line why it failed."""
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            crash = getattr(report.longrepr, "reprcrash", None)
            why = str(crash.message if crash is not None else report.longrepr).split("\n", 1)[0]
            terminal.write(f"\n{report.when} of {report.nodeid} failed: {why[:MOST_OF_WHY]}\n")


def _watch_unpickling(config: pytest.Config, folder: Path) -> None:
    """Refuse pickles here and in all processes that tests start; any that was refused fails the test run."""
    os.environ[unpickling.LOG] = str(folder / "unpickled")
    path = [str(Path(unpickling.__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(path)
    unpickling.install()


@pytest.fixture(autouse=True)
def nothing_is_unpickled() -> Iterator[None]:
    """Fails the test during which a pickle was opened, in whichever process."""
    yield
    log = Path(os.environ[unpickling.LOG])
    if log.exists():
        places = log.read_text()
        log.unlink()
        pytest.fail(f"opened pickles:\n{places}")


@pytest.fixture(scope="session", autouse=True)
def data_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Records of the tests' runs lie apart from the user's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data-home")))
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by the servers that they use, so that ``-m "not rabbitmq"`` leaves them out; put long ones first."""
    rank = {folder: number for number, folder in enumerate(FIRST)}
    items.sort(key=lambda item: rank.get(item.path.relative_to(Path(__file__).parent).parts[0], len(FIRST)))
    for item in items:
        names = set(getattr(item, "fixturenames", ()))
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            names |= {value for value in item.callspec.params.values() if isinstance(value, str)}
        if names & {"redis_server", "redis_url", "redis", "tls_redis", "redis_cluster"}:
            item.add_marker(pytest.mark.redis)
        if names & {"memcached_server", "memcached_url", "memcached"}:
            item.add_marker(pytest.mark.memcached)
        if names & {"rabbitmq_server", "rabbitmq_url", "rabbitmq", "tls_rabbitmq"}:
            item.add_marker(pytest.mark.rabbitmq)


@pytest.fixture(scope="session")
def redis_program() -> str:
    """The path of a Redis server."""
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        missing("redis-server", "apt-get install redis-server, or brew install redis")
    assert program is not None
    return program


@pytest.fixture(scope="session")
def redis_server(redis_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    """A Redis of the whole test run, which a test may kill and start again."""
    server = RedisProcess(redis_program, tmp_path_factory.mktemp("redis"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def redis_url(redis_server: RedisProcess) -> str:
    """URL of an empty Redis."""
    assert server_is_up(redis_server)
    redis_server.said(b"FLUSHALL\r\n")
    return redis_server.url


@pytest.fixture
def own_redis(redis_program: str, tmp_path: Path) -> Iterator[RedisProcess]:
    """A Redis that a test may pause, empty and restart."""
    server = RedisProcess(redis_program, tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def redis_of_kind(redis_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], str]]:
    """Gives the URL of a Redis of the whole test run for keys that begin alike: "tls_redis" or "redis_cluster".

    The one is behind TLS and a password, and its URL carries the certificate of its own authority; the other is one of
    two servers, which has these keys.
    """
    from mlless_nb.bus.cluster import node_of

    with contextlib.ExitStack() as stack:

        @functools.cache
        def started(kind: str) -> str:
            if kind == "redis_cluster":
                return stack.enter_context(redis_cluster.started(redis_program, tmp_path_factory.mktemp))[0]
            folder = tmp_path_factory.mktemp("tls-redis")
            certificate = certificate_of(folder)
            server = PrivateRedisProcess(redis_program, folder, "planted-password", certificate)
            server.start()
            stack.callback(server.kill)
            return f"{server.url}?ssl_ca_data={quote(certificate.authority.read_text())}"

        yield lambda kind, prefix: node_of(started(kind), prefix) if kind == "redis_cluster" else started(kind)


@pytest.fixture(scope="session")
def rabbitmq_program() -> str:
    """The path of RabbitMQ's own script."""
    program = next((path for name in RABBITMQ_PROGRAMS if (path := shutil.which(name))), None)
    if program is None:
        missing("rabbitmq-server", "apt-get install rabbitmq-server, or brew install rabbitmq")
    assert program is not None
    return program


@pytest.fixture(scope="session")
def rabbitmq_server(rabbitmq_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitProcess]:
    """A RabbitMQ of the whole test run, which a test may kill and start again."""
    server = RabbitProcess(rabbitmq_program, tmp_path_factory.mktemp("rabbitmq"))
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture
def rabbitmq_url(rabbitmq_server: RabbitProcess) -> str:
    """URL of a RabbitMQ that other tests use too, under other job ids."""
    assert server_is_up(rabbitmq_server)
    return rabbitmq_server.url


@pytest.fixture(scope="session")
def tls_rabbitmq(rabbitmq_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The URL of a RabbitMQ behind TLS, and the file of its authority's certificate."""
    folder = tmp_path_factory.mktemp("tls-rabbitmq")
    certificate = certificate_of(folder)
    server = RabbitProcess(rabbitmq_program, folder, "planted-password", certificate)
    try:
        server.start()
        yield server.tls_url, certificate.authority
    finally:
        server.stop()


@pytest.fixture(scope="session")
def memcached_program() -> str:
    """The path of memcached."""
    program = shutil.which("memcached")
    if program is None:
        missing("memcached", "apt-get install memcached, or brew install memcached")
    assert program is not None
    return program


@pytest.fixture(scope="session")
def memcached_server(memcached_program: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemcachedProcess]:
    """A memcached of the whole test run, which a test may kill and start again."""
    server = MemcachedProcess(memcached_program, tmp_path_factory.mktemp("memcached"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def memcached_url(memcached_server: MemcachedProcess) -> str:
    """The ``store`` of a job whose frames are on a memcached without items."""
    assert server_is_up(memcached_server)
    memcached_server.said(b"flush_all\r\n")
    return memcached_server.url


@pytest.fixture(scope="session")
def frame_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FrameServerProcess]:
    """A frame server of the whole test run."""
    server = FrameServerProcess(tmp_path_factory.mktemp("frames"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def function_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedRuntime | None]:
    """Forks the functions of all runs of the test run that ask for `shared_runtime`; None where that is not safe."""
    from mlless_nb.driver.backends import interpreter

    if sys.platform != "linux":
        yield None
        return
    server = SharedRuntime(interpreter.interpreter(), tmp_path_factory.mktemp("functions"), dies_with_parent())
    yield server
    server.close()


@pytest.fixture(scope="module")
def shared_runtime(function_server: SharedRuntime | None) -> Iterator[None]:
    """Fork the functions of this module's runs from one interpreter, see `runtimes`."""
    with pytest.MonkeyPatch.context() as patch:
        if function_server is not None:
            patch.setattr("lithops.localhost.v1.localhost.sp", function_server)
        yield


@pytest.fixture
def relay() -> Iterator[Callable[[int], Relay]]:
    """Makes relays in front of a port, closed after the test."""
    relays: list[Relay] = []

    def make(port: int) -> Relay:
        relays.append(Relay(port))
        return relays[-1]

    yield make
    for made in relays:
        made.close()


@pytest.fixture(scope="session")
def aws_server() -> Iterator[str]:
    """URL of an emulator of AWS."""
    from moto.server import ThreadedMotoServer

    port = free_port()
    server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    yield f"http://127.0.0.1:{port}"
    server.stop()


@pytest.fixture
def aws(aws_server: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An empty AWS, which the clients of boto3 reach; the value makes such clients."""
    import boto3

    urllib.request.urlopen(urllib.request.Request(f"{aws_server}/moto-api/reset", method="POST")).close()
    for name, value in {
        "AWS_ENDPOINT_URL": aws_server,
        "AWS_ACCESS_KEY_ID": "user",
        "AWS_SECRET_ACCESS_KEY": "planted-secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    return boto3.client


@pytest.fixture
def s3(aws: Any) -> Any:
    """A client of an S3 server of its own with one bucket, ``S3_BUCKET``, which Lithops reaches by ``S3_BACKEND``."""
    client = aws("s3")
    client.create_bucket(Bucket=S3_BUCKET)
    return client


@pytest.fixture
def dynamodb(aws: Any) -> Any:
    """A client of a DynamoDB server of its own, without tables."""
    return aws("dynamodb")
