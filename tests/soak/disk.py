"""What a disk may hold after the power went: a model of a file system, fed with recorded calls.

Only fsync makes anything last. What a file was given since its last fsync may be there, missing or
replaced by nonsense, every 128 bytes on their own; the names that a directory was given or
lost since its last fsync may be there or not. That is less than what ext4 and XFS promise, and
about what POSIX does.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Iterator
from typing import NamedTuple, Optional, Union

_PIECE = 128  # smaller than any sector, to be on the safe side
_KEPT, _DROPPED, _GARBLED = range(3)
_NOISE = bytes(random.Random(1).randrange(1, 256) for _ in range(_PIECE))


class Call(NamedTuple):
    name: str
    args: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join([self.name, *(arg[-60:] for arg in self.args if len(arg) < 500)])


def load(path: str) -> list[Call]:
    with open(path) as file:
        return [Call(name, tuple(args)) for name, *args in (line[:-1].split("\t") for line in file)]


class File:
    def __init__(self) -> None:
        self.lasting = b""
        self.pending: list[tuple[int, bytes]] = []  # pieces written since the last fsync

    def write(self, offset: int, content: bytes) -> None:
        end = offset + len(content)
        while offset < end:
            n = min(_PIECE - offset % _PIECE, end - offset)
            self.pending.append((offset, content[:n]))
            content = content[n:]
            offset += n

    def flush(self) -> None:
        self.lasting = self.content([_KEPT] * len(self.pending))
        self.pending = []

    def content(self, fates: list[int]) -> bytes:
        got = bytearray(self.lasting)
        for (offset, piece), fate in zip(self.pending, fates):
            end = offset + len(piece)
            if fate == _DROPPED:
                continue
            if len(got) < end:
                got.extend(bytes(end - len(got)))
            got[offset:end] = piece if fate == _KEPT else _NOISE[: len(piece)]
        return bytes(got)


class Directory:
    def __init__(self) -> None:
        self.lasting: dict[str, Thing] = {}
        self.pending: list[tuple[str, Optional[Thing]]] = []  # None: the name goes

    def names(self, kept: Optional[tuple[bool, ...]] = None) -> dict[str, Thing]:
        names = dict(self.lasting)
        for i, (name, thing) in enumerate(self.pending):
            if kept is not None and not kept[i]:
                continue
            if thing is None:
                names.pop(name, None)
            else:
                names[name] = thing
        return names

    def flush(self) -> None:
        self.lasting = self.names()
        self.pending = []


Thing = Union[File, Directory]
# Paths below the root, with a directory's as None.
Tree = dict[str, Optional[bytes]]


class Disk:
    """`root` exists and lasts."""

    def __init__(self, root: str) -> None:
        self._root = root
        self.top = Directory()
        self._inodes: dict[str, File] = {}

    def apply(self, call: Call) -> None:
        name, args = call
        if name == "mkdir":
            self._give(args[0], Directory())
        elif name == "create":
            self._inodes[args[0]] = file = File()
            self._give(args[1], file)
        elif name == "write":
            self._inodes[args[0]].write(int(args[1]), bytes.fromhex(args[2]))
        elif name == "fsync":
            self._find(args[1]).flush()
        elif name == "link":
            self._give(args[1], self._find(args[0]))
        elif name == "rename":
            thing = self._find(args[0])
            self._give(args[1], thing)
            self._give(args[0], None)
        elif name == "unlink":
            self._give(args[0], None)
        else:
            raise ValueError(f"a call that this model does not know: {call}")

    def _split(self, path: str) -> list[str]:
        relative = os.path.relpath(path, self._root)
        return [] if relative == "." else relative.split("/")

    def _find(self, path: str) -> Thing:
        thing: Thing = self.top
        for part in self._split(path):
            assert isinstance(thing, Directory)
            thing = thing.names()[part]
        return thing

    def _give(self, path: str, thing: Optional[Thing]) -> None:
        *parents, name = self._split(path)
        directory = self._find(os.path.join(self._root, *parents))
        assert isinstance(directory, Directory)
        directory.pending.append((name, thing))

    # ---- after the power went ----

    def crash_states(self, most: int, draw: random.Random) -> Iterator[Tree]:
        """All of them, or `most` drawn ones beside the extreme ones."""
        things = list(self._things(self.top))
        fates: list[list[int]] = []
        for thing in things:
            kinds = [_KEPT, _DROPPED, _GARBLED] if isinstance(thing, File) else [_KEPT, _DROPPED]
            fates.extend([kinds] * len(thing.pending))
        if not fates:
            yield self._tree(things, ())
            return
        total = 1
        for kinds in fates:
            total *= len(kinds)
        if total <= most:
            for chosen in itertools.product(*fates):
                yield self._tree(things, chosen)
            return
        for extreme in range(3):
            yield self._tree(things, [min(extreme, len(kinds) - 1) for kinds in fates])
        for i, kinds in enumerate(fates):  # one thing differs from the rest
            for rest in (_KEPT, _DROPPED):
                for fate in kinds:
                    chosen_list = [rest] * len(fates)
                    chosen_list[i] = fate
                    yield self._tree(things, chosen_list)
        for _ in range(most):
            yield self._tree(things, [draw.choice(kinds) for kinds in fates])

    def _things(self, directory: Directory) -> Iterator[Thing]:
        """Whatever a directory holds or may hold again, each once."""
        seen: set[int] = set()
        stack: list[Thing] = [directory]
        while stack:
            thing = stack.pop()
            if id(thing) in seen:
                continue
            seen.add(id(thing))
            yield thing
            if isinstance(thing, Directory):
                stack.extend(thing.lasting.values())
                stack.extend(other for _, other in thing.pending if other is not None)

    def _tree(self, things: list[Thing], chosen: Union[list[int], tuple[int, ...]]) -> Tree:
        fate_of: dict[int, list[int]] = {}
        at = 0
        for thing in things:
            fate_of[id(thing)] = list(chosen[at : at + len(thing.pending)])
            at += len(thing.pending)
        tree: Tree = {}

        def fill(directory: Directory, path: str) -> None:
            kept = tuple(fate == _KEPT for fate in fate_of[id(directory)])
            for name, thing in directory.names(kept).items():
                where = f"{path}/{name}"
                if isinstance(thing, Directory):
                    tree[where] = None
                    fill(thing, where)
                else:
                    tree[where] = thing.content(fate_of[id(thing)])

        fill(self.top, "")
        return tree


def write_tree(tree: Tree, directory: str) -> None:
    """Makes `directory` hold exactly that."""
    shutil.rmtree(directory, ignore_errors=True)
    os.mkdir(directory)
    for path, content in sorted(tree.items()):
        if content is None:
            os.mkdir(directory + path)
        else:
            with open(directory + path, "wb") as file:
                file.write(content)
