"""A process that has everything imported and nothing started; each row runs in a fork of it.

A fork takes milliseconds where a new interpreter takes seconds, and what a row breaks, it breaks for itself alone. No
backend, no thread pool and no GPU may be in use before the fork, so the server imports and does nothing else.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import functools
import gc
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from multiprocessing.connection import Connection, Pipe
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path

from .environment import spin_briefly

IMPORTS = ("torch", "jax", "flax.nnx", "optax", "graphmode.compare.speed.worker", "graphmode.models.zoo")
# its import looks for a GPU, so a row for one imports it after the fork
IMPORTS_ON_CPU = ("torch._dynamo", "torch._inductor.compile_fx", "onnxruntime", "onnxscript")
START_S = 120.0
FIRST_TO_BE_KILLED = 1000  # of all processes, where memory runs out


class Died(Exception):
    """The server has ended, or could not be started."""


def can_fork() -> bool:
    """Whether rows can have processes of their own here: Linux alone promises a fork that is safe after imports."""
    return sys.platform == "linux"


@functools.lru_cache(maxsize=1)
def server(device: str) -> ForkServer:
    """The server of this process, started by the first call; it ends with this process."""
    started = ForkServer(device)
    atexit.register(started.close)
    return started


class ForkServer:
    """Starts processes.

    Args:
      device: `"cpu"` or `"gpu"`.
    """

    def __init__(self, device: str):
        self._connection, theirs = Pipe()
        path = [os.getcwd() if entry == "" else entry for entry in sys.path]
        code = f"import sys; sys.path[:] = {path!r}; from {__name__} import main; main({theirs.fileno()}, {device!r})"
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (open as long as the server)
        self._process = subprocess.Popen(
            [sys.executable, "-c", code], pass_fds=[theirs.fileno()], stdout=self._log, stderr=self._log
        )
        theirs.close()
        self._is_ready = False
        self._lock = threading.Lock()

    def fork(self) -> tuple[Connection, int]:
        """A new process, which serves what `worker.serve` does: the connection to it, and its id.

        Raises:
          Died: where the server has ended.
        """
        ours, theirs = Pipe()
        with self._lock, theirs:
            try:
                self._wait_until_ready()
                self._connection.send("fork")
                send_handle(self._connection, theirs.fileno(), self._process.pid)
                return ours, self._connection.recv()
            except (EOFError, OSError) as error:
                ours.close()
                self._log.seek(0)
                said = self._log.read().decode(errors="replace").strip().rpartition("\n")[2]
                raise Died(f"the process that starts those of rows has ended; it said: {said or 'nothing'}") from error

    def exit_code(self, pid: int) -> int | None:
        """Of a process that has ended: as `subprocess` gives it, minus the signal that ended it."""
        with self._lock, contextlib.suppress(EOFError, OSError):
            self._connection.send(pid)
            return self._connection.recv()
        return None

    def close(self) -> None:
        """Ends it and all that it started."""
        self._connection.close()
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait_until_ready(self) -> None:
        if not self._is_ready:
            if not self._connection.poll(START_S):
                raise OSError
            self._connection.recv()
            self._is_ready = True


def main(number: int, device: str) -> None:
    """What the server runs; it ends when nobody is there to ask it."""
    connection = Connection(number)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that asks
    spin_briefly()
    if device == "gpu":
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # many processes share its memory
    for name in IMPORTS + (IMPORTS_ON_CPU if device == "cpu" else ()):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what is imported stays, and a collection that walks it would copy its pages
    children: set[int] = set()
    with contextlib.suppress(EOFError, OSError):
        connection.send("ready")
        while True:
            request = connection.recv()
            if request == "fork":
                handle = recv_handle(connection)
                pid = os.fork()
                if not pid:
                    connection.close()
                    _child(handle)
                with contextlib.suppress(OSError):
                    os.setpgid(pid, pid)  # here too, since either may come first
                os.close(handle)
                children.add(pid)
                connection.send(pid)
            else:
                children.discard(request)
                connection.send(os.waitstatus_to_exitcode(os.waitpid(request, 0)[1]))
    for pid in children:
        end(pid)


def end(pid: int) -> None:
    """Ends a process of the server's, and what it started: compilers run beside it."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _child(handle: int) -> None:
    code = 1
    os.setpgid(0, 0)  # a group of its own, which `end` reaches
    try:
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(str(FIRST_TO_BE_KILLED))
        from .worker import serve

        serve(Connection(handle))
        code = 0
    finally:
        faulthandler.disable()
        os._exit(code)
