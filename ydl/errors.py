"""What can go wrong, as exceptions.

Each also derives from the builtin that a user would catch. The C core raises these classes by
name (csrc/base/status.h has the list).
"""

from __future__ import annotations


class YdlError(Exception):
    """Base of all errors of ydl's own."""


class StoredFileError(YdlError, OSError):
    """Something is wrong with a stored file, which `filename` names where it is a single one."""

    def __str__(self) -> str:
        # OSError's own would leave the text out, as soon as there is a file name beside it.
        return str(self.args[0]) if len(self.args) == 1 else super().__str__()


class CorruptCacheError(StoredFileError):
    """A stored file is damaged, incomplete or not ydl's: says which, where and how."""


class CorruptRecordError(CorruptCacheError):
    """One record's bytes do not match their checksum: says file, record and offset."""


class CacheReplacedError(StoredFileError):
    """The part that an open stream wants next was replaced and removed meanwhile."""


class SharedDirectoryError(StoredFileError):
    """The file system keeps two datasets' directories, whose names differ in case or in Unicode's
    forms, as one."""


class NotCachedError(YdlError, FileNotFoundError):
    """`fetch` found no published dataset under this id and version."""


class BuildFailedError(YdlError, RuntimeError):
    """The builds of this dataset failed on other processes: says on which host and how."""


class NestedBuildError(YdlError, RuntimeError):
    """A function that builds a dataset asks for the same dataset."""


class WaitTimeoutError(YdlError, TimeoutError):
    """Another process builds the dataset for longer than `wait_timeout_s`: names it."""


class UnsupportedError(YdlError, ValueError):
    """The elements, the file's version or the file system lack what ydl needs: says what."""


class ShapeMismatchError(YdlError, ValueError):
    """Records (or a record and its declared shape) do not fit together: gives both shapes."""


class ClosedError(YdlError, ValueError):
    """The object was closed before."""


class ForkedError(YdlError, RuntimeError):
    """The object's native threads belong to the parent process: make a new one in the child."""
