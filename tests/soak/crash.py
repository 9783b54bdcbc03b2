"""Everything that a power loss may leave of a build, a replacement and a withdrawal, opened by a
reader.

    python -m soak.crash [--states 20000] [--seed N]

The calls of real builds are recorded (recorder.c) and played back into a model of a disk (disk.py).
After each call every state that the disk may then be in is made in a directory, or as many as were
asked for, and read. Once publish has returned, what it published must be whole; before, it must be
whole or not there. Some states are given to `cacheable`, too, which must come to the right records
without anybody cleaning up.

To see that the check can fail, each flush is then left out of the recording, one place at a time:
where that place matters, a bad state must be found.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from typing import NamedTuple, Optional

import numpy as np
from soak.disk import Call, Disk, load, write_tree
from soak.forked import Child, Died, arm, start_with_recorder
from support import pairs, storage_in

from ydl.errors import NotCachedError, YdlError
from ydl.store import LocalStore

_PART_BYTES = 1300
# Which records may be there: as many as nothing else has.
FIRST, SECOND = 41, 67
_RECOVER_EVERY = 60


def records_of(ref):
    found = [(int(number), np.asarray(vector).tolist()) for number, vector in ref.stream()]
    assert found == [(i, [float(i)] * 3) for i in range(len(found))]
    return len(found)


def use(root, n):
    storage = storage_in(root, part_bytes=_PART_BYTES)
    return records_of(storage.cacheable("a/d", "1")(lambda: pairs(n))())


def replace(root, n):
    storage_in(root, part_bytes=_PART_BYTES).submit(pairs(n), "a/d", "1")


def withdraw(root):
    """As whoever finds the dataset damaged."""
    store = LocalStore(root, "a/d", "1")
    assert store.withdraw(store.latest_number(), "a test")


def look(root) -> Optional[int]:
    """How many records a reader gets; None where nothing is stored. Raises where it is damaged."""
    try:
        return records_of(storage_in(root).fetch("a/d", "1"))
    except NotCachedError:
        return None


# ---- recording ----


class Step(NamedTuple):
    """What was done up to `end`, and what may be read while it is done and after."""

    end: int  # calls
    before: frozenset[Optional[int]]  # what a reader may find until then
    # From the end on, until the next step begins, it is `after`.
    after: frozenset[Optional[int]]


class Recording(NamedTuple):
    name: str
    calls: list[Call]
    steps: list[Step]

    def allowed(self, done: int) -> frozenset[Optional[int]]:
        """When so many calls were made."""
        for step in self.steps:
            if done < step.end:
                return step.before
        return self.steps[-1].after


def record(name: str, directory: str, actions) -> Recording:
    """actions: (function(root), before, after, kill_at), each in a process of its own."""
    root = os.path.join(directory, name)
    notes = os.path.join(directory, f"{name}.txt")
    os.mkdir(root)
    store = os.path.join(root, "store")
    steps = []
    for action, before, after, kill_at in actions:

        def work(child, action=action, kill_at=kill_at):
            arm(root, notes, kill_at=kill_at)
            action(store)

        try:
            Child(work).result()
        except Died:
            assert kill_at
        calls = load(notes)
        if steps and len(calls) == steps[-1].end:
            after = steps[-1].after  # it has published nothing, and promises nothing
        steps.append(Step(len(calls), frozenset(before), frozenset(after)))
    relative = [Call(c.name, tuple(_relative(arg, root) for arg in c.args)) for c in calls]
    shutil.rmtree(root)
    return Recording(name, relative, steps)


def _relative(arg: str, root: str) -> str:
    return "/root" + arg[len(root) :] if arg.startswith(root) else arg


def record_all(directory: str, kills: int) -> Iterator[Recording]:
    yield record(
        "build",
        directory,
        [
            (lambda root: use(root, FIRST), {None, FIRST}, {FIRST}, 0),
            (lambda root: use(root, SECOND), {FIRST}, {FIRST}, 0),  # a hit
        ],
    )
    yield record(
        "replacement",
        directory,
        [
            (lambda root: replace(root, FIRST), {None, FIRST}, {FIRST}, 0),
            (lambda root: replace(root, SECOND), {FIRST, SECOND}, {SECOND}, 0),
        ],
    )
    yield record(
        "withdrawal",
        directory,
        [
            (lambda root: use(root, FIRST), {None, FIRST}, {FIRST}, 0),
            (withdraw, {FIRST, None}, {None}, 0),
            (lambda root: use(root, SECOND), {None, SECOND}, {SECOND}, 0),
        ],
    )
    # Somebody is killed first, whose flushes then never come.
    for kill_at in range(1, kills + 1):
        yield record(
            f"killed-{kill_at}",
            directory,
            [
                (lambda root: use(root, FIRST), {None, FIRST}, {None, FIRST}, kill_at),
                (lambda root: use(root, FIRST), {None, FIRST}, {FIRST}, 0),
            ],
        )


# ---- trying ----


class Trial:
    def __init__(self, directory: str, seed: int) -> None:
        self._directory = directory
        self._draw = random.Random(seed)
        self._seen: set[int] = set()
        self.states = 0
        self.recovered = 0
        self.problems: list[str] = []

    def run(self, recording: Recording, most_per_call: int, first_call: int = 0) -> None:
        disk = Disk("/root")
        for done, call in enumerate(recording.calls, 1):
            disk.apply(call)
            if done < first_call:
                continue
            allowed = recording.allowed(done)
            for tree in disk.crash_states(most_per_call, self._draw):
                self._try(tree, allowed, f"{recording.name}, after call {done} ({call})")

    def _try(self, tree, allowed, what: str) -> None:
        key = hash((tuple(sorted(tree.items(), key=lambda item: item[0])), allowed))
        if key in self._seen:
            return
        self._seen.add(key)
        self.states += 1
        root = os.path.join(self._directory, "state")
        write_tree(tree, root)
        store = os.path.join(root, "store")
        try:
            found = look(store)
        except (YdlError, AssertionError) as error:
            self.problems.append(f"{what}: {type(error).__name__}: {error}")
            return
        if found not in allowed:
            self.problems.append(f"{what}: {found} records instead of {set(allowed)}")
        elif self.states % _RECOVER_EVERY == 0:
            self._recover(store, found, what)

    def _recover(self, store: str, found: Optional[int], what: str) -> None:
        try:
            n = use(store, SECOND)
        except Exception as error:
            self.problems.append(f"{what}: cacheable: {type(error).__name__}: {error}")
            return
        self.recovered += 1
        if n != (SECOND if found is None else found):
            self.problems.append(f"{what}: cacheable gives {n} records")


# ---- leaving flushes out ----

# What is flushed, by what matters about it. The lease is advisory: without its flushes nothing is
# lost but time.
_PLACES = {
    "parts": r"/builds/[^/]+/[^/]+\.ydl",
    "names of parts": r"/builds/[0-9a-f]{32}",
    "names of builds": r"/builds",
    "entries of the log": r"/manifests/.*",
    "names of entries": r"/manifests",
    "names in the dataset's directory": r"/[^/]+\.ydl",
    "names above": "",
}


def place_of(call: Call) -> Optional[str]:
    if call.name != "fsync" or "/lease" in call.args[1]:
        return None
    path = call.args[1]
    inside = re.fullmatch(r"/root.*/1\.ydl(/.*)?", path)
    if inside is None:
        return "names above"
    rest = inside[1] or "/1.ydl"
    for place, pattern in _PLACES.items():
        if pattern and re.fullmatch(pattern, rest):
            return place
    raise ValueError(f"a flush of an unknown place: {path}")


def without(recording: Recording, place: str) -> Recording:
    """As if no file or directory of this kind were ever flushed."""
    calls = [call for call in recording.calls if place_of(call) != place]
    kept_before = [
        sum(place_of(call) != place for call in recording.calls[: step.end])
        for step in recording.steps
    ]
    steps = [step._replace(end=end) for step, end in zip(recording.steps, kept_before)]
    return Recording(f"{recording.name} without flushing {place}", calls, steps)


def find_mutants(recording: Recording, directory: str, seed: int) -> list[str]:
    """The places whose flushes can be left out without a bad state."""
    missed = []
    for place in _PLACES:
        mutant = without(recording, place)
        if len(mutant.calls) == len(recording.calls):
            missed.append(f"{place} (never flushed)")
            continue
        trial = Trial(directory, seed)
        trial.run(mutant, 40, first_call=recording.steps[0].end // 2)
        said = trial.problems[0][:150] if trial.problems else "NOTHING"
        print(f"    {place}: {len(trial.problems)} bad of {trial.states}, such as {said}")
        if not trial.problems:
            missed.append(place)
    return missed


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--states", type=int, default=20000, help="at least so many")
    parser.add_argument("--kills", type=int, default=45, help="recordings in which one is killed")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--directory", default="/dev/shm" if os.path.isdir("/dev/shm") else None)
    options = parser.parse_args(argv)
    start_with_recorder("soak.crash")
    os.environ["YDL_LOG"] = "off"
    print(f"seed {options.seed}")
    work = tempfile.mkdtemp(prefix="ydl-crash-", dir=options.directory)

    def try_all():
        recordings = list(record_all(work, options.kills))
        trial = Trial(work, options.seed)
        most = 10
        while trial.states < options.states and most < 10**6:
            most *= 4
            for recording in recordings[:3]:
                trial.run(recording, most)
                if trial.states >= options.states:
                    break
        for recording in recordings[3:]:
            trial.run(recording, 8)
        print(
            f"{sum(len(r.calls) for r in recordings)} calls, {trial.states} states, "
            f"{trial.recovered} also given to cacheable: {len(trial.problems)} bad"
        )
        for problem in trial.problems[:20]:
            print(f"    {problem}")
        print("with one flush left out:")
        missed = find_mutants(recordings[0], work, options.seed)
        if missed:
            print(f"not noticed: {', '.join(missed)}")
        return bool(trial.problems or missed)

    try:
        child = Child(lambda child: try_all())
        child.hang_s = 7200.0
        failed = child.result()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
