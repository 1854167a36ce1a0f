"""Settings of glibc's allocator for functions and the private Redis server; other C libraries are not changed."""

from __future__ import annotations

import ctypes
import os
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
#: Pages of 2 MiB if the kernel offers them: they save a tenth of Redis' time under BSP, and of a worker's with large
#: tables.
_LARGE_PAGES = "glibc.malloc.hugetlb=1"


def keep_memory() -> None:
    """Make this process keep freed blocks, since frames of a megabyte are allocated and freed every step.

    All threads share one arena, since only the main arena gets large pages: with its own arena, the thread that fetches
    minibatches would have a page fault every 4 KiB.
    """
    if sys.platform == "linux":
        try:
            mallopt = ctypes.CDLL(None).mallopt
        except (OSError, AttributeError):
            return  # not glibc
        mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the most that older versions take, as on AWS Lambda
        mallopt(_M_TRIM_THRESHOLD, 512 << 20)
        mallopt(_M_ARENA_MAX, 1)


def large_pages() -> str:
    """``GLIBC_TUNABLES=...``, for a process that should use large pages; tunables set before are kept."""
    return "GLIBC_TUNABLES=" + ":".join(filter(None, [os.environ.get("GLIBC_TUNABLES"), _LARGE_PAGES]))
