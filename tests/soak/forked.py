"""Processes that may die at any moment: forks of one that has imported everything already.

The long tests start hundreds of them; a fork takes milliseconds, a new interpreter a third of a
second. Nothing here starts a thread, so that forking is safe.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from typing import Any, Optional

_HERE = os.path.dirname(os.path.abspath(__file__))
_ENVIRONMENT = "YDL_SOAK_RECORDER"
# No child of ours takes a minute: one that does, hangs.
HANG_S = 120.0


class Died(Exception):
    """A child ended without a result: by a signal (code < 0) or by _exit(code)."""

    def __init__(self, code: int) -> None:
        super().__init__(f"a child ended with {code}")
        self.code = code


class Failed(Exception):
    """A child raised; the text is its traceback."""


class Child:
    """A fork that runs run(child); what it returns is pickled."""

    hang_s = HANG_S

    def __init__(self, run: Callable[[Child], Any]) -> None:
        self._reading, writing = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._reading)
            self._writing = writing
            code = 1
            try:
                self._send(("result", run(self)))
                sys.stdout.flush()  # _exit does not
                code = 0
            except BaseException:
                self._send(("error", traceback.format_exc()))
            finally:
                os._exit(code)
        os.close(writing)
        self._got = b""
        self._status: Optional[int] = None

    # ---- in the child ----

    def _send(self, message: Any) -> None:
        content = pickle.dumps(message)
        os.write(self._writing, len(content).to_bytes(4, "little") + content)

    def tell(self, value: Any) -> None:
        """A message on the way to the result."""
        self._send(("told", value))

    # ---- in the parent ----

    def _next_message(self) -> Optional[tuple[str, Any]]:
        until = time.monotonic() + self.hang_s
        while True:
            size = int.from_bytes(self._got[:4], "little")
            if len(self._got) >= 4 + size > 4:
                message, self._got = self._got[4 : 4 + size], self._got[4 + size :]
                return pickle.loads(message)
            ready, _, _ = select.select([self._reading], [], [], until - time.monotonic())
            if not ready:
                self.kill()
                raise TimeoutError(f"a child hung for {self.hang_s:g} s")
            content = os.read(self._reading, 65536)
            if not content:
                return None
            self._got += content

    def hear(self) -> Any:
        """What the child tells next; raises what result() would raise where it ends instead."""
        message = self._next_message()
        if message is None:
            raise Died(self.wait())
        kind, value = message
        if kind == "error":
            self.wait()
            raise Failed(value)
        return value

    def result(self) -> Any:
        """Passes over what it tells. Died or Failed where there is none."""
        while True:
            message = self._next_message()
            if message is None:
                raise Died(self.wait())
            kind, value = message
            if kind == "error":
                self.wait()
                raise Failed(value)
            if kind == "result":
                self.wait()
                return value

    def wait(self) -> int:
        """Its exit status, or minus the signal."""
        if self._status is None:
            _, status = os.waitpid(self.pid, 0)
            self._status = os.waitstatus_to_exitcode(status)
            os.close(self._reading)
        return self._status

    def signal(self, number: int) -> None:
        if self._status is None:
            os.kill(self.pid, number)

    def kill(self) -> int:
        self.signal(signal.SIGKILL)
        return self.wait()


def run(function: Callable[[], Any]) -> Any:
    """function() in a new process."""
    return Child(lambda child: function()).result()


# ---- the recorder ----


def start_with_recorder(module: str) -> None:
    """Starts this program anew with recorder.c preloaded, unless it already runs so."""
    if _ENVIRONMENT in os.environ:
        # Whatever else this program starts, it is to run without.
        os.environ.pop("LD_PRELOAD", None)
        return
    with tempfile.TemporaryDirectory(prefix="ydl-recorder-") as directory:
        library = os.path.join(directory, "recorder.so")
        compiler = os.environ.get("CC", "gcc")
        source = os.path.join(_HERE, "recorder.c")
        subprocess.run(
            [compiler, "-O1", "-shared", "-fPIC", "-Wall", source, "-o", library, "-ldl"],
            check=True,
        )
        environment = {**os.environ, "LD_PRELOAD": library, _ENVIRONMENT: library}
        command = [sys.executable, "-m", module, *sys.argv[1:]]
        sys.exit(subprocess.run(command, env=environment).returncode)


def arm(
    root: str,
    notes: Optional[str] = None,
    kill_at: int = 0,
    shutdown_at: int = 0,
    no_flushes: bool = False,
) -> None:
    """In a child: notes what it does below root (recorder.c says how), or ends it there."""
    recorder = ctypes.CDLL(os.environ[_ENVIRONMENT])
    recorder.recorder_arm.argtypes = [
        ctypes.c_char_p, ctypes.c_char_p, ctypes.c_long, ctypes.c_long, ctypes.c_int,
    ]  # fmt: skip
    recorder.recorder_arm(
        os.fsencode(root),
        None if notes is None else os.fsencode(notes),
        kill_at,
        shutdown_at,
        no_flushes,
    )
