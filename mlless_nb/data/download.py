"""The data folder, and downloads into it: with a checksum, a progress bar, and complete or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ..errors import ServiceError


@dataclass(frozen=True)
class Archive:
    """A publisher's zip file.

    Attributes
    ----------
    url : str
    checksum : str
        "sha256:..." of the archive.
    folders : tuple of str
        Names that its folder may have in the data folder; a download uses the first.
    needed, wanted : tuple of str
        Files that must be in it, and files that are used if they are in it.
    """

    url: str
    checksum: str
    folders: tuple[str, ...]
    needed: tuple[str, ...]
    wanted: tuple[str, ...] = ()


def data_home() -> Path:
    """The folder of datasets: ``MLLESS_DATA_HOME``, or the user's cache folder."""
    home = os.environ.get("MLLESS_DATA_HOME")
    if home:
        return Path(home).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("mlless_nb"))


def fetch(archive: Archive, home: Path, name: str) -> Path:
    """The folder with the files of ``archive`` below ``home``; it is downloaded if it does not exist.

    Raises
    ------
    ServiceError
        When it does not exist and the download fails; the message says which files to put where.
    """
    for folder in archive.folders:
        if all((home / folder / file).is_file() for file in archive.needed):
            return home / folder
    target = home / archive.folders[0]
    try:
        _download(archive, target)
    except Exception as error:
        # requests, zipfile, checksum or disk: the way out is the same for the user.
        reason = f"{_host(archive.url)} cannot be reached" if isinstance(error, _unreachable()) else str(error)
        reason = " ".join(reason.split()) or type(error).__name__
        files = " and ".join([*archive.needed, *archive.wanted])
        raise ServiceError(
            f"{name} is not in {target} and could not be downloaded ({_shortened(reason)}): get {archive.url} on a "
            f"machine that can, and put its {files} into {target}, or set MLLESS_DATA_HOME to the folder that has "
            f"{archive.folders[0]}; datasets.synthetic_ratings(...) needs no download"
        ) from None
    return target


def _download(archive: Archive, target: Path) -> None:
    """Fill ``target`` from the archive: the folder is moved into place once it is complete."""
    import pooch

    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as work:
        zipped = pooch.retrieve(
            archive.url,
            known_hash=archive.checksum,
            fname="archive.zip",
            path=work,
            downloader=pooch.HTTPDownloader(progressbar=True, timeout=30),
        )
        filled = Path(work) / target.name
        filled.mkdir()
        with zipfile.ZipFile(zipped) as members:
            by_name = {Path(member).name: member for member in members.namelist()}
            for file in (*archive.needed, *archive.wanted):
                if file in by_name:
                    with members.open(by_name[file]) as source, (filled / file).open("wb") as sink:
                        shutil.copyfileobj(source, sink)
        missing = [file for file in archive.needed if not (filled / file).is_file()]
        if missing:
            raise ValueError(f"the archive has no {', '.join(missing)}")
        target.mkdir(exist_ok=True)
        for path in filled.iterdir():
            os.replace(path, target / path.name)


def _host(url: str) -> str:
    return urlsplit(url).netloc


def _unreachable() -> tuple[type[Exception], ...]:
    """What requests raises, if it is installed, where a host is not found, or does not answer."""
    with contextlib.suppress(ImportError):
        from requests.exceptions import ConnectionError, Timeout

        return ConnectionError, Timeout
    return ()


def _shortened(reason: str) -> str:
    return reason if len(reason) <= 200 else reason[:197] + "..."
