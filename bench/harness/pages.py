"""The page cache: forgetting files, and making sure that they are forgotten."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Iterator

_libc = ctypes.CDLL(None, use_errno=True)


def files_below(directory: str) -> Iterator[str]:
    for folder, _, names in os.walk(directory):
        yield from (os.path.join(folder, name) for name in names)


def forget(directory: str) -> None:
    """Drops all files below directory from the page cache. Nobody may have them mapped.

    RuntimeError where more than 2 % stay: what were measured then is not the disk.
    """
    total = kept = 0
    for path in files_below(directory):
        with open(path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            total += os.fstat(file.fileno()).st_size
            kept += _resident(file.fileno())
    if kept > 0.02 * total:
        raise RuntimeError(
            f"{kept:,} of {total:,} bytes below {directory} stay in the page cache: somebody has "
            "them mapped, or the file system keeps them (tmpfs): choose another --dir"
        )


def _resident(fd: int) -> int:
    """Bytes of the file that are in the page cache."""
    size = os.fstat(fd).st_size
    if not size:
        return 0
    pages = -(-size // mmap.PAGESIZE)
    seen = (ctypes.c_ubyte * pages)()
    with contextlib.closing(mmap.mmap(fd, size, mmap.MAP_PRIVATE)) as area:
        view = ctypes.c_char.from_buffer(area)
        failed = _libc.mincore(ctypes.c_void_p(ctypes.addressof(view)), ctypes.c_size_t(size), seen)
        del view  # else the map cannot be closed
    if failed:
        raise OSError(ctypes.get_errno(), "mincore")
    return sum(page & 1 for page in seen) * mmap.PAGESIZE
