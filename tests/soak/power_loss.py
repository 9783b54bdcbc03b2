"""Real file systems that lose power after each step of a build, a replacement and a withdrawal.

    python -m soak.power_loss [--every 1] [--file-systems ext4,xfs] [--directory DIR]

ext4 and XFS in loop images, as root. After the n-th call that changes a file, for every n, the file
system is shut down without writing out its journal (FS_IOC_SHUTDOWN, NOLOGFLUSH), mounted again and
read. What opens must be right; what publish had returned for must be there. Then `cacheable` must
come to the right records without anybody cleaning up.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections import Counter

from soak.crash import FIRST, SECOND, look, replace, use, withdraw
from soak.forked import Child, Died, arm, run, start_with_recorder

from ydl.errors import YdlError
from ydl.store import LocalStore

_FS_IOC_SHUTDOWN = 0x8004587D
_NOLOGFLUSH = 2
_SHUT_DOWN = 98  # exit status of recorder.c
_MIB = {"ext4": 48, "xfs": 320}  # xfsprogs refuses less than 300
# (name, action, what is there before, what is there after)
_ACTIONS = [
    ("build", lambda root: use(root, FIRST), None, FIRST),
    ("replacement", lambda root: replace(root, SECOND), FIRST, SECOND),
    ("withdrawal", withdraw, FIRST, None),
]


class Volume:
    def __init__(self, kind: str, directory: str) -> None:
        self.kind = kind
        self.image = os.path.join(directory, f"{kind}.img")
        self.mount_point = os.path.join(directory, kind)
        os.mkdir(self.mount_point)
        with open(self.image, "wb") as file:
            file.truncate(_MIB[kind] << 20)
        subprocess.run([f"mkfs.{kind}", "-q", self.image], check=True, capture_output=True)

    def mount(self) -> None:
        subprocess.run(
            ["mount", "-o", "loop", "-t", self.kind, self.image, self.mount_point],
            check=True,
            capture_output=True,
            text=True,
        )

    def unmount(self) -> None:
        subprocess.run(["umount", self.mount_point], check=True, capture_output=True, text=True)

    def shut_down(self) -> None:
        fd = os.open(self.mount_point, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, _FS_IOC_SHUTDOWN, struct.pack("I", _NOLOGFLUSH))
        finally:
            os.close(fd)

    def lose_power(self) -> None:
        """After a shutdown."""
        self.unmount()
        self.mount()


def why_not(kind: str, directory: str) -> str:
    """Why this cannot be done here; "" where it can."""
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which(f"mkfs.{kind}") is None:
        return f"mkfs.{kind} is not here"
    volume = Volume(kind, directory)
    try:
        volume.mount()
    except subprocess.CalledProcessError as error:
        return f"cannot mount a loop image: {error.stderr}"
    else:
        try:
            volume.shut_down()
        except OSError as error:
            return f"cannot shut it down: {error}"
        finally:
            volume.unmount()
    finally:
        os.remove(volume.image)
        os.rmdir(volume.mount_point)
    return ""


def act(child: Child, root: str, action, store: str, shutdown_at: int, no_flushes: bool) -> None:
    """Tells when publish has returned."""
    publish = LocalStore.publish

    def told(self, entry):
        is_published = publish(self, entry)
        child.tell("published")
        return is_published

    LocalStore.publish = told
    arm(root, shutdown_at=shutdown_at, no_flushes=no_flushes)
    action(store)


class Trial:
    def __init__(self, volume: Volume, no_flushes: bool = False) -> None:
        self._volume = volume
        self._no_flushes = no_flushes
        self.tally: Counter[str] = Counter()
        self.problems: list[str] = []

    def run(self, every: int) -> None:
        for name, action, before, after in _ACTIONS:
            n = 1
            while self._lose_power_at(n, name, action, before, after):
                n += every
            self.tally[f"steps of the {name}"] = n

    def _lose_power_at(self, n: int, name: str, action, before, after) -> bool:
        """False where the action has fewer steps; the power then goes right behind it."""
        volume = self._volume
        # A directory of its own for each: nothing of it was flushed by another one.
        store = os.path.join(volume.mount_point, f"{name}{n}", "store")
        os.mkdir(os.path.dirname(store))
        os.sync()
        if before is not None:
            run(lambda: replace(store, before))
        child = Child(
            lambda child: act(child, volume.mount_point, action, store, n, self._no_flushes)
        )
        is_published, is_over = False, False
        try:
            while child.hear() == "published":
                is_published = True
            is_over = True
            child.wait()
            volume.shut_down()
        except Died as died:
            if died.code != _SHUT_DOWN:
                raise
        volume.lose_power()
        what = f"{volume.kind}, {name}, after call {n}" + (", published" * is_published)
        try:
            found = run(lambda: look_safely(store))
            allowed = {after} if is_published else {before, after}
            if found not in allowed:
                self.problems.append(f"{what}: {found} instead of {allowed}")
            self.tally["complete" if found is not None else "absent"] += 1
            records = run(lambda: use(store, SECOND))
            if records != (SECOND if found is None else found):
                self.problems.append(f"{what}: cacheable gives {records}")
        except Exception as error:
            self.problems.append(f"{what}: {error}")
        self.tally["published"] += is_published
        shutil.rmtree(os.path.dirname(store), ignore_errors=True)
        return not is_over


def look_safely(store):
    if not os.path.isdir(store):
        return None
    try:
        return look(store)
    except (YdlError, AssertionError) as error:
        return f"{type(error).__name__}: {error}"


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="only every so-manieth step")
    parser.add_argument("--file-systems", default="ext4,xfs")
    parser.add_argument("--directory", default=tempfile.gettempdir())
    options = parser.parse_args(argv)
    start_with_recorder("soak.power_loss")
    os.environ["YDL_LOG"] = "off"
    failed = False
    work = tempfile.mkdtemp(prefix="ydl-power-", dir=options.directory)
    try:
        for kind in options.file_systems.split(","):
            reason = why_not(kind, work)
            if reason:
                print(f"{kind}: skipped, {reason.strip()}")
                continue
            volume = Volume(kind, work)
            volume.mount()
            try:
                trial = Trial(volume)
                trial.run(options.every)
                # This must be noticed, or the shutdown loses nothing and the trial is none.
                mutant = Trial(volume, no_flushes=True)
                mutant.run(max(options.every, 5))
            finally:
                volume.unmount()
                os.remove(volume.image)
            print(f"{kind}: " + ", ".join(f"{n} {name}" for name, n in trial.tally.items()))
            print(f"    {len(trial.problems)} bad")
            for problem in trial.problems[:20]:
                print(f"    {problem[:500]}")
            print(f"    without any flush: {len(mutant.problems)} bad")
            failed |= bool(trial.problems) or not mutant.problems
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
