"""Worker processes: one fresh, confined process per job, forked from a server that has imported torch and triton.

``Zygote.run`` sends a payload to a function in a new process and returns what became of it. A job that exits, is
killed, hangs, floods its output, forks or answers nonsense is an outcome, and the next job is not affected.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Literal

from ..errors import EnvironmentLackError, HarnessError
from . import wire
from .bubblewrap import wrapper
from .exchange import CLEANUP_S, Exchange, JobResult, Limits
from .wire import Payload

__all__ = ["Flavour", "JobResult", "Limits", "Payload", "Zygote", "default_cache_dir"]

Flavour = Literal["compile", "interpret", "plain"]

_START_S = 180.0  # importing torch and triton on a slow, cold disk
_CACHE_ENTRIES = 4000  # about a gigabyte
_CACHE_AGE_S = 7 * 86400.0
_ATTEMPTS = 3  # a job whose server was killed may be the victim of another job
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CUDA_HOME", "CUDA_VISIBLE_DEVICES")


def default_cache_dir() -> Path:
    """Where compiled kernels are kept between runs: $KLINEAGE_CACHE_DIR or the user's cache directory."""
    root = os.environ.get("KLINEAGE_CACHE_DIR")
    if root:
        return Path(root)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "klineage"


class Zygote:
    """A server of worker processes of one flavour; thread-safe, restarted when it dies, closed as a context manager.

    ``compile`` is ready to compile for any target; ``interpret`` sets TRITON_INTERPRET=1 before triton is imported;
    ``plain`` has imported torch and triton and nothing else. Raises EnvironmentLackError when the cache directory
    cannot be made.
    """

    def __init__(self, flavour: Flavour, limits: Limits | None = None, cache_dir: Path | None = None) -> None:
        self.flavour: Flavour = flavour
        self.limits = limits or Limits()
        self.cache_dir = cache_dir or default_cache_dir()
        self._lock = threading.Lock()
        self._retry_lock = threading.Lock()
        self._closed = False
        self._server: _Server | None = _Server(flavour, self.cache_dir)

    def __enter__(self) -> Zygote:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def isolation(self) -> tuple[str, ...]:
        """What confines the jobs: namespaces ("user", "pid", "net", "ipc", "mount"), "proc" (only their own
        processes are visible), "landlock" (no writing outside their directory), "seccomp" (no calls that judging does
        not need), "bubblewrap" (which made the namespaces); empty where the kernel allows none."""
        return self._current().isolation

    def run(self, function: str, payload: Payload, limits: Limits | None = None) -> JobResult:
        """Call ``function`` ("package.module:callable") with ``payload`` in a new process; blocks.

        Raises HarnessError when no server can be started, TypeError when the payload cannot be encoded.
        """
        chunks = wire.encode({"function": function, "payload": payload})
        limits = limits or self.limits
        begun = time.monotonic()
        for attempt in range(_ATTEMPTS):
            # those whose server died try again one at a time, so that only the culprit meets the same end again
            with self._retry_lock if attempt else contextlib.nullcontext():
                server = self._current()
                result = Exchange(server, chunks, limits).run()
                if result is not None:
                    return result
                self._discard(server)
        message = "the worker server was killed each time this job ran"
        return JobResult("killed", None, message, "", "", time.monotonic() - begun)

    def close(self) -> None:
        """Kill the server with every job still running."""
        with self._lock:
            self._closed = True
            server, self._server = self._server, None
        if server is not None:
            server.stop()

    def _current(self) -> _Server:
        with self._lock:
            if self._closed:
                raise HarnessError("this worker pool is closed")
            if self._server is None or self._server.dead:
                if self._server is not None:
                    self._server.stop()
                self._server = _Server(self.flavour, self.cache_dir)
            server = self._server
        server.wait_ready()
        return server

    def _discard(self, server: _Server) -> None:
        with self._lock:
            if self._server is server:
                self._server = None
        server.stop()


class _Server:
    """One incarnation of the server process and the socket that gives it jobs."""

    def __init__(self, flavour: Flavour, cache_dir: Path) -> None:
        self._flavour = flavour
        self._lock = threading.Lock()
        self._ready = False
        self.isolation: tuple[str, ...] = ()
        cache = _prepare_cache(cache_dir)
        self._workdir = tempfile.mkdtemp(prefix="klineage-")
        self._log = Path(self._workdir, "server.log")
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        script = str(Path(__file__).with_name("zygote.py"))
        wrapped = wrapper() if flavour in ("compile", "interpret") else []
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*wrapped, sys.executable, "-P", script, str(theirs.fileno()), flavour],
                env=_environment(flavour, self._workdir, cache),
                cwd=self._workdir,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C reaches the parent alone, which then closes the control socket
            )
        theirs.close()

    @property
    def dead(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def wait_ready(self) -> None:
        """Block until the server has imported everything. Raises HarnessError when it cannot start."""
        with self._lock:
            if self._ready:
                return
            self._control.settimeout(_START_S)
            try:
                message = self._control.recv(1 << 16)
            except TimeoutError:
                message = b""
            if not message:
                lines = [x for x in self._log.read_text(errors="replace").splitlines() if x.strip()]
                reason = lines[-1] if lines else f"it said nothing for {_START_S:.0f} s"
                self.stop()
                raise HarnessError(f"the {self._flavour} worker did not start: {reason}", "run klineage doctor")
            self.isolation = tuple(json.loads(message)["isolation"])
            self._ready = True

    def submit(self, limits: Limits, descriptors: list[int]) -> None:
        """Start one job. Raises OSError when the server is gone."""
        with self._lock:
            self._control.settimeout(CLEANUP_S)
            socket.send_fds(self._control, [json.dumps(limits.request()).encode()], descriptors)

    def stop(self) -> None:
        """Kill the server; its jobs die with it."""
        with contextlib.suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        try:
            # once it serves, it sees the socket close and kills its jobs, whatever they forked
            self._process.wait(timeout=2.0 if self._ready else 0.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._workdir, ignore_errors=True)


def _prepare_cache(cache_dir: Path) -> Path:
    """Triton's part of the cache, with kernels not compiled for a week thrown out when there are many."""
    cache = cache_dir / "triton"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        kept = list(cache.iterdir())
        for entry in kept if len(kept) > _CACHE_ENTRIES else ():
            if time.time() - entry.stat().st_mtime > _CACHE_AGE_S:
                shutil.rmtree(entry, ignore_errors=True)
    except OSError as error:
        fix = "set KLINEAGE_CACHE_DIR to a directory you can write to"
        raise EnvironmentLackError(f"cannot use the cache directory {cache}: {error.strerror}", fix) from None
    return cache


def _environment(flavour: Flavour, workdir: str, cache: Path) -> dict[str, str]:
    """The worker's whole environment: no keys or tokens of the user's reach a candidate."""
    passed = {k: v for k, v in os.environ.items() if k in _PASSED_ON or k.startswith("NVIDIA_")}
    own = {
        "HOME": workdir,
        "TMPDIR": workdir,
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "PYTHONDONTWRITEBYTECODE": "1",
        "TRITON_CACHE_DIR": str(cache),
        "TRITON_DEFAULT_FP_FUSION": "1",
        **{f"{library}_NUM_THREADS": "1" for library in ("OMP", "MKL", "OPENBLAS", "NUMEXPR")},
    }
    if flavour == "interpret":
        own["TRITON_INTERPRET"] = "1"
    return {**passed, **own}
