"""A cloud in a box, and a deployment on it."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from servers import missing

from mlless_nb.money.catalogue import price_profile
from mlless_nb.money.meter import NUSD, Rates

#: What `unbroken` is.
Unbroken = Callable[[int], dict[str, Any]]
#: The functions' packages, which `make test` fetches.
WHEELS = Path(__file__).parents[2] / "build" / "function-set"
#: Memory of the functions that are deployed, MB.
MEMORY_MB = (512, 1769)
SIZES = [word for size in MEMORY_MB for word in ("--memory", str(size))]
#: The image of Kubernetes' functions, and where their objects are.
IMAGE = "registry.box.test/mlless"
BUCKET = "objects-of-kubernetes"
MAKE = "import boto3, sys; boto3.client('s3').create_bucket(Bucket=sys.argv[1])"
#: Longest wait for functions to end after their run, seconds.
SETTLED_S = 60.0
#: Longest wait for the user's process that trains: it waits for three minutes, and stops the run then.
ENDED_S = 240.0
#: What `mlless-nb deploy` writes, and `remove` removes.
PROFILE = Path(".config", "mlless_nb", "clouds", "aws_lambda.json")
COMMAND = "import sys; from mlless_nb.clouds.command import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture(scope="session")
def empty_box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A box in which nothing is deployed; skips the test where there can be none, whatever is installed."""
    from cloud.box import PROGRAMS, Box, require

    require("awslambdaric")
    if gone := [name for name in PROGRAMS if shutil.which(name) is None]:
        missing(f"for a cloud in a box: {', '.join(gone)}", "apt-get install iproute2 redis-server util-linux")
    if not (WHEELS / ".fetched").exists():
        missing("the functions' packages", "make test fetches them")
    box = Box(tmp_path_factory.mktemp("box"))
    yield box
    box.close()


@pytest.fixture
def box(empty_box: Any) -> Any:
    """The box with a deployment, cold, whose quota is what AWS gives old accounts."""
    from cloud.box import REDIS

    if not (empty_box.home / PROFILE).exists():
        deploy(empty_box, "--redis", REDIS, *SIZES)
    empty_box.ask(set="quota", value=1000)
    empty_box.ask(forget=True)
    empty_box.ask(requests=True)
    empty_box.n_before = 0
    empty_box.n_before = len(settled(empty_box))
    return empty_box


def deploy(box: Any, *words: str, **options: Any) -> str:
    """What `mlless-nb deploy` says on the user's machine."""
    return str(box.python("-c", COMMAND, "deploy", "aws", "--wheels", str(WHEELS), *words, **options))


def trained(box: Any, path: Path | str = "", **options: Any) -> dict[str, Any]:
    """How a run on the user's machine ended, there with the modules from ``path``."""
    script = str(Path(__file__).with_name("train.py"))
    said = box.python(script, json.dumps(options), wait_s=ENDED_S, path=path)
    return dict(json.loads(said.splitlines()[-1]))


@pytest.fixture(scope="session")
def unbroken(empty_box: Any) -> Unbroken:
    """The same run on the user's machine, by its steps."""

    @functools.cache
    def run(steps: int) -> dict[str, Any]:
        found = trained(empty_box, backend="embedded", steps=steps)
        assert (found.get("status"), found.get("steps")) == ("finished", steps), found
        return found

    return run


def settled(box: Any) -> list[dict[str, Any]]:
    """This test's invocations, all of which have ended."""
    give_up_at = time.monotonic() + SETTLED_S
    while len(box.invocations("began")) > len(box.invocations()) and time.monotonic() < give_up_at:
        time.sleep(0.1)
    return list(box.invocations()[box.n_before :])


def billed_usd(box: Any) -> float:
    """What the box has billed for functions in this test."""
    return float(sum(each["usd"] for each in settled(box)))


def least_usd(box: Any) -> float:
    """The least that a run is to bill: without what runtimes took longer to end than is estimated.

    ``tail_margin_s`` of the prices is reserved of a cap for that, and not billed.
    """
    rates = {each["memory_mb"]: Rates(price_profile("aws-lambda-x86"), each["memory_mb"]) for each in settled(box)}
    late_usd = sum(rates[each["memory_mb"]].late_end_nusd() / NUSD for each in settled(box))
    return billed_usd(box) - late_usd


@contextlib.contextmanager
def busy(box: Any) -> Iterator[None]:
    """A process beside the functions that takes whatever it gets of the processors."""
    loop = box.user(sys.executable, "-c", "while True: pass", start_new_session=True)
    try:
        yield
    finally:
        os.killpg(loop.pid, signal.SIGKILL)  # nsenter, and the loop that it has started
        loop.wait()


@contextlib.contextmanager
def slow_links(box: Any, megabit: float) -> Iterator[None]:
    """New environments have links over which a step takes so long that few steps outlast a lost function."""
    box.ask(set="megabit", value=megabit)
    try:
        yield
    finally:
        box.ask(set="megabit", value=None)


def configuration(box: Any, image: str) -> dict[str, Any]:
    """Lithops', as its user writes it."""
    return {
        "lithops": {"backend": "k8s", "storage": "aws_s3"},
        "k8s": {"kubecfg_path": str(box.folder / "kubeconfig"), "docker_server": "registry.box.test", "runtime": image},
        "aws": {"region": "us-east-1", "access_key_id": "AKIAUSER", "secret_access_key": "secret-of-the-user"},
        "aws_s3": {"storage_bucket": BUCKET},
    }


@pytest.fixture(scope="session")
def image(empty_box: Any) -> str:
    """The name of the image, which is built, checked and in the registry."""
    from cloud.box import require

    require("kubernetes")
    archive = empty_box.home / "runtime.tar"
    words = ["runtime", "build", "k8s", "--image", IMAGE, "--output", str(archive), "--wheels", str(WHEELS)]
    said = empty_box.python("-c", COMMAND, *words)
    print(said)
    name = str(empty_box.ask(push=str(archive)))
    assert f"  runtime: {name}\n" in said
    return name


@pytest.fixture
def cluster(empty_box: Any, image: str) -> Any:
    """The box, with a bucket and Lithops' configuration."""
    empty_box.python("-c", MAKE, BUCKET)
    (empty_box.home / "lithops.json").write_text(json.dumps(configuration(empty_box, image)))
    yield empty_box
    empty_box.ask(deny=[])


def pods(box: Any, event: str = "ended") -> list[dict[str, Any]]:
    """What has happened to pods since the box was started."""
    lines = (box.folder / "pods.jsonl").read_text().splitlines()
    return [each for each in map(json.loads, lines) if each["event"] == event]
