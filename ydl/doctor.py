"""`ydl doctor`: does a directory's file system keep what builds, leases and readers rely on?

Each check tries it there, on files of its own in a directory that it removes again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, Optional

from ydl import _core, text

# Below these a build is likely to fail soon.
_LOW_BYTES = 10**9
_LOW_FILES = 1000
# A second process starts within this time, or something else is wrong.
_PROCESS_S = 30.0
# What a waiter needs: far less than 1.5 times a lease's time to live of 60 s.
_SLOW_S = 10.0


class Finding(NamedTuple):
    """What a check found. trusted: True; False: builds (or reads) fail there, or are not safe;
    None: nothing depends on it."""

    name: str
    trusted: Optional[bool]
    text: str


def examine(path: str) -> Iterator[Finding]:
    """One finding after another. OSError where there is no directory at `path`."""
    root = os.path.realpath(path)
    if not stat.S_ISDIR(os.stat(root).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), root)
    yield _access(root)
    yield _space(root)
    work = os.path.join(root, f".ydl-doctor-{secrets.token_hex(8)}")
    try:
        os.mkdir(work)
    except OSError as error:
        yield Finding("writing", None, f"{error.strerror}: only reading is possible from here")
        return
    try:
        yield _permissions(root, work)
        for name, check in _CHECKS:
            yield _guarded(name, check, work)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _guarded(name: str, check: Callable[[str], tuple[Optional[bool], str]], work: str) -> Finding:
    directory = os.path.join(work, name.replace(" ", "-"))
    try:
        os.mkdir(directory)
        return Finding(name, *check(directory))
    except (OSError, subprocess.SubprocessError) as error:
        return Finding(name, False, str(error))


# ---- without writing ----


def _access(root: str) -> Finding:
    how = _core.access_for(root)
    why = "it is local" if how == "mmap" else "it is on a network, in user space or unknown"
    return Finding("reading", True, f"by {how}, as {why}")


def _space(root: str) -> Finding:
    fs = os.statvfs(root)
    free = fs.f_bavail * fs.f_frsize
    # File systems that make inodes as needed report none at all.
    files = f"{fs.f_favail} files" if fs.f_files else "no limit on files"
    enough = free >= _LOW_BYTES and (not fs.f_files or fs.f_favail >= _LOW_FILES)
    return Finding("free space", enough, f"{text.byte_count(free)}, {files}")


# ---- with files of our own ----


def _create(path: str, content: bytes = b"") -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        os.write(fd, content)
    finally:
        os.close(fd)


def _permissions(root: str, work: str) -> Finding:
    mask = os.umask(0o022)
    os.umask(mask)
    path = os.path.join(work, "permissions")
    _create(path)
    mode, wanted = os.stat(path).st_mode & 0o777, 0o666 & ~mask
    said = f"new files get {mode:04o}, as the umask {mask:04o} says"
    if mode != wanted:
        said = f"new files get {mode:04o}, not the umask's {wanted:04o} (an ACL or a mount option)"
    if not mode & 0o044:
        said += "; no other user can read what is built here"
    parent = os.stat(root)
    if parent.st_mode & stat.S_IWOTH and not parent.st_mode & stat.S_ISVTX:
        said += "; everybody may replace what is built here (see SECURITY.md)"
    return Finding("permissions", True, said)


def _exclusive(work: str) -> tuple[Optional[bool], str]:
    path = os.path.join(work, "file")
    _create(path)
    try:
        _create(path)
    except FileExistsError:
        return True, "a name is created once (O_EXCL)"
    return False, "O_EXCL creates a name that exists: no build may be published here"


def _link(work: str) -> tuple[Optional[bool], str]:
    ways = []
    for name, way in (("link", _by_link), ("rename without replacing", _by_rename)):
        problem = way(os.path.join(work, name.split()[0]))
        if problem is None:
            ways.append(name)
        elif problem == "replaces":
            return False, f"{name} replaces what exists: no build may be published here"
    if ways:
        return True, f"by {ways[0]}"
    return False, (
        "there is neither link nor a rename that refuses to replace: builds are refused unless "
        "allow_weak_publish=True, and then two at the same moment may replace each other"
    )


def _by_link(path: str) -> Optional[str]:
    _create(path + ".1", b"1")
    _create(path + ".2", b"2")
    try:
        os.link(path + ".1", path)
    except OSError as error:
        return str(error)
    try:
        os.link(path + ".2", path)
    except FileExistsError:
        return None
    return "replaces"


def _by_rename(path: str) -> Optional[str]:
    """As csrc/store/create.c does it, in a directory of its own."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return "this libc has no renameat2"
    for name in (path + ".3", path + ".4"):
        _create(name)
    at_cwd, no_replace = -100, 1
    target = os.fsencode(path + ".5")
    if libc.renameat2(at_cwd, os.fsencode(path + ".3"), at_cwd, target, no_replace) != 0:
        return os.strerror(ctypes.get_errno())
    if libc.renameat2(at_cwd, os.fsencode(path + ".4"), at_cwd, target, no_replace) == 0:
        return "replaces"
    return None


def _log(work: str) -> tuple[Optional[bool], str]:
    """The very call that publishes."""
    first = _core.log_append(work, 1, b"1", False)
    second = _core.log_append(work, 1, b"2", False)
    if not first or second or _core.log_read(work, 1, 10) != b"1":
        return False, "an entry of the log was created twice"
    return True, "the first one to publish wins, and the next one is told"


def _flush(work: str) -> tuple[Optional[bool], str]:
    path = os.path.join(work, "file")
    start = time.monotonic()
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
    try:
        os.write(fd, bytes(1 << 20))
        os.fsync(fd)
    finally:
        os.close(fd)
    took = time.monotonic() - start
    fd = os.open(work, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
        names = "files and directories"
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
        names = "files; names of files only as the server pleases"
    finally:
        os.close(fd)
    return True, f"{names} ({took * 1000:.0f} ms for 1 MB); what the disk then does is its own"


def _lease(work: str) -> tuple[Optional[bool], str]:
    one, other = _core.Lease(work, 60_000), _core.Lease(work, 60_000)
    if one.try_acquire() is not None:
        return False, "a new lease cannot be had"
    holder = other.try_acquire()
    if holder is None or holder["pid"] != os.getpid():
        return False, "a lease that is held is given out again"
    one.release()
    if other.try_acquire() is not None:
        return False, "a lease that was released cannot be had"
    other.release()
    return True, "one holder at a time; the next one follows at once"


def _visibility(work: str) -> tuple[Optional[bool], str]:
    """Names and bytes that another process writes, on this host."""
    program = (
        "import os, sys, time\n"
        "for i in range(3):\n"
        "    while not os.path.exists(f'{sys.argv[1]}/ask{i}'): time.sleep(0.001)\n"
        "    with open(f'{sys.argv[1]}/.tmp{i}', 'w') as file: file.write('x' * 1000)\n"
        "    os.rename(f'{sys.argv[1]}/.tmp{i}', f'{sys.argv[1]}/answer{i}')\n"
    )
    with subprocess.Popen([sys.executable, "-S", "-c", program, work]) as other:
        try:
            longest = max(_ask(work, i) for i in range(3))
        finally:
            other.kill()
    if longest > _SLOW_S:
        return False, f"{longest:.1f} s until another process's file is seen: leases need less"
    return True, f"{longest * 1000:.0f} ms to another process of this host and back"


def _ask(work: str, i: int) -> float:
    start = time.monotonic()
    _create(os.path.join(work, f"ask{i}"))
    answer = os.path.join(work, f"answer{i}")
    while not os.path.exists(answer):
        if time.monotonic() - start > _PROCESS_S:
            raise TimeoutError(f"another process's file was not seen within {_PROCESS_S:g} s")
        time.sleep(0.001)
    with open(answer) as file:
        if len(file.read()) != 1000:
            raise OSError(errno.EIO, "another process's file is seen before its bytes", answer)
    return time.monotonic() - start


def _flock(work: str) -> tuple[Optional[bool], str]:
    path = os.path.join(work, "file")
    _create(path)
    fds = [os.open(path, os.O_RDWR) for _ in range(2)]
    try:
        fcntl.flock(fds[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fds[1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            return None, "flock excludes nobody (ydl does not use it)"
        return None, "flock excludes on this host (ydl does not use it)"
    except OSError as error:
        return None, f"flock: {error.strerror} (ydl does not use it)"
    finally:
        for fd in fds:
            os.close(fd)


def _map(work: str) -> tuple[Optional[bool], str]:
    import mmap

    path = os.path.join(work, "file")
    _create(path, b"x" * 10_000)
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            same = mapped[:] == b"x" * 10_000
    except (OSError, ValueError) as error:
        same, why = False, str(error)
    else:
        why = "a map shows other bytes"
    if same:
        return True, "files can be mapped"
    needed = _core.access_for(work) == "mmap"
    return (False if needed else None), f'{why}: use access="pread"'


_CHECKS = (
    ("exclusive create", _exclusive),
    ("publication", _link),
    ("manifest log", _log),
    ("flush", _flush),
    ("lease", _lease),
    ("visibility", _visibility),
    ("maps", _map),
    ("flock", _flock),
)
