"""The fields of a job as plain values: those of a TOML file, and over them those of ``--set field=value``. Pure."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import MllessError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*)*")


class ConfigError(MllessError):
    """A file or an option does not describe a job: one line with where, the field, its value and what is valid."""


@dataclass
class Settings:
    """Fields and where they are.

    Attributes
    ----------
    source : str
        The file, as the user named it.
    folder : Path
        Where its relative paths begin.
    fields : dict
        From the file.
    changes : list of tuple
        Of ``--set``: the field's name, its parts, and the value.
    """

    source: str
    folder: Path
    fields: dict[str, Any]
    changes: list[tuple[str, list[str], Any]] = field(default_factory=list)

    def source_of(self, *names: str) -> str:
        """Where one of the fields ``names`` was given last."""
        options = [name for name, parts, _ in self.changes if {parts[0], name} & set(names)]
        return f"--set {options[-1]}" if options else self.source


def read(path: str, changes: Sequence[str] = ()) -> Settings:
    """The settings of the file ``path`` with ``changes``, each ``field=value``.

    Raises
    ------
    ConfigError
        If the file cannot be read or is no TOML, or a change is no ``field=value``.
    """
    try:
        text = Path(path).read_bytes().decode()
        fields = tomllib.loads(text)
    except OSError as error:
        raise ConfigError(f"{path}: must be a TOML file with the job's fields ({error.strerror})") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: must be a TOML file, in UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: must be TOML: {' '.join(str(error).split())}{_shown(text, str(error))}") from None
    return Settings(path, Path(path).absolute().parent, fields, [_change(each) for each in changes])


def _shown(text: str, error: str) -> str:
    """The line that an error of TOML names, and what is most often wrong in it."""
    found = re.search(r"line (\d+)", error)
    lines = text.splitlines()
    if found is None or not 1 <= int(found.group(1)) <= len(lines):
        return ""
    hint = '; "PMF(rank=20)" and the like are in quotation marks' if error.startswith("Invalid value") else ""
    return f": {lines[int(found.group(1)) - 1].strip()[:80]}{hint}"


def _change(option: str) -> tuple[str, list[str], Any]:
    """``field=value``: the value as TOML has it, or as a text."""
    name, is_given, text = option.partition("=")
    name = name.strip()
    if not is_given or not _NAME.fullmatch(name):
        raise ConfigError(f"--set {option}: must be field=value, e.g. --set workers=4 or --set model.rank=20")
    try:
        value = tomllib.loads(f"value = {text}")
        return name, name.split("."), value["value"] if len(value) == 1 else text
    except tomllib.TOMLDecodeError:
        return name, name.split("."), text.strip()
