"""Directories below a storage's root, reached without following a symbolic link.

The root itself may be one, or lie behind some: it is the user's. What is below it belongs to
everybody who may write there, and a link planted there would have ydl write, or remove, somewhere
else. So each component is opened relative to the one before, and a link in its place is refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Sequence
from typing import NoReturn

from ydl.errors import CorruptCacheError

_DIRECTORY = os.O_DIRECTORY | os.O_CLOEXEC
# What a file system says that cannot flush a directory: FUSE and CIFS write names at once, or not
# at our bidding.
_NO_FLUSH = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)


def open_directory(root: str, names: Sequence[str], *, flags: int = os.O_RDONLY) -> int:
    """A descriptor of the directory <root>/<names...>. flags: os.O_PATH where it is only to be
    passed as a dir_fd, which needs no permission to list it.

    CorruptCacheError where a component below the root is a symbolic link, FileNotFoundError where
    one is absent.
    """
    fd = os.open(root, (os.O_PATH if names else flags) | _DIRECTORY)
    for i, name in enumerate(names):
        is_last = i == len(names) - 1
        try:
            inner = _open_inner(fd, name, flags if is_last else os.O_PATH)
        except OSError as error:
            refuse(error, os.path.join(root, *names[: i + 1]))
        finally:
            os.close(fd)
        fd = inner
    return fd


def check_directory(root: str, names: Sequence[str]) -> bool:
    """Whether it is there. CorruptCacheError where a component is a symbolic link."""
    try:
        os.close(open_directory(root, names, flags=os.O_PATH))
    except FileNotFoundError:
        return False
    return True


def make_directories(root: str, names: Sequence[str]) -> None:
    """Creates what is absent, and makes the names of all of it durable, the root's too: an entry
    of the log is of no use in a directory that a crash removes.

    Also of what exists: whoever made it may have been killed before it was flushed.
    CorruptCacheError where a component is a symbolic link.
    """
    _flush_above(root)
    fd = os.open(root, os.O_RDONLY | _DIRECTORY)
    for i, name in enumerate(names):
        try:
            inner = _make_inner(fd, name)
            flush(fd)
        except OSError as error:
            refuse(error, os.path.join(root, *names[: i + 1]))
        finally:
            os.close(fd)
        fd = inner
    os.close(fd)


def _flush_above(root: str) -> None:
    """The names that lead to the root, within its file system, as far as this user may."""
    path = os.path.realpath(root)
    device = os.stat(path).st_dev
    while os.path.dirname(path) != path:
        path = os.path.dirname(path)
        if os.stat(path).st_dev != device:
            return
        with contextlib.suppress(PermissionError):
            fd = os.open(path, os.O_RDONLY | _DIRECTORY)
            try:
                flush(fd)
            finally:
                os.close(fd)


def flush(fd: int) -> None:
    """Makes the names in an open directory durable."""
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in _NO_FLUSH:
            raise


def refuse(error: OSError, path: str) -> NoReturn:
    """Raises `error` with the whole path, or CorruptCacheError where a symbolic link is there."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR) and os.path.islink(path):
        refused = CorruptCacheError(
            f"{path} is a symbolic link: ydl follows none below the storage's directory, since "
            "whoever may write there could lead it elsewhere. Remove the link; where a dataset is "
            "to lie elsewhere, give that place to a storage of its own"
        )
        refused.filename = path
        raise refused from None
    assert error.errno is not None
    raise OSError(error.errno, os.strerror(error.errno), path) from None


def _open_inner(fd: int, name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NOFOLLOW | _DIRECTORY, dir_fd=fd)


def _make_inner(fd: int, name: str) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=fd)
    return _open_inner(fd, name, os.O_RDONLY)
