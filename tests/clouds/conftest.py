"""An account of AWS that is empty, and a layer to put there."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from clouds.emulator import Aws
from clouds.wheels import wheel

if TYPE_CHECKING:
    from mlless_nb.clouds.runtime import Runtime

# Nothing of the package is imported above: Lithops notes the temporary folder when it is imported, and pytest may read
# this file before the tests have a folder of their own.


def _small_set(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    from mlless_nb.clouds import packages

    wheels = folder / "wheels"
    wheels.mkdir()
    files = {"thing/__init__.py": "x = 1\n", "thing/tests/test_thing.py": "", "thing/thing.pyi": "", "bin/thing": ""}
    made = wheel(wheels, "thing", files)
    lock = folder / "lock.txt"
    lock.write_text(f"thing==1.0 --hash=sha256:{hashlib.sha256(made.read_bytes()).hexdigest()}\n")
    patch.setattr(packages, "LOCK", lock)
    return wheels


@pytest.fixture
def small_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one wheel, which is the whole function set."""
    return _small_set(tmp_path, monkeypatch)


@pytest.fixture(scope="session")
def layer(tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    """A layer with that set."""
    from mlless_nb.clouds import runtime

    folder = tmp_path_factory.mktemp("layer")
    with pytest.MonkeyPatch.context() as patch:
        wheels = _small_set(folder, patch)
        (folder / "built").mkdir()
        return runtime.build(folder / "built", None, wheels)


@pytest.fixture(scope="session")
def aws_emulator() -> Iterator[Aws]:
    server = Aws()
    yield server
    server.close()


@pytest.fixture
def cloud(aws_emulator: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Aws:
    """An empty account, for which this process has credentials; the user's own configuration is not seen."""
    aws_emulator.reset()
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_REGION", "MLLESS_REDIS_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {
        "AWS_ENDPOINT_URL": aws_emulator.url,
        "AWS_ACCESS_KEY_ID": "user",
        "AWS_SECRET_ACCESS_KEY": "planted-secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "aws-config"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "aws-credentials"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }.items():
        monkeypatch.setenv(name, value)
    return aws_emulator


@pytest.fixture
def run(
    cloud: Aws, layer: Runtime, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Any]:
    """Runs `mlless-nb` with words; returns status, output and errors. The layer is built once for all tests."""
    from mlless_nb.clouds import command, runtime

    monkeypatch.setattr(runtime, "build", lambda *_: layer)

    def call(*words: str) -> tuple[int, str, str]:
        status = command.main(words)
        said = capsys.readouterr()
        return status, said.out, said.err

    return call
