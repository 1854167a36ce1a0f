"""Where files are: paths, globs, members of zip archives, and URLs of object storages."""

from __future__ import annotations

import bz2
import fnmatch
import glob
import gzip
import importlib.util
import io
import lzma
import re
import zipfile
import zlib
from abc import ABC, abstractmethod
from codecs import BOM_UTF8
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast
from urllib.parse import urlsplit

from ..errors import DataError
from ..redaction import remember
from ..validation import nearest

_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
#: What reading a file that is damaged, or none of its kind, raises.
UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error, zipfile.BadZipFile)
_MAGIC = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Location(ABC):
    """One file. Two of the same file are equal while it is unchanged.

    Attributes
    ----------
    name : str
        As shown to users.
    mark : tuple
        What changes if the file does: its size, and time or tag.
    """

    name: str
    mark: tuple[Any, ...]

    @abstractmethod
    def opened(self) -> IO[bytes]:
        """The file as it is stored; it can be sought in."""

    @abstractmethod
    def again(self) -> Location | None:
        """The location as it is now; None if the file is gone."""

    def text(self) -> IO[bytes]:
        """The file's bytes; decompressed if its name ends in .gz, .bz2 or .xz; without spreadsheets' mark of UTF-8.

        DataError if it cannot be read.
        """
        opener = _OPENERS.get(PurePosixPath(self.name).suffix)
        try:
            opened = cast("IO[bytes]", opener(self.opened(), "rb")) if opener else self.opened()
            if opened.read(len(BOM_UTF8)) != BOM_UTF8:
                opened.seek(0)
            return opened
        except UNREADABLE as error:
            raise unreadable(self, error) from None

    def check_unchanged(self) -> None:
        """Raise DataError if the file was deleted or changed."""
        if self.again() != self:
            raise DataError("path", self.name, "the file that it was when the dataset was made: make it anew")


@dataclass(frozen=True)
class LocalFile(Location):
    """A file of this machine."""

    @classmethod
    def of(cls, path: Path) -> LocalFile:
        """The file as it is now."""
        found = path.stat()
        return cls(str(path), (found.st_size, found.st_mtime_ns))

    def opened(self) -> IO[bytes]:
        """See `Location`."""
        return Path(self.name).open("rb")

    def again(self) -> Location | None:
        """See `Location`."""
        return LocalFile.of(Path(self.name)) if Path(self.name).is_file() else None


@dataclass(frozen=True)
class ZipMember(Location):
    """A member of a zip archive, named "archive.zip/member"."""

    archive: Location
    member: str

    def opened(self) -> IO[bytes]:
        """See `Location`."""
        with zipfile.ZipFile(self.archive.opened()) as archive:
            return archive.open(self.member)

    def again(self) -> Location | None:
        """See `Location`."""
        archive = self.archive.again()
        return None if archive is None else ZipMember(self.name, archive.mark, archive, self.member)


@dataclass(frozen=True)
class ArrowObject(Location):
    """An object of a storage that pyarrow reads: Amazon S3 and what is like it, Google, Azure, HDFS."""

    system: Any
    path: str

    def opened(self) -> IO[bytes]:
        """See `Location`."""
        return cast("IO[bytes]", io.BufferedReader(self.system.open_input_file(self.path)))

    def again(self) -> Location | None:
        """See `Location`."""
        info = self.system.get_file_info(self.path)
        return ArrowObject(self.name, (info.size, info.mtime_ns), self.system, self.path) if info.is_file else None


@dataclass(frozen=True)
class FsspecObject(Location):
    """An object of a storage that fsspec reads."""

    system: Any
    path: str

    @classmethod
    def of(cls, name: str, system: Any, path: str) -> FsspecObject:
        """The object as it is now."""
        info = system.info(path)
        return cls(name, (info["size"], str(info.get("mtime", info.get("ETag", "")))), system, path)

    def opened(self) -> IO[bytes]:
        """See `Location`."""
        return cast("IO[bytes]", self.system.open(self.path, "rb"))

    def again(self) -> Location | None:
        """See `Location`."""
        return FsspecObject.of(self.name, self.system, self.path) if self.system.exists(self.path) else None


def unreadable(file: Location, error: Exception) -> DataError:
    """What is raised for ``file``, which cannot be read to its end."""
    return DataError("path", file.name, f"a file that can be read; {' '.join(str(error).split())}")


def name_of(files: Sequence[Location]) -> str:
    """The name of files as one data set."""
    first = files[0].name.rpartition("/")[2]
    return first if len(files) == 1 else f"{first} and {len(files) - 1} more"


def check_unchanged(files: Sequence[Location]) -> None:
    """Raise DataError if one of the files was deleted or changed."""
    for file in files:
        file.check_unchanged()


def located(field: str, path: Any, *, unpacks: bool = True) -> tuple[Location, ...]:
    """The files that ``path`` names, in the order of their names; at least one.

    Parameters
    ----------
    path : str or Path, or a sequence of them
        A path, a glob, a zip archive (all of its members; with ``unpacks``), or a URL of an object storage, which may
        be a glob.

    Raises
    ------
    DataError
        When there is no such file, or what reads it is not installed.
    """
    if isinstance(path, Sequence) and not isinstance(path, (str, bytes)) and path:
        return tuple(each for one in path for each in located(field, one, unpacks=unpacks))
    if not isinstance(path, (str, Path)):
        raise DataError(field, path, "the path of a file")
    found = _stored(field, path) if isinstance(path, str) and "://" in path else _local(field, path)
    return tuple(each for one in found for each in (_members(field, one) if unpacks else [one]))


def _local(field: str, path: str | Path) -> Sequence[Location]:
    wanted = Path(path).expanduser()
    if wanted.is_file():
        paths = [wanted]
    elif _MAGIC.search(str(wanted)):
        paths = sorted(each for each in map(Path, glob.glob(str(wanted), recursive=True)) if each.is_file())
    else:
        paths = []
    if not paths:
        near = nearest(wanted.name, [each.name for each in wanted.parent.glob("*")], 0.8)
        asked = f"; is {near} meant?" if near else ""
        raise DataError(field, str(path), f"an existing file, or a glob or a URL of files{asked}")
    for each in paths:
        try:
            with each.open("rb"):
                pass
        except OSError as error:
            raise DataError(field, str(each), f"a readable file ({error.strerror})") from None
    return [LocalFile.of(each) for each in paths]


def _members(field: str, archive: Location) -> Sequence[Location]:
    if not archive.name.lower().endswith(".zip"):
        return [archive]
    try:
        with archive.opened() as opened, zipfile.ZipFile(opened) as unzipped:
            names = sorted(each.filename for each in unzipped.infolist() if not each.is_dir())
    except (zipfile.BadZipFile, OSError) as error:
        raise DataError(field, archive.name, f"a zip archive ({error})") from None
    names = [
        name for name in names if not name.startswith("__MACOSX/") and not PurePosixPath(name).name.startswith(".")
    ]
    if not names:
        raise DataError(field, archive.name, "a zip archive with a file in it")
    return [ZipMember(f"{archive.name}/{name}", archive.mark, archive, name) for name in names]


def _stored(field: str, url: str) -> Sequence[Location]:
    """The objects that a URL names."""
    parts = urlsplit(url)
    remember(parts.password)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    installed = [name for name in ("pyarrow", "fsspec") if importlib.util.find_spec(name) is not None]
    reasons = []
    for name in installed:
        try:
            found = (_by_pyarrow if name == "pyarrow" else _by_fsspec)(url, parts.scheme)
        except Exception as error:  # each system raises its own
            reasons.append(f"{name}: {' '.join(str(error).split())[:200]}")
            continue
        if found:
            return found
        raise DataError(field, shown, "a URL, or a glob, of an object that exists")
    why = "; ".join(reasons) or "install pyarrow or fsspec, which read such URLs: pip install 'mlless_nb[parquet]'"
    raise DataError(field, shown, f"a file that can be read ({why})")


def _by_pyarrow(url: str, scheme: str) -> Sequence[Location]:
    from pyarrow import fs

    base, _, query = url.partition("?")  # so a glob in a URL has no "?"
    fixed = _MAGIC.split(base)[0]
    if fixed != base:  # a glob: the folder before it is listed
        fixed = fixed.rpartition("/")[0]
    system, path = fs.FileSystem.from_uri(fixed + (f"?{query}" if query else ""))
    if fixed == base:
        infos = [system.get_file_info(path)]
    else:
        infos = system.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=True))
        pattern = path + base[len(fixed) :]
        infos = [info for info in infos if fnmatch.fnmatchcase(info.path, pattern)]
    return [
        ArrowObject(f"{scheme}://{info.path}", (info.size, info.mtime_ns), system, info.path)
        for info in sorted(infos, key=lambda info: str(info.path))
        if info.is_file
    ]


def _by_fsspec(url: str, scheme: str) -> Sequence[Location]:
    import fsspec

    system, path = fsspec.core.url_to_fs(url)
    paths = sorted(system.glob(path)) if _MAGIC.search(path) else [path]
    return [FsspecObject.of(f"{scheme}://{each.lstrip('/')}", system, each) for each in paths if system.isfile(each)]
