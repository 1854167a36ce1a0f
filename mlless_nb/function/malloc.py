"""How the C library's allocator serves functions and the private Redis server: glibc's; others are left alone."""

from __future__ import annotations

import ctypes
import os
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
#: Pages of 2 MiB where the kernel has them: a tenth less of Redis' time under BSP, and of a worker's with large tables.
_LARGE_PAGES = "glibc.malloc.hugetlb=1"


def keep_memory() -> None:
    """Let this process keep freed blocks: frames of a megabyte are made and dropped every step.

    All threads share one arena, which alone gets large pages: in one of its own, the thread that fetches minibatches
    meets a fault every 4 KiB.
    """
    if sys.platform == "linux":
        try:
            mallopt = ctypes.CDLL(None).mallopt
        except (OSError, AttributeError):
            return  # not glibc
        mallopt(_M_MMAP_THRESHOLD, 64 << 20)
        mallopt(_M_TRIM_THRESHOLD, 512 << 20)
        mallopt(_M_ARENA_MAX, 1)


def large_pages() -> str:
    """``GLIBC_TUNABLES=...``, for a process that is to ask for large pages; what was set before stays set."""
    return "GLIBC_TUNABLES=" + ":".join(filter(None, [os.environ.get("GLIBC_TUNABLES"), _LARGE_PAGES]))
