"""The layer of functions: from locked wheels, the same again, small, and complete for what functions import."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from clouds.wheels import wheel

from mlless_nb.clouds import archive, container, packages, runtime
from mlless_nb.errors import JobError, ServiceError
from mlless_nb.function.package_digest import NOTED, digest_here

ROOT = Path(__file__).resolve().parents[2]
#: What `make test` fetched.
FETCHED = ROOT / "build" / "function-set"
on_linux = pytest.mark.skipif(
    not list((ROOT / "kernels").glob(f"*{packages.extension_suffix()}")),
    reason="the kernels here are not AWS Lambda's: they are those of Linux on x86-64",
)
#: The size that a layer may have, bytes, unzipped: starting a function takes longer with more.
MOST_BYTES = 65_000_000


def built(folder: Path, wheels: Path) -> runtime.Runtime:
    folder.mkdir()
    return runtime.build(folder, None, wheels)


@pytest.mark.parametrize("lock", container.LOCKS, ids=lambda lock: lock.stem)
def test_a_lock_file_has_a_hash_for_each_package_and_no_addresses(lock: Path) -> None:
    text = lock.read_text()
    pinned = [line for line in text.splitlines() if line and line[0] not in " #"]
    assert all("==" in line for line in pinned)
    assert all("--hash=sha256:" in block for block in re.split(r"\n(?=\w)", text)[1:])
    assert "://" not in text
    roots = [re.split(r"[<>=;\[]", line)[0] for line in lock.with_suffix(".in").read_text().splitlines()]
    names = {line.split("==")[0] for line in pinned}
    assert {root for root in roots if root and root[0] != "#"} <= names


@on_linux
def test_a_layer_is_the_same_again_and_named_by_its_contents(tmp_path: Path, small_set: Path) -> None:
    first, again = built(tmp_path / "first", small_set), built(tmp_path / "again", small_set)
    assert first.archive.read_bytes() == again.archive.read_bytes()
    assert first.digest == again.digest
    assert first.sources == digest_here()
    noted = tmp_path / "first" / "layer" / "python" / "mlless_nb" / "function" / NOTED
    assert noted.read_text() == first.sources
    with zipfile.ZipFile(first.archive) as made:
        names = made.namelist()
        modes = {entry.filename: entry.external_attr >> 16 & 0o777 for entry in made.infolist()}
    assert "python/thing/__init__.py" in names
    assert not [name for name in names if re.search(r"/(tests|bin|magics|widgets|driver|clouds)/|\.pyi$|RECORD$", name)]
    assert modes[runtime.WRAPPER] == 0o755
    assert ("thing", True) in first.modules
    assert first.unzipped_bytes == sum(path.stat().st_size for path in archive.files_in(tmp_path / "first" / "layer"))
    changed = tmp_path / "again" / "layer" / "python" / "mlless_nb" / "errors.py"
    changed.write_text(changed.read_text() + "# another version\n")
    assert archive.digest_of(tmp_path / "again" / "layer") != first.digest


def test_a_package_without_its_hash_is_refused(tmp_path: Path, small_set: Path) -> None:
    packages.LOCK.write_text(f"thing==1.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(ServiceError, match=r"pip could not install .*(hash|HASH)"):
        packages.install(tmp_path / "target", small_set)


def test_a_wheel_for_another_machine_is_refused(tmp_path: Path) -> None:
    other = wheel(tmp_path, "mlless_nb", {"mlless_nb/kernels/csr.cpython-311-aarch64-linux-gnu.so": ""})
    with pytest.raises(JobError, match=r"wheel=.*for Linux on x86-64 and Python 3\.\d+; `make wheel`"):
        packages.add_own(tmp_path / "target", other)
    with pytest.raises(JobError, match=r"wheel=.*a wheel of mlless_nb"):
        packages.add_own(tmp_path / "target", tmp_path / "missing.whl")


def test_kernels_for_a_newer_c_library_are_refused(tmp_path: Path) -> None:
    name = f"mlless_nb/kernels/csr{packages.extension_suffix()}"
    newer = wheel(tmp_path, "mlless_nb", {name: "GLIBC_2.4 GLIBC_2.99"})
    with pytest.raises(JobError, match=r"wheel=.*csr.* needs 2\.99; `make wheel`"):
        packages.add_own(tmp_path / "target", newer)


def test_what_is_too_large_for_aws_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "layer").mkdir()
    (tmp_path / "layer" / "file").write_bytes(bytes(2_000_000))
    monkeypatch.setattr(archive, "UNZIPPED_BYTES", 1_000_000)
    with pytest.raises(ServiceError, match="2 MB unzipped; AWS Lambda takes at most 1 MB"):
        archive.pack(tmp_path / "layer", tmp_path / "layer.zip")


@on_linux
@pytest.mark.skipif(not FETCHED.exists(), reason="`make build/function-set/.fetched` fetches the packages")
def test_the_whole_set_is_small_and_functions_find_in_it_all_that_they_import(tmp_path: Path) -> None:
    made = runtime.build(tmp_path, None, FETCHED)
    assert made.unzipped_bytes <= MOST_BYTES
    for path in (tmp_path / "layer").rglob("*.so*"):
        packages._check_symbols(path.name, path.read_bytes(), path)
    # Lithops is in the function's own archive; here it is this environment's, alone in a folder.
    import lithops

    (tmp_path / "task").mkdir()
    (tmp_path / "task" / "lithops").symlink_to(Path(lithops.__file__).parent)
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "import lithops.worker, mlless_nb.function.entry, mlless_nb.worker.loop, mlless_nb.supervisor.loop, json\n"
        "import mlless_nb.stateless.functions, mlless_nb.stateless.host, mlless_nb.preparation.functions\n"
        "import mlless_nb.models, mlless_nb.bus.rabbitmq, numpy\n"
        "print(json.dumps([numpy.__file__, *map(str, sys.modules)]))"
    )
    command = [sys.executable, "-I", "-S", "-c", code, str(tmp_path / "layer" / "python"), str(tmp_path / "task")]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    where, *names = json.loads(done.stdout)
    assert where.startswith(str(tmp_path))
    assert not {"mlless_nb.driver", "scipy", "IPython", "boto3"} & set(names)
