"""The parent's end of the trusted GPU worker: starts it, asks it, and replaces it when it is lost."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from ...errors import EnvironmentLackError, HarnessError
from .. import wire

_START_S = 180.0
_REPLY_BYTES = 1 << 34
_TIMED = frozenset({"device", "time", "bench_outputs"})  # requests that time something
_WORKER = ("-m", "klineage.gate.measured.worker")


class WorkerLost(Exception):
    """The worker ended while it worked on a request: what it ran took the context down, or never ended."""


class _WorkerEnded(WorkerLost):
    """It ended without a word."""


@contextmanager
def lease() -> Generator[None, None, None]:
    """Hold the GPU for timing: among this user's KLineage processes, one times at once."""
    devices = "".join(c for c in os.environ.get("CUDA_VISIBLE_DEVICES", "") if c.isalnum())
    path = Path(tempfile.gettempdir()) / f"klineage-{os.getuid()}-gpu{devices}.lock"
    held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


class GpuWorker:
    """One worker on one GPU; thread-safe, one request at a time.

    ``program``: what Python runs, before the descriptor. Raises EnvironmentLackError when it cannot be started.
    """

    def __init__(self, cache_dir: Path, limit_s: float = 180.0, program: Sequence[str] = _WORKER) -> None:
        self.cache_dir = cache_dir
        self._program = program
        self.limit_s = limit_s  # of any request: kernels may never end
        self.replaced = 0  # times a lost worker was replaced
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._tasks: dict[str, dict[str, Any]] = {}  # told again to a new worker

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The worker's reply.

        Raises WorkerLost when the request cost the worker its context or its life, HarnessError when the worker itself
        failed.
        """
        with self._lock:
            reply = self._asked(request)
            if request["do"] == "task":
                self._tasks[request["task"]] = request
            if reply.get("lost"):
                self._stop()
                raise WorkerLost(str(reply["error"]))
        if not reply["ok"]:
            raise HarnessError(f"the GPU worker failed: {reply['error']}")
        return reply

    def close(self) -> None:
        """Stop the worker."""
        with self._lock:
            self._stop()

    def _asked(self, request: dict[str, Any]) -> dict[str, Any]:
        """The reply; a worker that ends without a word may have been killed by others: a new one is asked once."""
        for last in (False, True):
            connection = self._running()
            with lease() if request["do"] in _TIMED else nullcontext():
                try:
                    return self._exchange(connection, request, self.limit_s)
                except _WorkerEnded:
                    if last:
                        raise
        raise AssertionError

    def _exchange(self, connection: socket.socket, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        connection.settimeout(timeout_s)
        try:
            wire.send(connection, request)
            return wire.receive(connection, _REPLY_BYTES)
        except TimeoutError:
            self._stop()
            raise WorkerLost(f"no end within {timeout_s:.0f} s") from None
        except (OSError, wire.WireError) as error:
            self._stop()
            raise _WorkerEnded(f"the worker ended: {error}") from None

    def _running(self) -> socket.socket:
        if self._socket is not None and self._process is not None and self._process.poll() is None:
            return self._socket
        if self._process is not None:
            self.replaced += 1
        self._start()
        assert self._socket is not None
        for task in self._tasks.values():
            self._exchange(self._socket, task, _START_S)
        return self._socket

    def _start(self) -> None:
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
        environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
        self._process = subprocess.Popen(
            [sys.executable, "-P", *self._program, str(theirs.fileno())],
            pass_fds=(theirs.fileno(),),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C reaches the parent alone
        )
        theirs.close()
        self._socket = mine
        mine.settimeout(_START_S)
        try:
            wire.receive(mine)
        except (OSError, wire.WireError):
            self._stop()
            raise EnvironmentLackError(
                "the GPU worker did not start", "run klineage doctor; or pass --mode modelled"
            ) from None

    def _stop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
