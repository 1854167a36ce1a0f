"""The house itself: what is packed is what is there, and what workers import is only what they need."""

from __future__ import annotations

import ast
import configparser
import json
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mlless_nb

ROOT = Path(__file__).resolve().parents[1]
#: Where the parts of the package lie in the tree.
ROOMS = {
    "mlless_nb": "mlless_nb",
    "kernels": "mlless_nb.kernels",
    "magics": "mlless_nb.magics",
    "widgets": "mlless_nb.widgets",
}
#: The folders of mlless_nb and its modules, from the ground up.
FLOORS = [
    ("redaction", "one_line", "unix_user", "file_locks", "plurals", "plain_text", "remedies"),
    ("errors", "kernels"),
    ("money",),
    ("validation", "storage"),
    ("frames",),
    ("models", "data"),
    ("telemetry", "exchange", "bus"),
    ("job", "server"),
    ("tracking",),
    ("worker", "supervisor"),
    ("stateless",),
    ("preparation",),
    ("function",),
    ("driver",),
    ("simulate", "adviser", "clouds"),
    ("starting",),
    ("estimators", "search"),
    ("terminal",),
    ("__main__",),
]
#: The parts of the driver, from the ground up; what users call and the driver's loop lie beside them.
DRIVER_FLOORS = ("backends", "servers", "launch", "running", "recovery", "ending", "detached")
TOP_LEVEL_FOLDERS = {*ROOMS, "notebooks", "binder", "tests", "benchmarks", "docs"}


@pytest.fixture(scope="module")
def setup_cfg() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def lines_of(value: str) -> list[str]:
    return [line.strip() for line in value.splitlines() if line.strip()]


def modules() -> list[Path]:
    return sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def test_packages_are_those_of_the_tree(setup_cfg: configparser.ConfigParser) -> None:
    """A sub-package that setup.cfg forgets would be missing from the wheel, and nothing would report it."""
    found = set()
    for folder, package in ROOMS.items():
        for init in (ROOT / folder).rglob("__init__.py"):
            inner = init.parent.relative_to(ROOT / folder).parts
            found.add(".".join((package, *inner)))

    assert set(lines_of(setup_cfg["options"]["packages"])) == found


def test_modules_stay_small() -> None:
    """Half of the package's modules have fewer than 150 lines, and none more than 350."""
    sources = [*modules(), *(path for pattern in ("*.pyx", "*.h") for path in (ROOT / "kernels").glob(pattern))]
    n_lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources}

    assert {path: n for path, n in n_lines.items() if n > 350} == {}
    assert statistics.median(n_lines.values()) < 150


def test_files_of_tests_stay_small() -> None:
    n_lines = {path.name: len(path.read_text().splitlines()) for path in (ROOT / "tests").rglob("*.py")}

    assert {name: n for name, n in n_lines.items() if n > 400} == {}


def test_every_folder_with_modules_is_a_package() -> None:
    for module in modules():
        assert (module.parent / "__init__.py").exists(), f"{module.parent} has modules and no __init__.py"


def test_rooms_are_mapped(setup_cfg: configparser.ConfigParser) -> None:
    mapped = dict(line.split(" = ") for line in lines_of(setup_cfg["options"]["package_dir"]))

    assert mapped == {package: folder for folder, package in ROOMS.items()}


def test_files_that_are_not_modules_are_packed(setup_cfg: configparser.ConfigParser) -> None:
    packed = {key: value.split(", ") for key, value in setup_cfg["options.package_data"].items()}
    sources = {".py", ".pyx", ".h", ".c", ".cpp", ".so", ".pyc"}
    for folder, package in ROOMS.items():
        for path in (ROOT / folder).rglob("*"):
            if path.is_dir() or path.suffix in sources or "__pycache__" in path.parts:
                continue
            owner = ".".join((package, *path.parent.relative_to(ROOT / folder).parts))
            assert any(path.match(pattern) for pattern in packed.get(owner, [])), f"{path} is not in package_data"


def test_build_tools_are_pinned_once() -> None:
    """What pip takes to build is what wheels are built with; hashes, and no addresses."""
    pinned = (ROOT / "constraints.txt").read_text()
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    lines = [line for line in pinned.splitlines() if not line.startswith(" ")]

    assert {tool.lower() for tool in required} <= {line.removesuffix(" \\") for line in lines}
    assert all("==" in line for line in lines)
    assert pinned.count("--hash=sha256:") >= len(lines)
    assert "://" not in pinned


def test_top_level_folders() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    folders = {line.split("/")[0] for line in listed.stdout.splitlines() if "/" in line}

    assert {folder for folder in folders if not folder.startswith(".")} <= TOP_LEVEL_FOLDERS


def test_importing_the_package_imports_no_front_end(tmp_path: Path) -> None:
    """Workers import it too, in every function: a front end would cost each of them a second."""
    loading = f"import json, sys, mlless_nb.function.entry; from mlless_nb import {', '.join(mlless_nb.__all__)}; "
    code = loading + "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"
    answer = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert not {"IPython", "ipywidgets", "anywidget", "plotly", "ipykernel"} & set(json.loads(answer.stdout))


def test_public_names_are_there_and_others_are_not() -> None:
    for name in mlless_nb.__all__:
        assert getattr(mlless_nb, name).__name__.rpartition(".")[2] == name
        assert callable(getattr(mlless_nb, name)) != (name == "datasets"), name
    assert set(mlless_nb.__all__) <= set(dir(mlless_nb))
    assert len(mlless_nb.__all__) == len(set(mlless_nb.__all__))
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = mlless_nb.nothing


def test_nothing_is_pickled() -> None:
    """What comes from elsewhere is decoded and checked; pickles would run it."""
    banned = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib"}
    for module in modules():
        for node in ast.walk(ast.parse(module.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            elif isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant), f"{module}:{node.value.lineno}"
                assert node.value.value is False, f"{module}:{node.value.lineno}"
            assert not banned & {name.partition(".")[0] for name in names}, f"{module}:{getattr(node, 'lineno', 0)}"


def test_arrows_point_from_the_front_to_the_core() -> None:
    """magics, widgets -> mlless_nb -> kernels, never back; only functions may import a view, when it is asked for."""
    for module in (ROOT / "mlless_nb").rglob("*.py"):
        for node in ast.parse(module.read_text()).body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = {alias.name for alias in node.names} | {getattr(node, "module", None) or ""}
                parts = {part for name in names for part in name.split(".")}
                assert not parts & {"magics", "widgets", "IPython", "ipywidgets"}, f"{module}:{node.lineno}"
    for kernel in (ROOT / "kernels").glob("*.py"):
        for node in ast.walk(ast.parse(kernel.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 2:
                assert node.module == "errors", f"{kernel}:{node.lineno}"


def test_arrows_run_down_the_floors() -> None:
    """A folder imports from those below it only: the ground floor is everybody's, the driver knows all."""
    rank = {name: floor for floor, names in enumerate(FLOORS) for name in names}
    for module in (ROOT / "mlless_nb").rglob("*.py"):
        *folders, name = module.relative_to(ROOT / "mlless_nb").with_suffix("").parts
        own = (folders or [name])[0]
        if own == "__init__":
            continue
        tree = ast.parse(module.read_text())
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or not node.level:
                continue
            above = folders[: len(folders) - node.level + 1]
            for path in [node.module] if node.module else [alias.name for alias in node.names]:
                other = [*above, *path.split(".")][0]
                if other in ("widgets", "magics", "starting") and node not in tree.body:
                    continue  # asked for by a function, when needed: a view, or a start as a user's own
                if other != own:
                    assert rank[other] < rank[own], f"{module}:{node.lineno} imports {other}"


def test_the_parts_of_the_driver_import_from_those_below_them() -> None:
    driver = ROOT / "mlless_nb" / "driver"
    assert {path.parent.name for path in driver.glob("*/__init__.py")} == set(DRIVER_FLOORS)
    for module in driver.glob("*/*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            if not isinstance(node, ast.ImportFrom) or node.level != 2:
                continue
            for other in [node.module.split(".")[0]] if node.module else [alias.name for alias in node.names]:
                if other in DRIVER_FLOORS:
                    floor = DRIVER_FLOORS.index(module.parent.name)
                    assert DRIVER_FLOORS.index(other) < floor, f"{module}:{node.lineno} imports {other}"


def test_notebooks_are_stored_without_outputs() -> None:
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        for cell in json.loads(path.read_text())["cells"]:
            assert not cell.get("outputs"), f"{path.name} has outputs"
            assert cell.get("execution_count") is None, f"{path.name} has execution counts"


def test_the_source_tree_says_that_it_is_not_installed() -> None:
    """At the root of a checkout `./mlless_nb` hides the installed package."""
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import mlless_nb"
    done = subprocess.run([sys.executable, "-S", "-c", script], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert "start Python elsewhere" in done.stderr.strip().splitlines()[-1]
