"""A runtime without the compiled modules says what to install."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

from mlless_nb import kernels


def test_missing_kernels_name_the_command_that_fixes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for source in Path(kernels.__file__).parent.glob("*.py"):
        shutil.copy(source, tmp_path)
    name = "kernels_without_modules"
    spec = importlib.util.spec_from_file_location(
        name, tmp_path / "__init__.py", submodule_search_locations=[str(tmp_path)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(ImportError, match="pip install mlless_nb"):
        spec.loader.exec_module(module)
