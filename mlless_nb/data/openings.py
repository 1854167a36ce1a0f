"""What a user hands in as a table: in memory, or files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..frames.files import file_source
from ..frames.locations import located
from ..frames.sources import Source, source_of


def opened_table(frame: Any) -> Source:
    """``frame``, a table or the place of files, as columns that can be read in batches."""
    is_places = isinstance(frame, (list, tuple)) and bool(frame) and all(isinstance(one, (str, Path)) for one in frame)
    if isinstance(frame, (str, Path)) or is_places:
        return file_source(located("frame", frame))
    return source_of(frame)
