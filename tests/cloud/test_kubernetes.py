"""Runs on Kubernetes in the box: an image built without Docker, the same model, and what cannot start is told."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from cloud.conftest import COMMAND, ENDED_S, IMAGE, SETTLED_S, Unbroken, configuration, pods, trained

pytestmark = pytest.mark.long

#: A run that cannot start is told within so many seconds, of which a quick machine takes half: found by its leases, it
#: would be told after 90.
TOLD_S = 40.0
#: How the names of pods begin that are no functions: the one that assigns calls, and the one that looks at an image.
NOT_OF_RUNS = ("lithops-master-", "lithops-worker-")
#: Steps of a run in which a pod is killed: it is not over before that.
STEPS = 1000
#: What is said to a user who may not create jobs.
MAY_NOT = (
    "the user may not create jobs in the namespace default: "
    "a role must allow the user to create, list, watch and delete jobs, and list and watch pods there"
)


def checked(box: Any) -> list[str]:
    """The lines of `mlless-nb runtime check`."""
    words = ["-c", COMMAND, "runtime", "check", "--config", str(box.home / "lithops.json")]
    said, errors = box.user(sys.executable, *words).communicate(timeout=180)
    assert errors == ""
    return said.splitlines()


def test_three_workers_train_cold_and_warm(cluster: Any, image: str, unbroken: Unbroken) -> None:
    """The second run finds the image known and the pod that assigns calls at work: it starts its functions only."""
    from cloud.box import REDIS

    for is_cold in (True, False):
        n_before, n_ended = len(pods(cluster, "began")), len(pods(cluster))
        run = trained(cluster, steps=STEPS, backend=configuration(cluster, image), redis=REDIS, memory_mb=512)
        began = [each["pod"] for each in pods(cluster, "began")[n_before:]]
        print("cold" if is_cold else "warm", run["time_s"], run["whole_s"], run["told"], began)
        assert (run.get("status"), run.get("steps")) == ("finished", STEPS), run
        assert run["digest"] == unbroken(STEPS)["digest"]
        assert [each["status"] for each in ended_functions(cluster, 4, n_ended)] == [0] * 4
        assert len(began) == 4 or is_cold
    assert cluster.ask(broken=True) == []


def ended_functions(box: Any, n: int, n_before: int = 0) -> list[dict[str, Any]]:
    """The functions' pods that have ended, without those among the first ``n_before`` pods, once these are ``n``."""
    give_up_at = time.monotonic() + SETTLED_S
    while True:
        ended = [each for each in pods(box)[n_before:] if not each["pod"].startswith(NOT_OF_RUNS)]
        if len(ended) >= n or time.monotonic() > give_up_at:
            return ended
        time.sleep(0.1)


def pod_of(box: Any, call: int, n_before: int) -> str:
    """The pod that carries out a call, one of those after the first ``n_before``, by their logs."""
    names = [each["pod"] for each in pods(box, "began")[n_before:]]
    (name,) = [name for name in names if f"-M000/{call:05d}\n" in (box.folder / f"{name}.log").read_text()]
    return str(name)


def test_a_killed_pod_is_replaced_and_the_others_go_on(cluster: Any, image: str, unbroken: Unbroken) -> None:
    from cloud.box import REDIS
    from cloud.fleet import GB_S_USD

    job = {"backend": configuration(cluster, image), "redis": REDIS, "memory_mb": 512, "steps": STEPS, "says_step": 1}
    n_before, n_ended = len(pods(cluster, "began")), len(pods(cluster))
    process = cluster.user(sys.executable, str(Path(__file__).with_name("train.py")), json.dumps(job))
    assert json.loads(process.stdout.readline())["step"] < STEPS
    victim = pod_of(cluster, call=1, n_before=n_before)  # the supervisor has the first call
    assert cluster.ask(kill_pod=victim)
    said, errors = process.communicate(timeout=ENDED_S)
    run = json.loads(said.splitlines()[-1])
    # Four functions, the new worker, and what the cluster has started for the killed one.
    ended = ended_functions(cluster, 6, n_ended)
    print("killed pod", run["time_s"], run["functions_usd"], run["told"], ended)
    assert run.get("status") == "finished", (run, errors[-1000:])
    assert run["digest"] == unbroken(STEPS)["digest"]
    assert len([each for each in run["told"] if "worker 0 replaced" in each]) == 1
    assert len(ended) == 6
    lived_s = sum(each["lived_s"] for each in ended)
    assert run["functions_usd"] >= lived_s * 512 / 1024 * GB_S_USD  # the killed one is billed until it was missed


@contextlib.contextmanager
def patched(box: Any, image: str, file: str, changes: Mapping[str, str]) -> Iterator[None]:
    """The file of an image whose path ends with ``file``, with ``changes``."""
    (path,) = Path(box.ask(root=image)).rglob(file)
    text = whole = path.read_text()
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    compiled = Path(importlib.util.cache_from_source(str(path)))
    kept = compiled.read_bytes()
    compiled.unlink()  # nobody would compare it with the source
    path.write_text(text)
    try:
        yield
    finally:
        path.write_text(whole)
        compiled.write_bytes(kept)


#: What lacks a package, or needs more memory than it has, before anything is done.
FIRST_LINE, TAKEN = "from __future__ import annotations\n", "    invocation = Message.decode(checked(payload))\n"
BROKEN = "import a_package_that_is_not_there\n"
TOO_LARGE = "    invocation = [Message.decode(checked(payload)), b'x' * (600 << 20)][0]\n"


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        pytest.param(
            {FIRST_LINE: FIRST_LINE + BROKEN},
            "could not start: ModuleNotFoundError: No module named 'a_package_that_is_not_there'",
            id="broken import",
        ),
        pytest.param({TAKEN: TOO_LARGE}, "ran out of memory: memory_mb=512 is too small for this job", id="memory"),
    ],
)
def test_functions_that_cannot_start_are_told_of_with_the_cause(
    cluster: Any, image: str, changes: dict[str, str], cause: str
) -> None:
    from cloud.box import REDIS
    from cloud.fleet import GB_S_USD

    n_before, n_ended = len(pods(cluster, "began")), len(pods(cluster))
    with patched(cluster, image, "mlless_nb/function/entry.py", changes):
        run = trained(cluster, workers=2, backend=configuration(cluster, image), redis=REDIS, memory_mb=512)
    n_began = len([each for each in pods(cluster, "began")[n_before:] if not each["pod"].startswith(NOT_OF_RUNS)])
    ended = ended_functions(cluster, n_began, n_ended)
    assert run.get("status") == "failed", run
    told_s = run["ended_at_s"] - min(each["at_s"] for each in ended)
    print(told_s, run["reason"], run["functions_usd"], ended)
    assert cause in run["reason"]
    assert "\n" not in run["reason"]
    assert told_s < TOLD_S
    assert run["functions_usd"] >= sum(each["lived_s"] for each in ended) * 512 / 1024 * GB_S_USD > 0


def test_an_image_that_is_gone_once_it_is_known_is_told(cluster: Any, image: str) -> None:
    """Nobody looks at it before the run, and the pod that assigns calls has it."""
    from cloud.box import REDIS

    job = {"workers": 2, "backend": configuration(cluster, image), "redis": REDIS, "memory_mb": 512}
    assert trained(cluster, steps=3, **job).get("status") == "finished"
    n_before = len(pods(cluster, "began"))
    cluster.ask(withdraw=[image])
    try:
        run = trained(cluster, **job)
    finally:
        cluster.ask(withdraw=[])
    assert run.get("status") == "failed", run
    print(run["time_s"], run["whole_s"], run["reason"], run["functions_usd"])
    assert f"a function could not start: the image {image} cannot be pulled or started: ImagePull" in run["reason"]
    assert run["whole_s"] < TOLD_S
    assert len(pods(cluster, "began")) == n_before


def test_an_image_in_which_lithops_does_not_start_is_told_before_the_run(cluster: Any, image: str) -> None:
    from cloud.box import REDIS

    name = f"{IMAGE}:broken"
    cluster.ask(tag=name, image=image)
    with patched(cluster, name, "lithops/lithopsentry.py", {"import base64\n": BROKEN}):
        run = trained(cluster, backend=configuration(cluster, name), redis=REDIS, memory_mb=512)
    print(run)
    assert run["refused"] == (
        "backend: the functions could not be deployed: the image does not work: "
        "ModuleNotFoundError: No module named 'a_package_that_is_not_there'"
    )
    assert run["whole_s"] < TOLD_S


def test_what_is_configured_is_checked(cluster: Any, image: str) -> None:
    good = checked(cluster)
    assert [line.partition(":")[0] for line in good] == [
        f"ok   {name}" for name in ("configuration", "image", "cluster", "storage")
    ]
    assert "functions live 86400 s" in good[0]
    cluster.ask(deny=["create jobs"])
    (line,) = [line for line in checked(cluster) if line.startswith("FAIL")]
    assert line == f"FAIL cluster: {MAY_NOT}"
    cluster.ask(deny=[])
    for image_there, remedy in (
        (f"{IMAGE}:mlless-{'0' * 12}", "must be built again (mlless-nb runtime build k8s)"),
        ("default", "runtime is not set, and Lithops' own image has no mlless_nb: mlless-nb runtime build k8s"),
    ):
        (cluster.home / "lithops.json").write_text(json.dumps(configuration(cluster, image_there)))
        (line,) = [line for line in checked(cluster) if line.startswith("FAIL")]
        assert line.startswith("FAIL image: ")
        assert remedy in line
    config = configuration(cluster, image)
    config["aws_s3"]["storage_bucket"] = "bucket-of-nobody"
    (cluster.home / "lithops.json").write_text(json.dumps(config))
    assert [line.partition(":")[0] for line in checked(cluster)][-1] == "FAIL storage"


def test_what_cannot_start_is_told_before_the_run(cluster: Any, image: str) -> None:
    from cloud.box import REDIS

    def refused(name: str) -> str:
        run = trained(cluster, steps=20, backend=configuration(cluster, name), redis=REDIS, memory_mb=512)
        assert run["whole_s"] < TOLD_S
        return str(run["refused"])

    said = refused(f"{IMAGE}:gone")
    assert said.startswith(
        "backend: the functions could not be deployed: the image registry.box.test/mlless:gone cannot"
    )
    assert "ImagePullBackOff" in said
    assert refused(f"{IMAGE}:mlless-{'0' * 12}").startswith(
        f"runtime='{IMAGE}:mlless-000000000000': must be built again"
    )
    cluster.ask(deny=["create jobs"])
    n_before = len(pods(cluster, "began"))
    assert refused(image) == f"backend: the functions could not be deployed: {MAY_NOT}"
    assert len(pods(cluster, "began")) == n_before
