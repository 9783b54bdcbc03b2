"""Worker processes that are told what to do, one JSON line each way: only one of them works at a
time, and each has an interpreter, an environment and a memory of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Sequence
from typing import Any

READY = "ready"


class Remote:
    """A worker, seen from the process that gives the orders."""

    def __init__(self, command: Sequence[str], log: str) -> None:
        self._log = log
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=open(log, "w"),
            text=True,
            env=child_environment(),
        )
        self._answer()

    def ask(self, *order: Any) -> Any:
        """What the worker's method order[0] returns for the arguments order[1:]."""
        print(json.dumps(order), file=self._process.stdin, flush=True)
        return self._answer()

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> Any:
        line = self._process.stdout.readline()
        if not line:
            sys.exit(f"a worker ended; the end of {self._log} says why:\n{tail(self._log)}")
        return json.loads(line)


def serve(make_worker: Any, *arguments: Any) -> None:
    """The worker's side: answers each line of standard input with one of standard output."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints goes to the log
    worker = make_worker(*arguments)
    print(json.dumps(READY), file=answers, flush=True)
    for line in sys.stdin:
        method, *rest = json.loads(line)
        print(json.dumps(getattr(worker, method)(*rest)), file=answers, flush=True)


def child_environment() -> dict[str, str]:
    # Their logs are for errors.
    return {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "YDL_LOG": "warning"}


def tail(path: str) -> str:
    with open(path) as lines:
        return "".join(deque(lines, maxlen=20))
