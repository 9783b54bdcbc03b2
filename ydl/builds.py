"""The directory of one build, builds/<uuid>, as something to remove.

Only what ydl itself puts there goes: part files under their names. Whatever else lies in it stays,
and its directory with it. No symbolic link is followed.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat

NAME = re.compile(r"[0-9a-f]{32}")
_PART_NAME = re.compile(r"[0-9]{5,9}\.ydl")


def remove(builds_fd: int, name: str) -> bool:
    """Whether it is gone now. builds_fd: of the directory that holds it."""
    fd = _open(builds_fd, name)
    try:
        for entry in os.listdir(fd):
            if _PART_NAME.fullmatch(entry):
                with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                    os.unlink(entry, dir_fd=fd)
    finally:
        os.close(fd)
    try:
        os.rmdir(name, dir_fd=builds_fd)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def measure(builds_fd: int, name: str) -> tuple[int, float]:
    """(Bytes of its files, time of the last change in it)."""
    fd = _open(builds_fd, name)
    try:
        total, changed = 0, os.fstat(fd).st_mtime
        for entry in os.listdir(fd):
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(entry, dir_fd=fd, follow_symlinks=False)
                changed = max(changed, status.st_mtime)
                if stat.S_ISREG(status.st_mode):
                    total += status.st_size
    finally:
        os.close(fd)
    return total, changed


def _open(builds_fd: int, name: str) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, dir_fd=builds_fd)
