"""The kernels that read and write frames, built once more: checksums only in turns with trust. For `overhead.py`."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path

#: The kernels that know frames.
KERNELS = ("codec", "merge")
#: Names the folder of the built ones, for functions.
FOLDER_VARIABLE = "MLLESS_SWITCHED_KERNELS"
HERE = Path(__file__).resolve().parent


def build(folder: Path) -> None:
    """Compile `KERNELS` with ``checksum_turns.h`` into ``folder``, from what Cython made of them for this clone.

    Raises
    ------
    RuntimeError
        When the compiler failed; its messages are the reason.
    """
    flags = [
        "-shared",
        "-fPIC",
        "-O3",
        "-g0",
        "-include",
        str(HERE / "checksum_turns.h"),
        f"-I{HERE.parent / 'kernels'}",
    ]
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    for name in KERNELS:
        source = HERE.parent / "build" / "cython" / "kernels" / f"{name}.c"
        command = [*compiler, *flags, f"-I{sysconfig.get_path('include')}", str(source), "-o", str(folder / name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the kernel {name} could not be built with switched checksums: {done.stderr}")


def swap(folder: Path) -> None:
    """Put the functions of the kernels in ``folder`` in the place of this process' own, wherever those are bound."""
    instead = {}
    for stem in KERNELS:
        name = f"mlless_nb.kernels.{stem}"
        own = importlib.import_module(name)
        loader = importlib.machinery.ExtensionFileLoader(name, str(folder / stem))
        spec = importlib.util.spec_from_file_location(name, folder / stem, loader=loader)
        assert spec is not None
        switched = importlib.util.module_from_spec(spec)
        loader.exec_module(switched)
        for key, value in vars(own).items():
            if getattr(value, "__module__", None) == name:
                instead[id(value)] = getattr(switched, key)
        sys.modules[name] = switched
    for module in [module for name, module in sys.modules.items() if name.split(".")[0] == "mlless_nb"]:
        for key, value in list(vars(module).items()):
            if id(value) in instead:
                setattr(module, key, instead[id(value)])
