"""Install the peers of the benchmarks, each as far as it will: one that does not build must not keep the others out.

python benchmarks/peers.py
"""

from __future__ import annotations

import configparser
import subprocess
import sys
from pathlib import Path


def requirements() -> list[str]:
    """The lines of the extra ``bench`` in setup.cfg."""
    config = configparser.ConfigParser()
    config.read(Path(__file__).resolve().parent.parent / "setup.cfg", encoding="utf-8")
    return config["options.extras_require"]["bench"].split("\n")[1:]


def main() -> None:
    """Install one after the other and say what is missing."""
    for requirement in requirements():
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", requirement]
        if subprocess.run(pip, check=False, stdin=subprocess.DEVNULL).returncode:
            print(f"{requirement}: not installed; its rows will say so", file=sys.stderr)


if __name__ == "__main__":
    main()
