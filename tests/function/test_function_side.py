"""What a function imports: NumPy, Redis, and nothing that only a notebook needs; and what it says if it lacks more."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from engine.threads import Job
from exchange.dict_store import DictStore

from mlless_nb import BSP, PMF, SGD, JobError
from mlless_nb.bus.messages import HANDED_OVER, Left
from mlless_nb.errors import DecodeError
from mlless_nb.exchange import RedisCoordinator
from mlless_nb.exchange.protocol import key_prefix
from mlless_nb.exchange.slots import SUPERVISOR
from mlless_nb.exchange.stores import MemcachedStore
from mlless_nb.function import entry
from mlless_nb.function.entry import run_function
from mlless_nb.function.package_digest import OtherVersionError, digest_here
from mlless_nb.storage.objects import MemoryObjects

ROOT = Path(__file__).resolve().parents[2]
#: Both roles, and what they are told; a step of training on top.
CODE = """
import importlib.abc, sys

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ModuleNotFoundError(f"{{name}} is not installed in a function's runtime", name=name)

sys.meta_path.insert(0, Missing())
import numpy as np
import mlless_nb.bus.rabbitmq, mlless_nb.function.entry, mlless_nb.supervisor.loop, mlless_nb.worker.loop
from mlless_nb import LogisticRegression, PMF
from mlless_nb.data.minibatches import RatingsMinibatch
rows, user, item = np.array([0, 3], np.int32), np.zeros(1, np.int32), np.ones(1, np.int32)
model, minibatch = PMF(rank=2, l2=0.0), RatingsMinibatch(rows, user, item, np.ones(1, np.float32))
params = model.init((3, 2), 0.0, 0)
print(model.gradient(params, minibatch, 0.0, 1.0, np.empty((2, params.shape[1]), np.float32)) > 0)
"""


def test_a_function_does_without_the_notebooks_packages() -> None:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    listed = parser["options.extras_require"]["notebook"].split("\n")
    names = {re.split(r"[^\w-]", line.strip())[0] for line in listed if line.strip()}
    modules = {{"ipython": "IPython"}.get(name, name) for name in names}
    assert {"IPython", "plotly", "scipy"} <= modules
    answer = subprocess.run(
        [sys.executable, "-P", "-c", CODE.format(names=sorted(modules))], capture_output=True, text=True, check=False
    )
    assert answer.stdout.strip() == "True", answer.stderr


def test_a_worker_without_the_stores_package_ends_the_run_with_what_to_install(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = uuid.uuid4().hex
    log = RedisCoordinator([redis_url], job_id, "1", "driver")
    log.create(cap_nusd=None, reserved_nusd=0)
    invocation = Job(PMF(rank=2), SGD(0.5), BSP(), 2, 4, "mean", {}).invocation(1)
    invocation = replace(invocation, store="memcached://127.0.0.1", job_id=job_id, redis_urls=[redis_url])
    monkeypatch.setattr(MemcachedStore, "package", "pymemcache_that_is_missing")
    with pytest.raises(JobError):
        run_function(invocation.encode().decode(), SimpleNamespace(bucket="bucket"))
    aborted = log.aborted()
    assert aborted is not None
    assert re.search(r"worker 1 could not start: .*pip install 'mlless_nb\[memcached\]'", aborted[1])
    log.delete()
    log.close()


@pytest.mark.parametrize("status", [HANDED_OVER, "finished"])
def test_a_supervisor_that_hands_over_removes_nothing(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    """Its successor goes on, also while the driver's machine sleeps."""
    job_id = uuid.uuid4().hex
    log = RedisCoordinator([redis_url], job_id, "1", "driver")
    log.create(cap_nusd=None, reserved_nusd=0)
    invocation = Job(PMF(rank=2), SGD(0.5), BSP(), 2, 4, "mean", {}).invocation(1)
    places = {"job_id": job_id, "redis_urls": [redis_url], "bus_url": redis_url}
    invocation = replace(invocation, role="supervisor", slot=SUPERVISOR, store="dict", insecure=True, **places)
    store = DictStore(key_prefix(job_id), MemoryObjects())
    key = f"{key_prefix(job_id)}frame:1:0"
    store.put_many({key: b"frame"})
    last = Left(SUPERVISOR, 1, 0, 0, 0.0, 0.0, status, "")
    monkeypatch.setattr(entry, "_supervise", lambda *_: last)
    assert run_function(invocation.encode().decode(), SimpleNamespace(bucket="bucket")) == last.encode().decode()
    assert store.get_many([key]) == [b"frame" if status == HANDED_OVER else None]
    store.clear()
    log.delete()
    log.close()


def test_a_function_of_another_version_reads_no_payload() -> None:
    """Whose fields it may not know."""
    with pytest.raises(
        OtherVersionError, match=rf"another mlless_nb \({digest_here()[:8]}\) than the notebook \(abcdef01"
    ):
        run_function("abcdef0123{}", SimpleNamespace(bucket="bucket"))
    for payload in ("{}", digest_here() + "{}"):
        with pytest.raises(DecodeError):
            run_function(payload, SimpleNamespace(bucket="bucket"))
