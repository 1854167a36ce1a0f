"""Six planted secrets, many errors: none of them is in anything that people read or that is kept."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
import redis
from nbclient import NotebookClient
from servers import FrameServerProcess, PrivateRedisProcess, RabbitProcess

SECRETS = {
    "REDIS": "planted-redis-7f3a",
    "RABBITMQ": "planted-rabbitmq-91cc",
    "TOKEN": "planted-token-5b20",
    "CLOUD": "planted-cloud-e8d4",
    "ENVIRONMENT": "planted-environment-22f1",
    "KEYRING": "planted-keyring-c06b",
}
SETUP = """
%load_ext mlless_nb
import os
from mlless_nb import *
ratings = datasets.synthetic_ratings(200, 100, 4000, rank=4, seed=1)
plant = {name: os.environ[f"PLANT_{name}_PASSWORD"] for name in ("REDIS", "RABBITMQ", "TOKEN", "CLOUD")}
here = os.environ["REDIS_HERE"]
given = f"redis://:{plant['REDIS']}@{here}"
broker = f"amqp://guest:{plant['RABBITMQ']}@{os.environ['RABBITMQ_HERE']}/%2F"
server = os.environ["SERVER_HERE"].replace("TOKEN", plant["TOKEN"])
cloud = {"lithops": {"backend": "localhost", "storage": "localhost"}, "aws": {"secret_access_key": plant["CLOUD"]}}

class Tells:
    def parameters(self, n_features, seed):
        return {"w": np.zeros(n_features)}

    def loss(self, params, X, y):
        import os
        if os.environ["DRIVER"] != str(os.getpid()):
            raise ValueError(" and ".join(sorted(v for k, v in os.environ.items() if k.startswith("PLANT_"))))
        return float(np.mean((X @ params["w"] - y) ** 2))

    def gradients(self, params, X, y):
        return {"w": X.T @ (X @ params["w"] - y)}

import numpy as np
os.environ["DRIVER"] = str(os.getpid())
X = np.random.default_rng(0).normal(size=(200, 3))
numbers = datasets.csr(X, X @ [1.0, 2.0, 3.0])
"""
BODY = "model = PMF(rank=4)\noptimizer = SGD(learning_rate=2.0)\ndata = ratings\n"
LINE = "%%mlless --workers 2 --steps 6 --minibatch 200 --scale-in off --wait"
#: Cells that end well.
GOOD = (
    f"{LINE} --name plain\n{BODY}redis = given\nbus = broker\nstore = server",
    f"{LINE} --name clouded\n{BODY}redis = given\nbackend = cloud",
    f'{LINE} --name named\n{BODY}redis = "redis://env:${{PLANT_ENVIRONMENT_PASSWORD}}@" + here',
    f'{LINE} --name ring\n{BODY}redis = "redis://ring:${{RING}}@" + here',
    "plain.job, clouded.job, named, ring",
    "%mlless report plain",
)
#: Cells that end in errors.
BAD = (
    f"{LINE} --name unreachable\n{BODY}redis = given.replace(here, '127.0.0.1:1')",
    f"{LINE} --name wrong\n{BODY}redis = given.replace('@', 'x@')",
    f"{LINE} --name form\n{BODY}redis = given.replace('redis:', 'http:')",
    f"{LINE} --name port\n{BODY}redis = given.replace(here, 'host:port')",
    f"{LINE} --name kind\n{BODY}redis = {{'url': given}}",
    f"{LINE} --name remote\n{BODY}redis = given.replace(here, '10.9.8.7')",
    f"{LINE} --name broker\n{BODY}redis = given\nbus = broker.replace('@', 'x@')",
    f"{LINE} --name scheme\n{BODY}redis = given\nbus = broker.replace('amqp', 'smtp')",
    f"{LINE} --name token\n{BODY}redis = given\nstore = server.replace('@', 'x@')",
    f"{LINE} --name address\n{BODY}redis = given\nstore = server.replace('server', 'saver')",
    f"{LINE} --name backend\n{BODY}redis = given\nbackend = {{**cloud, 'lithops': {{'backend': 'nowhere'}}}}",
    f"{LINE} --name field\n{BODY}redis = given\npassword = plant['REDIS']\nredsi = given",
    f"{LINE} --name raised\n{BODY}redis = given\nraise mlless_error(given)",
    f"{LINE} --name diverged\n{BODY}optimizer = SGD(learning_rate=1e30)\nredis = given\nbus = broker",
    "%%mlless --workers 1 --steps 4 --minibatch 50 --scale-in off --wait --name tells\n"
    "model = NumpyModel(Tells)\noptimizer = SGD(learning_rate=0.1)\ndata = numbers\n"
    'redis = f"redis://env:${{PLANT_ENVIRONMENT_PASSWORD}}@{here}"\nbus = broker\nstore = server\nbackend = cloud',
    "TrainingJob(PMF(rank=4), data=ratings, redis=given, bus=broker, store=server, backend=cloud, workers='many')",
    "train(TrainingJob(PMF(rank=4), data=ratings, redis=given.replace(here, '127.0.0.1:1')))",
    "train(TrainingJob(PMF(rank=4), data=ratings, redis=given, backend={**cloud, 'lithops': {'backend': 'nowhere'}}))",
)


@pytest.fixture
def places(redis_program: str, rabbitmq_program: str, tmp_path: Path) -> Iterator[tuple[dict[str, str], Path, Path]]:
    """Servers with the secrets; the environment of the kernel; and the folder where all that is written lies."""
    folders = {name: tmp_path / name for name in ("redis", "rabbitmq", "server", "written", "library")}
    for folder in folders.values():
        folder.mkdir()
    database = PrivateRedisProcess(redis_program, folders["redis"], SECRETS["REDIS"])
    broker = RabbitProcess(rabbitmq_program, folders["rabbitmq"], SECRETS["RABBITMQ"])
    frames = FrameServerProcess(folders["server"])
    frames.env["MLLESS_SERVER_TOKEN"] = SECRETS["TOKEN"]
    started = (database, broker, frames)
    try:
        for server in started:
            server.start()
        with redis.Redis.from_url(database.url) as client:
            for user, name in (("env", "ENVIRONMENT"), ("ring", "KEYRING")):
                client.execute_command("ACL SETUSER", user, "on", f">{SECRETS[name]}", "~*", "&*", "+@all")
        entry = f'{{"RING": {SECRETS["KEYRING"]!r}}}'
        (folders["library"] / "keyring.py").write_text(f"def get_password(service, name): return {entry}.get(name)\n")
        written = folders["written"]
        environment = {
            **{f"PLANT_{name}_PASSWORD": value for name, value in SECRETS.items() if name != "KEYRING"},
            "REDIS_HERE": f"127.0.0.1:{database.port}/0",
            "RABBITMQ_HERE": f"127.0.0.1:{broker.port}",
            "SERVER_HERE": frames.url.replace(SECRETS["TOKEN"], "TOKEN"),
            "PYTHONPATH": os.pathsep.join([os.environ["PYTHONPATH"], str(folders["library"])]),
            "HOME": str(written),
            "TMPDIR": str(written),
            **{name: str(written / name) for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "IPYTHONDIR")},
        }
        yield environment, written, tmp_path
    finally:
        database.kill()
        frames.kill()
        broker.stop()


class Watch:
    """Looks for the secrets in all files of a folder, again and again until it is asked to stop."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._is_over = folder, threading.Event()
        self.seen: set[tuple[str, str]] = set()
        self.n_files = 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._is_over.wait(0.02):
            self.seen |= self.look()

    def look(self) -> set[tuple[str, str]]:
        """The secrets that are in files now, each with the file."""
        found = set()
        for folder, _, names in os.walk(self._folder):
            for name in names:
                try:
                    content = (Path(folder) / name).read_bytes()
                except OSError:
                    continue  # a socket, or gone
                self.n_files += 1
                where = str((Path(folder) / name).relative_to(self._folder))
                found |= {(secret, where) for secret, value in SECRETS.items() if value.encode() in content}
        return found

    def stop(self) -> None:
        """Look once more, and no longer."""
        self._is_over.set()
        self._thread.join()
        self.seen |= self.look()


def is_error(text: str) -> bool:
    """Whether a cell with the outputs ``text`` has failed, with a traceback or with one line."""
    return '"error"' in text or "UsageError: " in text


@pytest.mark.rabbitmq
@pytest.mark.long
def test_planted_secrets_are_seen_nowhere(
    places: tuple[dict[str, str], Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment, written, folder = places
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    cells = [nbformat.v4.new_code_cell(text) for text in (SETUP, *GOOD, *BAD)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    watch = Watch(written)
    NotebookClient(notebook, timeout=180, allow_errors=True, resources={"metadata": {"path": str(folder)}}).execute()
    watch.stop()
    outputs = ["\n".join(map(json.dumps, cell.outputs)) for cell in cells]
    good, bad = outputs[1 : 1 + len(GOOD)], outputs[1 + len(GOOD) :]
    assert not is_error(outputs[0]), outputs[0]
    for text in good:
        assert not is_error(text), text
    for cell, text in zip(BAD, bad, strict=True):
        assert is_error(text), (cell, text)
    # The notebook, with its outputs, tracebacks and the state of its widgets.
    whole = json.dumps(notebook)
    assert "***" in whole
    assert not [name for name, value in SECRETS.items() if value in whole]
    # Logs, records, events, checkpoints, payloads, while the runs last. RabbitMQ has no users of one job: its password
    # is in the payload from which Lithops starts functions here, in a private folder, until the run ends.
    assert watch.n_files > 50
    assert {name for name, _ in watch.seen} <= {"RABBITMQ"}, sorted(watch.seen)
    assert all("lithops" in where for _, where in watch.seen), sorted(watch.seen)
    assert not watch.look()


def test_a_secret_in_a_cell_is_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    from mlless_nb import PMF, TrainingJob, datasets
    from mlless_nb.magics.messages import written_secrets_line

    ratings = datasets.synthetic_ratings(50, 40, 400, rank=2, seed=1)
    job = TrainingJob(PMF(rank=2), data=ratings, redis="rediss://me:planted-written@host", store="redis")
    line = written_secrets_line('redis = "rediss://me:planted-written@host"', job)
    assert line.startswith("warning: the notebook keeps the secret that this cell writes out (redis)")
    assert "planted" not in line
    assert written_secrets_line("redis = url", job) == ""
    named = TrainingJob(PMF(rank=2), data=ratings, redis="rediss://me:${REDIS_PASSWORD}@host")
    assert written_secrets_line('redis = "rediss://me:${REDIS_PASSWORD}@host"', named) == ""
    assert sys.stdout is not None
