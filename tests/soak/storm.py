"""Many processes that need the same datasets, and die or stop at random.

    python -m soak.storm [--processes 16] [--keys 20] [--ttl-s 1] [--seed N] [--clocks]

Each process asks for every key, in an order of its own, builds what is missing and digests what it
gets. Meanwhile they are killed (and others started in their place) or stopped for up to three times
the lease's time to live. In the end every key must have one published build, everybody must have
seen the same bytes, and the source of a key must have been read at most once and once more for each
kill and stall of somebody who read it.

--clocks: half of the processes live an hour ago, half in an hour (wall_clock.c).

Then the time it takes to take over is measured: from a holder that was killed, that is stopped, and
that lives (and is killed later) in another pid namespace, where nobody can know that it is dead.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict

import numpy as np
from support import numbers, storage_in

_RECORDS = 300
_BATCH = 50
_HANG_S = 300.0


class NotingSource:
    """Records that depend on the key alone; notes when it is begun."""

    cardinality = None

    def __init__(self, key, log, pause_s):
        self.schema = numbers(1).schema
        self._key = key
        self._log = log
        self._pause_s = pause_s

    def batches(self):
        note(self._log, begin=self._key, pid=os.getpid(), at=time.monotonic())
        for start in range(0, _RECORDS, _BATCH):
            time.sleep(self._pause_s)
            values = np.arange(start, start + _BATCH) * 1000 + self._key
            yield _BATCH, [values]


def note(log, **what):
    """One line, whole, whoever else writes."""
    fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(fd, json.dumps(what).encode() + b"\n")
    finally:
        os.close(fd)


def notes(log):
    if not os.path.exists(log):
        return []
    with open(log) as file:
        return [json.loads(line) for line in file]


def watch_for_stalls(log, ttl_s):
    """A machine with more to do than it can may stop us, too; then others may take over."""

    def watch():
        while True:
            before = time.monotonic()
            time.sleep(ttl_s / 20)
            if time.monotonic() - before > ttl_s / 2:
                note(log, stalled=os.getpid(), at=time.monotonic())

    threading.Thread(target=watch, daemon=True).start()


def work(root, log, keys, seed, ttl_s, pause_s):
    os.environ["YDL_LOG"] = "off"
    watch_for_stalls(log, ttl_s)
    storage = storage_in(root, lease_ttl_s=ttl_s, part_bytes=1000)
    order = list(range(keys))
    random.Random(seed).shuffle(order)
    for key in order:
        ref = storage.cacheable(f"key{key}", "1")(lambda key=key: NotingSource(key, log, pause_s))()
        state = hashlib.sha256()
        for record in ref.stream():
            state.update(np.int64(record).tobytes())
        note(log, key=key, digest=state.hexdigest(), pid=os.getpid())
    note(log, done=os.getpid())


def digest_of(key):
    state = hashlib.sha256()
    for i in range(_RECORDS):
        state.update(np.int64(i * 1000 + key).tobytes())
    return state.hexdigest()


def start(*args, prefix=(), env=None):
    command = [*prefix, sys.executable, "-m", "soak.storm", *map(str, args)]
    return subprocess.Popen(command, env={**os.environ, **(env or {})})


def build_wall_clock(directory):
    library = os.path.join(directory, "wall_clock.so")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "wall_clock.c")
    compiler = os.environ.get("CC", "gcc")
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", source, "-o", library], check=True)
    return library


class Storm:
    def __init__(self, root, options, draw):
        self._root = root
        self._options = options
        self._draw = draw
        self._log = os.path.join(root, "log")
        self._store = os.path.join(root, "store")
        self._wall_clock = build_wall_clock(root) if options.clocks else None
        self._seeds = iter(range(10**9))
        self.events = defaultdict(int)  # by pid
        self.kills = self.stalls = 0
        self.problems = []

    def _start(self):
        options = self._options
        seed = next(self._seeds)
        clock = None
        if self._wall_clock:
            offset_s = 3600 if seed % 2 else -3600
            clock = {"LD_PRELOAD": self._wall_clock, "YDL_WALL_CLOCK_S": str(offset_s)}
        return start(
            "--work", self._store, self._log, options.keys, seed, options.ttl_s, options.pause_s,
            env=clock,
        )  # fmt: skip

    def run(self):
        options, draw = self._options, self._draw
        os.mkdir(self._store)
        running = [self._start() for _ in range(options.processes)]
        stopped = []  # (when it goes on, process)
        ended = 0
        until = time.monotonic() + _HANG_S + 5 * options.keys
        next_event = 0.0
        while ended < options.processes:
            if time.monotonic() > until:
                self.problems.append("it takes too long: somebody hangs")
                break
            time.sleep(0.02)
            now = time.monotonic()
            for item in [item for item in stopped if item[0] <= now]:
                stopped.remove(item)
                item[1].send_signal(signal.SIGCONT)
            for process in [process for process in running if process.poll() is not None]:
                running.remove(process)
                if process.returncode == 0:
                    ended += 1
                elif process.returncode == -signal.SIGKILL:
                    running.append(self._start())
                else:
                    ended += 1
                    self.problems.append(f"a process ended with {process.returncode}")
            at_work = {line["pid"] for line in begins(self._log)}
            if at_work and now >= next_event and self.kills + self.stalls < options.events:
                next_event = now + draw.uniform(0, 2 * options.every_s)
                # Who builds, or has built, is worth more than who only waits.
                candidates = [p for p in running if all(p is not other for _, other in stopped)]
                builders = [p for p in candidates if p.pid in at_work]
                chosen = draw.choice(builders or candidates) if candidates else None
                if chosen is not None and draw.random() < 0.5:
                    self.kills += 1
                    self.events[chosen.pid] += 1
                    chosen.kill()
                elif chosen is not None:
                    self.stalls += 1
                    self.events[chosen.pid] += 1
                    chosen.send_signal(signal.SIGSTOP)
                    stopped.append((now + draw.uniform(0, 3 * options.ttl_s), chosen))
        for process in running:
            process.kill()
            process.wait()
        self._check()

    def _check(self):
        lines = notes(self._log)
        self.busy = 0
        for line in lines:
            if "stalled" in line:
                self.busy += 1
                self.events[line["stalled"]] += 1
        self.runs = 0
        for key in range(self._options.keys):
            builders = [line["pid"] for line in lines if line.get("begin") == key]
            self.runs += len(builders)
            most = 1 + sum(self.events[pid] for pid in set(builders))
            if not 1 <= len(builders) <= most:
                self.problems.append(f"the source of key {key} was read {len(builders)} times, "
                                     f"by {builders}, instead of at most {most}")  # fmt: skip
            digests = {line["digest"] for line in lines if line.get("key") == key}
            if digests != {digest_of(key)}:
                self.problems.append(f"key {key}: other records")
            manifests = os.listdir(os.path.join(self._store, f"key{key}", "1.ydl", "manifests"))
            entries = [name for name in manifests if name.endswith(".json")]
            if entries != ["00000001.json"]:
                self.problems.append(f"key {key} was published more than once: {sorted(entries)}")
        done = sum("done" in line for line in lines)
        if done < self._options.processes:
            self.problems.append(f"only {done} processes came to the end")


# ---- taking over ----


def hold(root, log, ttl_s, seconds):
    """Builds key 0, for so long."""
    os.environ["YDL_LOG"] = "off"
    storage = storage_in(root, lease_ttl_s=ttl_s)
    pause_s = seconds / (_RECORDS / _BATCH)
    storage.cacheable("key0", "1")(lambda: NotingSource(0, log, pause_s))()


def begins(log):
    return [line for line in notes(log) if "begin" in line]


def wait_until(condition, what):
    until = time.monotonic() + 60
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError(what)
        time.sleep(0.005)


def kill_tree(process):
    """unshare --fork: the child is killed, and with it its pid namespace."""
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
        for pid in file.read().split():
            os.kill(int(pid), signal.SIGKILL)
    process.kill()
    process.wait()


def takeover(directory, ttl_s, how):
    """Seconds from the holder's end until a waiter begins. how: killed, stopped or foreign."""
    root = os.path.join(directory, how)
    log = os.path.join(directory, f"{how}.log")
    os.mkdir(root)
    prefix = ["unshare", "--pid", "--fork", "--kill-child"] if how == "foreign" else []
    holder = start("--hold", root, log, ttl_s, 600, prefix=prefix)
    waiter = None
    try:
        wait_until(lambda: len(begins(log)) == 1, "the holder does not build")
        waiter = start("--hold", root, log, ttl_s, 0.1)
        # Long enough for a waiter that does not believe in the holder to show it.
        time.sleep(3 * ttl_s)
        if len(begins(log)) != 1:
            return None
        ended = time.monotonic()
        if how == "stopped":
            holder.send_signal(signal.SIGSTOP)
        elif how == "foreign":
            kill_tree(holder)
        else:
            holder.kill()
        wait_until(lambda: len(begins(log)) == 2, "the waiter does not take over")
        seconds = begins(log)[1]["at"] - ended
        waiter.wait(60)
        return seconds
    finally:
        for process in (holder, waiter):
            if process is not None and process.poll() is None:
                if how == "foreign" and process is holder:
                    kill_tree(process)
                else:
                    process.kill()
                    process.wait()


def can_unshare():
    return (
        subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True).returncode == 0
    )


def check_takeovers(directory, ttl_s, limit_s, strict):
    problems = []
    for how in ("killed", "stopped", "foreign"):
        if how == "foreign" and not can_unshare():
            print("another pid namespace: skipped, unshare --pid is not allowed here")
            continue
        seconds = takeover(directory, ttl_s, how)
        if seconds is None:
            problems.append(f"a living holder ({how}) was taken for dead")
            continue
        print(f"takeover from a holder that is {how}: {seconds:.2f} s = {seconds / ttl_s:.2f} TTL")
        if how == "foreign" and seconds < ttl_s:
            problems.append(f"{how}: taken over after {seconds:.2f} s, as if death were certain")
        most = limit_s if how == "killed" else 2 * ttl_s + (0 if strict else limit_s)
        if seconds > most:
            problems.append(f"{how}: taken over after {seconds:.2f} s, more than {most:.2f} s")
    return problems


def main(argv=None):
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["--work"]:
        root, log, keys, seed, ttl_s, pause_s = arguments[1:]
        work(root, log, int(keys), int(seed), float(ttl_s), float(pause_s))
        return 0
    if arguments[:1] == ["--hold"]:
        root, log, ttl_s, seconds = arguments[1:]
        hold(root, log, float(ttl_s), float(seconds))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--keys", type=int, default=20)
    parser.add_argument("--ttl-s", type=float, default=1.0)
    parser.add_argument("--pause-s", type=float, default=0.05, help="of a source, per batch")
    parser.add_argument("--events", type=int, default=60, help="kills and stalls at most")
    parser.add_argument("--every-s", type=float, default=0.5, help="between two of them")
    parser.add_argument("--clocks", action="store_true")
    parser.add_argument("--takeover-ttl-s", type=float, default=2.0, help="0: no measurement")
    parser.add_argument("--limit-s", type=float, default=1.0, help="for a takeover from the dead")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--directory", default="/dev/shm" if os.path.isdir("/dev/shm") else None)
    options = parser.parse_args(arguments)
    print(f"seed {options.seed}", flush=True)
    directory = tempfile.mkdtemp(prefix="ydl-storm-", dir=options.directory)
    try:
        storm = Storm(directory, options, random.Random(options.seed))
        began = time.monotonic()
        storm.run()
        problems = storm.problems
        print(
            f"{options.processes} processes, {options.keys} keys, {storm.kills} kills, "
            f"{storm.stalls} stalls and {storm.busy} by a busy machine: {storm.runs} builds begun, "
            f"{time.monotonic() - began:.1f} s{', clocks 2 h apart' if options.clocks else ''}"
        )
        if options.takeover_ttl_s:
            strict = options.limit_s <= 1
            problems += check_takeovers(directory, options.takeover_ttl_s, options.limit_s, strict)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    print(f"{len(problems)} problems")
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
