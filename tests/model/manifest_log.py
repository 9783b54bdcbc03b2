"""An explicit-state model of the manifest log: who may do what when, and what then holds.

The processes are builders (`cacheable` and `submit`), a healer and a garbage collector; each is a
short program of steps, and one step is one system call that others or a crash can see. A search
visits every state that any interleaving reaches. In between any process may be killed, a reply of
link() may get lost, a flush may fail, one stored build may rot, and a grace time may pass. Where
the power goes is no step: in every state it is asked what would be left.

There is no lease here, since safety must not depend on it. So "a builder that sleeps while others
take over" is simply a builder whose next step comes late, which is among the interleavings.

What it stands for: ydl/caching.py, ydl/store.py, ydl/healing.py and ydl/collect.py (the order of
the steps), csrc/store/create.c (temporary name, fsync, link, fsync of the directory), DESIGN.md
section 5.

What it assumes: the kernel has flushed everything once a grace time (7 days) is over; and no
builder sleeps that long between the creation of its build and the publication. `outsleeps_grace`
drops the second: for a moment readers may then miss the parts of the last entry, until the builder
or the collector, whoever sees the other one, has put it right.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Optional, Union

TOMBSTONE = -1

# Each is a way to get the protocol wrong. The tests show that the model notices.
MUTANTS = frozenset(
    [
        "links an unflushed entry",
        "publishes unflushed parts",
        "publishes parts with unflushed names",
        "returns before the directory is flushed",
        "renames instead of linking",
        "overwrites the number",
        "believes the reply of link",
        "removes its parts after any failure",
        "publishes without a look at its parts",
        "submit overwrites when it was late",
        "looks, then notes the number",
        "collects without grace",
        "collects without looking again",
        "collects what it has not hidden",
        "heals by deleting first",
        "heals whatever is current",
    ]
)


class Entry(NamedTuple):
    content: int  # the builder whose parts it names, or TOMBSTONE
    flushed: bool  # its bytes
    named: bool  # its directory was flushed since it is there


class Parts(NamedTuple):
    """Of one build, all together."""

    flushed: bool
    named: bool
    old: bool  # unfinished or replaced for longer than the grace time
    rotten: bool
    hidden: bool = False  # renamed by the collector


class Builder(NamedTuple):
    kind: str  # "cacheable" or "submit"
    step: str = "look"
    number: int = 0  # that it will publish
    told: bool = False  # publish() returned true
    last_step: str = ""  # of one that was killed


class Healer(NamedTuple):
    step: str = "look"
    number: int = 0  # of the entry that it read from
    build: int = TOMBSTONE
    last_step: str = ""


class Collector(NamedTuple):
    step: str = "read"
    kept: int = TOMBSTONE  # what the current entry names, as it knows
    garbage: tuple[int, ...] = ()
    last_step: str = ""


Process = Union[Builder, Healer, Collector]


class State(NamedTuple):
    log: tuple[Entry, ...]  # number 1 is log[0]
    builds: tuple[Optional[Parts], ...]  # by builder; None: not there
    processes: tuple[Process, ...]  # builders first
    rots_left: int
    graces_left: int
    wrong: str = ""  # what a step did that none may do


@dataclass(frozen=True)
class Model:
    builders: tuple[str, ...]
    healer: bool = True
    collector: bool = True
    mutant: str = ""
    outsleeps_grace: bool = False
    # An entry that was there, with its parts, before the processes began; builder 0 made it.
    published_before: bool = False

    def start(self) -> State:
        processes: list[Process] = [Builder(kind) for kind in self.builders]
        log: tuple[Entry, ...] = ()
        builds: list[Optional[Parts]] = [None] * len(processes)
        if self.published_before:
            processes[0] = Builder(self.builders[0], "done", 1, told=True)
            builds[0] = Parts(True, True, False, False)
            log = (Entry(0, True, True),)
        if self.healer:
            processes.append(Healer())
        if self.collector:
            processes.append(Collector())
        return State(log, tuple(builds), tuple(processes), 1, 1)

    # ---- what may happen next ----

    def next_states(self, state: State) -> Iterator[tuple[str, State]]:
        for i, process in enumerate(state.processes):
            if process.step in ("done", "dead"):
                continue
            name = f"{type(process).__name__} {i}"
            killed = process._replace(step="dead", last_step=process.step)
            yield f"{name} is killed", _with(state, i, killed)
            if isinstance(process, Builder):
                steps = self._builder(state, i, process)
            elif isinstance(process, Healer):
                steps = self._healer(state, i, process)
            else:
                steps = self._collector(state, i, process)
            for what, after in steps:
                yield f"{name} {what}", after
        if state.rots_left and self.healer:
            # One is enough, and by symmetry the first builder's.
            parts = state.builds[0]
            if parts is not None and not parts.rotten and _visible(state, 0):
                after = _with_parts(state, 0, parts._replace(rotten=True))
                yield "build 0 rots", after._replace(rots_left=state.rots_left - 1)
        if state.graces_left and self.collector and self._may_time_pass(state):
            current = state.log[-1].content if state.log else TOMBSTONE
            builds = tuple(
                parts and parts._replace(old=i != current) for i, parts in enumerate(state.builds)
            )
            log = tuple(entry._replace(flushed=True, named=True) for entry in state.log)
            yield (
                "a grace time passes",
                state._replace(log=log, builds=builds, graces_left=state.graces_left - 1),
            )

    def _may_time_pass(self, state: State) -> bool:
        return self.outsleeps_grace or not any(
            isinstance(p, Builder) and p.step not in ("look", "note", "done", "dead")
            for p in state.processes
        )

    def _builder(self, state: State, me: int, p: Builder) -> Iterator[tuple[str, State]]:
        mutant = self.mutant
        latest = len(state.log)
        parts = state.builds[me]

        def go(step: str, **changes: object) -> State:
            return _with(state, me, p._replace(step=step, **changes))

        if p.step == "look":
            if p.kind == "cacheable" and latest and state.log[-1].content != TOMBSTONE:
                yield "finds a dataset", go("done")
            elif mutant == "looks, then notes the number":
                yield "finds none", go("note")
            else:
                yield f"finds none in entry {latest}", go("write", number=latest + 1)
        elif p.step == "note":
            yield f"notes {latest}", go("write", number=latest + 1)
        elif p.step == "write":
            fresh = Parts(False, False, False, False)
            yield "writes its parts", _with_parts(go("flush parts"), me, fresh)
        elif p.step == "flush parts":
            if parts is None or parts.hidden:
                yield "fails: its parts are gone", go("done")
                return
            flushed = mutant != "publishes unflushed parts"
            yield (
                "flushes its parts",
                _with_parts(go("flush names"), me, parts._replace(flushed=flushed)),
            )
            yield "fails to flush its parts", _with_parts(go("done"), me, None)
        elif p.step == "flush names":
            if parts is None or parts.hidden:
                yield "fails: its parts are gone", go("done")
                return
            named = mutant != "publishes parts with unflushed names"
            yield "flushes their names", _with_parts(go("verify"), me, parts._replace(named=named))
            yield "fails to flush their names", _with_parts(go("done"), me, None)
        elif p.step == "verify":
            step = "done" if parts is None or parts.hidden else "link"
            yield "verifies", go(step)
        elif p.step == "link":
            yield from self._link(state, me, p)
        elif p.step == "flush log":
            log = tuple(entry._replace(named=True) for entry in state.log)
            if mutant == "returns before the directory is flushed":
                log = state.log
            yield "flushes the log", go("check")._replace(log=log)
            yield "fails to flush the log", go("failed")
        elif p.step == "check":
            if (
                parts is None or parts.hidden
            ) and mutant != "publishes without a look at its parts":
                yield "misses its parts", go("withdraw")
            else:
                yield "sees its parts", go("done", told=True)
        elif p.step == "withdraw":
            if latest > p.number:
                yield "is replaced already", go("done")
            else:
                after = go("flush tombstone")
                stone = Entry(TOMBSTONE, True, False)
                yield (
                    "links a tombstone",
                    after._replace(log=(*state.log, stone)),
                )
        elif p.step == "flush tombstone":
            log = tuple(entry._replace(named=True) for entry in state.log)
            yield "flushes the log", go("done")._replace(log=log)
        elif p.step == "failed":
            published = latest >= p.number and state.log[p.number - 1].content == me
            if mutant == "removes its parts after any failure":
                published = False
            if published:
                yield "leaves its parts, which are published", go("done")
            else:
                yield "removes its parts", _with_parts(go("done"), me, None)
        elif p.step == "late":
            if p.kind == "submit":
                yield f"tries {latest + 1}", go("link", number=latest + 1)
            else:
                yield "removes its parts", _with_parts(go("adopt"), me, None)
        elif p.step == "adopt":
            yield "adopts", go("done")

    def _link(self, state: State, me: int, p: Builder) -> Iterator[tuple[str, State]]:
        mutant = self.mutant
        entry = Entry(me, mutant != "links an unflushed entry", False)
        taken = len(state.log) >= p.number
        replaces = mutant in ("renames instead of linking", "overwrites the number") or (
            mutant == "submit overwrites when it was late" and p.kind == "submit"
        )
        if not taken or replaces:
            after = _with(state, me, p._replace(step="flush log"))
            if mutant == "overwrites the number":
                # Written in place: the bytes come after the name.
                entry = entry._replace(flushed=False)
            after = _commit(after, p.number, entry, heals=False, kind=p.kind)
            yield f"links entry {p.number}", after
            # The call was made, and its error is a lie: st_nlink says so.
            if mutant == "believes the reply of link":
                yield "loses the reply", _with(after, me, p._replace(step="late"))
            else:
                yield "loses the reply", after
            yield "fails to link", _with(state, me, p._replace(step="failed"))
        else:
            yield f"finds entry {p.number} taken", _with(state, me, p._replace(step="late"))

    def _healer(self, state: State, me: int, p: Healer) -> Iterator[tuple[str, State]]:
        latest = len(state.log)
        if p.step == "look":
            if latest and state.log[-1].content != TOMBSTONE:
                build = state.log[-1].content
                yield f"reads entry {latest}", _with(state, me, Healer("read", latest, build))
        elif p.step == "read":
            parts = state.builds[p.build]
            if parts is not None and parts.rotten:
                yield "finds damage", _with(state, me, p._replace(step="bury"))
        elif p.step == "bury":
            if self.mutant == "heals by deleting first" and state.builds[p.build] is not None:
                yield "deletes", _with_parts(state, p.build, None)
                return
            number = p.number + 1
            if self.mutant == "heals whatever is current":
                number = latest + 1
            if latest >= number:
                yield "comes late", _with(state, me, p._replace(step="done"))
                return
            after = _with(state, me, p._replace(step="flush log"))
            yield (
                "links a tombstone",
                _commit(after, number, Entry(TOMBSTONE, True, False), heals=True),
            )
        elif p.step == "flush log":
            log = tuple(entry._replace(named=True) for entry in state.log)
            yield "flushes the log", _with(state, me, p._replace(step="done"))._replace(log=log)

    def _collector(self, state: State, me: int, p: Collector) -> Iterator[tuple[str, State]]:
        mutant = self.mutant
        current = state.log[-1].content if state.log else TOMBSTONE

        def go(step: str, **changes: object) -> State:
            return _with(state, me, p._replace(step=step, **changes))

        if p.step == "read":
            yield "reads the log", go("list", kept=current)
        elif p.step == "list":
            garbage = tuple(
                i
                for i, parts in enumerate(state.builds)
                if parts is not None
                and i != p.kept
                and (parts.old or mutant == "collects without grace")
            )
            yield "lists builds", go("hide" if garbage else "done", garbage=garbage)
        elif p.step == "hide":
            build = p.garbage[0]
            parts = state.builds[build]
            step = "remove" if mutant == "collects without looking again" else "look again"
            if parts is None:
                yield from self._collect_next(state, me, p)
            elif mutant == "collects what it has not hidden":
                yield "goes on", go(step)
            else:
                yield (
                    f"hides build {build}",
                    _with_parts(go(step), build, parts._replace(hidden=True)),
                )
        elif p.step == "look again":
            step = "put back" if current == p.garbage[0] else "remove"
            # Flushed, or what it goes by might be gone tomorrow.
            log = tuple(entry._replace(named=True) for entry in state.log)
            yield "flushes the log and looks again", go(step)._replace(log=log)
        elif p.step == "put back":
            build = p.garbage[0]
            parts = state.builds[build]
            after = state
            if parts is not None:
                after = _with_parts(state, build, parts._replace(hidden=False))
            yield from self._collect_next(after, me, p)
        elif p.step == "remove":
            yield from self._collect_next(_with_parts(state, p.garbage[0], None), me, p)

    def _collect_next(self, state: State, me: int, p: Collector) -> Iterator[tuple[str, State]]:
        rest = p.garbage[1:]
        after = p._replace(step="hide" if rest else "done", garbage=rest)
        yield f"is done with build {p.garbage[0]} ({p.step})", _with(state, me, after)

    # ---- what must hold ----

    def fault(self, state: State) -> str:
        """What is wrong with a state; "" for nothing."""
        if state.wrong:
            return state.wrong
        if state.log and state.log[-1].content != TOMBSTONE:
            parts = state.builds[state.log[-1].content]
            if (parts is None or parts.hidden) and not self._is_being_put_right(state):
                return f"entry {len(state.log)} is current and its parts are not there"
        for i, process in enumerate(state.processes):
            if isinstance(process, Builder) and process.told:
                if len(state.log) < process.number or state.log[process.number - 1].content != i:
                    return f"builder {i} was told that it had published, and it is lost"
        return self._fault_without_power(state)

    def _is_being_put_right(self, state: State) -> bool:
        """By the builder of the last entry or by the collector, one of which is not done yet; who
        is killed at that leaves a damaged dataset, which the next reader withdraws."""
        if not self.outsleeps_grace:
            return False
        for process in state.processes:
            step = process.last_step or process.step
            if isinstance(process, Builder) and process.number == len(state.log):
                if step in ("flush log", "failed", "check", "withdraw") or (
                    step == "done" and not process.told
                ):
                    return True
            if isinstance(process, Collector) and step in ("look again", "put back"):
                return True
        return False

    def _fault_without_power(self, state: State) -> str:
        """What is not flushed may be there, gone, or full of nonsense."""
        for number, entry in enumerate(state.log, 1):
            if not entry.flushed:
                return f"a power loss would leave entry {number} with nonsense inside"
            if entry.content == TOMBSTONE:
                continue
            parts = state.builds[entry.content]
            superseded = number < len(state.log)
            if parts is None or parts.hidden:
                builder = state.processes[entry.content]
                assert isinstance(builder, Builder)
                is_rotten = entry.content == 0 and not state.rots_left
                is_only_hidden = parts is not None
                # The next collector puts back what an entry names; or else nothing is lost.
                if self.outsleeps_grace and (is_rotten or is_only_hidden or not builder.told):
                    continue
                if superseded and not any(later.named for later in state.log[number:]):
                    # The later entries may be gone, which makes this one current again.
                    return f"a power loss would revive entry {number}, whose parts were removed"
                continue
            if not parts.flushed or not parts.named:
                return f"a power loss would leave entry {number} without its parts"
        for i, process in enumerate(state.processes):
            if isinstance(process, Builder) and process.told:
                if not any(entry.named for entry in state.log[process.number - 1 :]):
                    return f"a power loss would lose what builder {i} was told it had published"
        return ""


class Found(NamedTuple):
    states: int
    fault: str
    trace: list[str]  # how to get there


def explore(model: Model, most_states: int = 10**8) -> Found:
    """Breadth first, so that the trace of a fault is as short as can be."""
    start = model.start()
    came_from: dict[State, Optional[tuple[State, str]]] = {start: None}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        fault = model.fault(state)
        if fault:
            return Found(len(came_from), fault, _trace(came_from, state))
        for what, after in model.next_states(state):
            if after not in came_from:
                came_from[after] = (state, what)
                queue.append(after)
        if len(came_from) > most_states:
            raise RuntimeError(f"more than {most_states} states")
    return Found(len(came_from), "", [])


def mutate(model: Model, mutant: str) -> Model:
    if mutant not in MUTANTS:
        raise ValueError(f"no such mutant: {mutant}")
    return replace(model, mutant=mutant)


def _trace(came_from: dict[State, Optional[tuple[State, str]]], state: State) -> list[str]:
    trace: list[str] = []
    step = came_from[state]
    while step is not None:
        trace.append(step[1])
        step = came_from[step[0]]
    return trace[::-1]


def _visible(state: State, build: int) -> bool:
    return any(entry.content == build for entry in state.log)


def _commit(state: State, number: int, entry: Entry, heals: bool, kind: str = "") -> State:
    """Gives an entry its number, and notes what no step may do."""
    wrong = ""
    log = list(state.log)
    before = log[number - 2] if number >= 2 else None
    if len(log) >= number:
        if log[number - 1].content != entry.content:
            wrong = f"entry {number} was there and got other bytes"
        log[number - 1] = entry
    else:
        log.append(entry)
    if before is not None and before.content != TOMBSTONE and not wrong:
        parts = state.builds[before.content]
        if heals and parts is not None and not parts.rotten:
            wrong = f"entry {number} buries a build that is sound"
        if kind == "cacheable":
            wrong = f"entry {number} replaces a dataset that should have been adopted"
    return state._replace(log=tuple(log), wrong=wrong)


def _with(state: State, i: int, process: Process) -> State:
    processes = state.processes
    return state._replace(processes=(*processes[:i], process, *processes[i + 1 :]))


def _with_parts(state: State, i: int, parts: Optional[Parts]) -> State:
    builds = state.builds
    return state._replace(builds=(*builds[:i], parts, *builds[i + 1 :]))
