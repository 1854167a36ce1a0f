"""The launcher: the functions' interpreter is no file that another user may have made; what is missing is named."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from engine.jobs import job

import mlless_nb
from mlless_nb.driver.backends import interpreter, launcher
from mlless_nb.driver.backends.launcher import LithopsLauncher
from mlless_nb.driver.backends.processes import is_running
from mlless_nb.errors import JobError, ServiceError


def test_an_interpreter_of_another_user_in_a_shared_folder_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "not a folder").touch()
    monkeypatch.setattr(interpreter.platformdirs, "user_cache_path", lambda _: tmp_path / "not a folder")
    monkeypatch.setattr(interpreter.tempfile, "gettempdir", lambda: str(tmp_path))
    found = Path(interpreter.interpreter())
    assert found.parent == tmp_path / f"mlless-{os.getuid()}"
    monkeypatch.setattr(interpreter, "_is_ours", lambda path: path != found)
    with pytest.raises(ServiceError, match="XDG_CACHE_HOME"):
        interpreter.interpreter()


def test_what_a_model_imports_is_there_before_functions_are_forked(tmp_path: Path) -> None:
    runner = tmp_path / "runner.py"
    runner.write_text("import sys\nprint('colorsys' in sys.modules)\n")
    for modules in ((), ("colorsys",)):
        command = [interpreter.interpreter(modules), str(runner)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
        assert done.stdout.split() == [str(bool(modules))]


DRIVER = """\
import subprocess, sys, time
from mlless_nb.function.orphans import naming_driver
with naming_driver():
    with naming_driver():  # another run, in another thread
        pass
    process = subprocess.Popen(sys.argv[1:], start_new_session=True)
print(process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("lives", [True, False])
def test_functions_whose_driver_has_ended_as_they_start_do_not_begin(
    lives: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, begins, begun = tmp_path / "runner.py", tmp_path / "begins", tmp_path / "begun"
    runner.write_text(
        "import os, pathlib, sys\npathlib.Path(sys.argv[1]).write_text(os.environ.get('MLLESS_DRIVER', 'unknown'))\n"
    )
    # What is imported last waits until the driver has ended.
    waiting = f"import os, time\nwhile not os.path.exists({str(begins)!r}): time.sleep(0.01)\n"
    (tmp_path / "waiting_for_the_end.py").write_text(waiting)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    command = [interpreter.interpreter(("waiting_for_the_end",)), str(runner), str(begun)]
    with subprocess.Popen([sys.executable, "-c", DRIVER, *command], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        pid = int(driver.stdout.readline())
        if not lives:
            driver.kill()
            driver.wait()
        begins.touch()
        give_up_at = time.monotonic() + 120
        while is_running(pid, [pid]):
            assert time.monotonic() < give_up_at
            time.sleep(0.01)
        driver.kill()
    assert begun.exists() == lives
    assert not lives or begun.read_text() == "unknown"  # what functions start is not told of the driver


def test_bytecode_of_functions_is_kept_where_none_may_lie_beside_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = tmp_path / "runner.py"
    runner.write_text("import sys\nprint(sys.modules['mlless_nb.errors'].__cached__)\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.delenv("PYTHONPYCACHEPREFIX", raising=False)
    monkeypatch.setattr(interpreter, "_has_bytecode", lambda: False)
    monkeypatch.setattr(interpreter.platformdirs, "user_cache_path", lambda _: tmp_path / "cache")
    command = [interpreter.interpreter(), str(runner)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    kept = Path(done.stdout.strip())
    assert kept.is_file()
    assert kept.is_relative_to(tmp_path / "cache")


@pytest.mark.parametrize(
    ("backend", "module", "extra"),
    [
        ("aws_lambda", "boto3", "aws"),
        ({"lithops": {"backend": "localhost", "storage": "aws_s3"}}, "boto3", "aws"),
        ("code_engine", "ibm_cloud_sdk_core", "ibm"),
        ("k8s", "kubernetes", "kubernetes"),
    ],
)
def test_a_backend_whose_packages_are_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, backend: Any, module: str, extra: str
) -> None:
    for name in [name for name in sys.modules if "aws" in name and name.startswith("lithops.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(JobError, match=rf"backend=.*{module} is not: pip install 'lithops\[{extra}\]'"):
        mlless_nb.train(job(backend=backend, redis="rediss://:planted-secret@redis.example", detach=False))


def denied(operation: str, code: str = "AccessDenied") -> Exception:
    from botocore.exceptions import ClientError

    return ClientError({"Error": {"Code": code, "Message": "Refused."}}, operation)


def on_storage(storage: str) -> dict[str, Any]:
    """A configuration of a user's own."""
    return {"lithops": {"backend": "k8s", "storage": storage}, "k8s": {}, storage: {}}


@pytest.mark.parametrize(
    ("error", "storage", "said"),
    [
        (denied("HeadBucket", "403"), "aws_s3", "permission: HeadBucket is denied: `mlless-nb policy aws` prints"),
        (denied("GetCallerIdentity", "ExpiredToken"), "aws_s3", "credentials: they have expired: log in again"),
        (denied("HeadBucket", "403"), "minio", "An error occurred \\(403\\) when calling the HeadBucket operation"),
        (OSError("no route"), "aws_s3", "no route"),
    ],
)
def test_what_aws_refuses_of_lithops_is_told_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, error: Exception, storage: str, said: str
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(launcher, "opened", refuse)
    with pytest.raises(JobError, match=f"backend=.*: must be a working Lithops backend; Lithops says: {said}"):
        LithopsLauncher(on_storage(storage), 2, 256)


def test_what_aws_refuses_of_a_launch_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise denied("CreateFunction", "AccessDeniedException")

    monkeypatch.setattr(launcher, "opened", lambda *_: executor)
    monkeypatch.setattr(launcher, "CloudFunctions", lambda *_: cloud)
    cloud = SimpleNamespace(quota=None, deploy=refuse, begin=refuse)
    executor = SimpleNamespace(config=on_storage("aws_s3"), backend="k8s", storage=SimpleNamespace(bucket="bucket"))
    functions = LithopsLauncher(on_storage("aws_s3"), 2, 256)
    monkeypatch.setattr(functions, "close", lambda: None)
    for ask, what in ((functions.prepare, "deployed"), (lambda: functions.invoke(["{}"]), "invoked")):
        with pytest.raises(
            ServiceError, match=f"could not be {what}: permission: CreateFunction is denied: `mlless-nb p"
        ):
            ask()


def test_local_launchers_are_opened_by_several_threads_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a sweep's trials do, and a first run while what it needs is still prepared."""
    from lithops.localhost import utils  # type: ignore[import-untyped]

    copy = utils.shutil.copyfile

    def slowly(source: str, target: str, **options: bool) -> str:
        copy(source, target, **options)
        if "runner" in target:
            time.sleep(0.1)
        return target

    monkeypatch.setattr(utils.shutil, "copyfile", slowly)
    with ThreadPoolExecutor(4) as pool:
        launchers = list(pool.map(lambda _: LithopsLauncher("embedded", 2, 256), range(4)))
    for each in launchers:
        each.close()


def test_what_lithops_creates_for_functions_is_known_before_they_are_invoked() -> None:
    one = LithopsLauncher("localhost", 1, 1769)
    try:
        for _ in range(3):
            one.ready_executor()
            known, identities = one.temporary_paths, [executor.executor_id for executor in one._executors]
            one.invoke(["{}"])  # no payload: it fails
            found = [path for path in Path(one.folder).rglob("*") if any(name in path.name for name in identities)]
            assert found
            assert not [path for path in found if not any(path.is_relative_to(Path(name)) for name in known)]
            known = one.temporary_paths
    finally:
        one.close()
    assert not [path for path in known if os.path.lexists(path)]


def test_what_lithops_has_created_for_functions_that_it_could_not_invoke_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = LithopsLauncher("localhost", 1, 1769)
    try:
        executor = one.ready_executor()
        known = one.temporary_paths

        def failing(*given: Any, **options: Any) -> None:
            executor._create_job_id("M")
            raise OSError("no space left on device")

        monkeypatch.setattr(executor, "map", failing)
        with pytest.raises(ServiceError, match="no space left on device"):
            one.invoke(["{}"])
        assert set(known) < set(one.temporary_paths)
    finally:
        one.close()
