"""Worker processes: one fresh, confined process per job, forked from a server that has imported torch and triton.

``Zygote.run`` sends a payload to a function in a new process and returns what became of it. A job that exits, is
killed, hangs, floods its output, forks or answers nonsense is an outcome, and the next job is not affected.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import math
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, cast

from ..errors import HarnessError
from . import wire
from .wire import Payload

Flavour = Literal["compile", "interpret"]
Outcome = Literal["ok", "error", "timeout", "killed", "exited", "output_cap"]

_START_S = 180.0  # importing torch and triton on a slow, cold disk
_GRACE_S = 2.0  # for a child that has answered to end by itself
_CLEANUP_S = 20.0  # for the server to confirm that a killed job is gone
_TAIL_BYTES = 8192
_ATTEMPTS = 3  # a job whose server was killed may be the victim of another job
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CUDA_HOME", "CUDA_VISIBLE_DEVICES")


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one job may use. ``memory_bytes`` is address space beyond the server's own; None is no limit."""

    wall_s: float = 60.0
    cpu_s: float | None = None  # twice the wall-clock limit when None
    memory_bytes: int | None = 16 << 30
    output_bytes: int = 16 << 20
    file_bytes: int = 1 << 30
    result_bytes: int = 2 << 30

    def request(self) -> dict[str, Any]:
        """The part the child sets on itself."""
        cpu = self.cpu_s if self.cpu_s is not None else 2 * self.wall_s
        return {"cpu_s": math.ceil(cpu), "memory_bytes": self.memory_bytes, "file_bytes": self.file_bytes}


@dataclasses.dataclass(frozen=True)
class JobResult:
    """What became of one job. ``value`` is there exactly when the outcome is ``ok``; ``error`` is one line."""

    outcome: Outcome
    value: Payload | None
    error: str
    traceback: str
    stdout_tail: str
    wall_s: float

    @property
    def ok(self) -> bool:
        """Whether the function returned and its answer was well formed."""
        return self.outcome == "ok"


def default_cache_dir() -> Path:
    """Where compiled kernels are kept between runs: $KLINEAGE_CACHE_DIR or the user's cache directory."""
    root = os.environ.get("KLINEAGE_CACHE_DIR")
    if root:
        return Path(root)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "klineage"


class Zygote:
    """A server of worker processes of one flavour; thread-safe, restarted when it dies, closed as a context manager.

    ``compile`` leaves Triton as it is; ``interpret`` sets TRITON_INTERPRET=1 before triton is imported.
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
        processes are visible), "landlock" (no writing outside their directory); empty where the kernel allows none."""
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
                result = _Exchange(server, chunks, limits).run()
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
        self._workdir = tempfile.mkdtemp(prefix="klineage-")
        self._log = Path(self._workdir, "server.log")
        cache = cache_dir / "triton"
        cache.mkdir(parents=True, exist_ok=True)
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        script = str(Path(__file__).with_name("zygote.py"))
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", script, str(theirs.fileno()), flavour],
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
            self._control.settimeout(_CLEANUP_S)
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


class _Exchange:
    """One job seen from the parent: feed the request, gather answer and output, enforce the limits."""

    def __init__(self, server: _Server, chunks: list[wire.Buffer], limits: Limits) -> None:
        self._server = server
        self._limits = limits
        self._pending = [memoryview(c).cast("B") for c in reversed(chunks)]
        self._reader = wire.FrameReader(limits.result_bytes)
        self._tail = bytearray()
        self._output_bytes = 0
        self._code: int | None = None
        self._server_gone = False
        self._verdict: tuple[Outcome, str] | None = None  # reached by the parent, whatever the child says
        self._killed_at: float | None = None

    def run(self) -> JobResult | None:
        """The job's result, or None when the server died under it."""
        self._begun = time.monotonic()
        self._deadline = self._begun + self._limits.wall_s
        with contextlib.ExitStack() as stack:
            self._data, data = socket.socketpair()
            self._status, status = socket.socketpair()
            read_end, write_end = os.pipe()
            self._output = io.FileIO(read_end, "rb")
            for closeable in (self._data, self._status, self._output):
                stack.callback(closeable.close)  # closing status is also the order to kill, so Ctrl-C leaves nothing
            try:
                self._server.submit(self._limits, [data.fileno(), write_end, status.fileno()])
            except OSError:
                return None
            finally:
                data.close()
                status.close()
                os.close(write_end)
            self._loop()
        return self._result()

    def _loop(self) -> None:
        with selectors.DefaultSelector() as selector:
            self._selector = selector
            self._data.setblocking(False)
            os.set_blocking(self._output.fileno(), False)
            selector.register(self._data, selectors.EVENT_READ | selectors.EVENT_WRITE, self._on_data)
            selector.register(self._output, selectors.EVENT_READ, self._on_output)
            selector.register(self._status, selectors.EVENT_READ, self._on_status)
            while self._code is None and not self._server_gone:
                for key, mask in selector.select(max(0.0, self._deadline - time.monotonic())):
                    key.data(mask)
                if time.monotonic() >= self._deadline and self._code is None:
                    self._on_deadline()
            # the job is gone: what it left in the pipes is all there will be
            if self._data in selector.get_map():
                self._on_data(selectors.EVENT_READ)
            if self._output in selector.get_map():
                self._on_output(selectors.EVENT_READ)

    def _on_deadline(self) -> None:
        if self._killed_at is not None:  # the server does not answer: it is of no use any more
            self._server_gone = True
            self._server.stop()
            return
        if not self._reader.complete:
            self._fail("timeout", f"no answer within {self._limits.wall_s:g} s")
        self._kill()

    def _fail(self, outcome: Outcome, error: str) -> None:
        if self._verdict is None:
            self._verdict = (outcome, error)

    def _kill(self) -> None:
        if self._killed_at is None:
            self._killed_at = time.monotonic()
            self._deadline = self._killed_at + _CLEANUP_S
            with contextlib.suppress(OSError):
                self._status.shutdown(socket.SHUT_WR)

    def _on_data(self, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._write()
        if mask & selectors.EVENT_READ:
            self._read()

    def _write(self) -> None:
        try:
            while self._pending:
                sent = self._data.send(self._pending[-1])
                self._pending[-1] = self._pending[-1][sent:]
                if not self._pending[-1]:
                    self._pending.pop()
        except BlockingIOError:
            return
        except OSError:
            self._pending.clear()
        self._selector.modify(self._data, selectors.EVENT_READ, self._on_data)

    def _read(self) -> None:
        try:
            while not self._reader.complete:
                if not self._reader.read_from(self._data):
                    break
        except BlockingIOError:
            return
        except wire.WireError as error:
            self._fail("error", f"malformed answer: {error}")
            self._kill()
        except OSError:
            pass
        self._selector.unregister(self._data)
        if self._reader.complete and self._killed_at is None:
            self._deadline = time.monotonic() + _GRACE_S

    def _on_output(self, _: int) -> None:
        try:
            while data := self._output.read(1 << 16):
                self._output_bytes += len(data)
                self._tail = (self._tail + data)[-_TAIL_BYTES:]
                if self._output_bytes > self._limits.output_bytes:
                    self._fail("output_cap", f"printed more than {self._limits.output_bytes} bytes")
                    self._kill()
                    break
            if data is None:
                return
        except OSError:
            pass
        self._selector.unregister(self._output)

    def _on_status(self, _: int) -> None:
        try:
            message = self._status.recv(4096)
        except OSError:
            message = b""
        if message:
            self._code = int(json.loads(message)["code"])
        else:
            self._server_gone = True

    def _result(self) -> JobResult | None:
        outcome, value, error, trace = self._judge()
        if outcome is None:
            return None
        tail = self._tail.decode(errors="replace")
        return JobResult(outcome, value, error, trace, tail, time.monotonic() - self._begun)

    def _judge(self) -> tuple[Outcome | None, Payload | None, str, str]:
        if self._verdict is not None:
            return self._verdict[0], None, self._verdict[1], ""
        if self._reader.complete:
            return _read_answer(self._reader)
        if self._code is None:
            return None, None, "", ""
        if self._code == -signal.SIGXCPU:
            return "timeout", None, "used more processor time than allowed", ""
        if self._code < 0:
            return "killed", None, f"killed by {_signal_name(-self._code)}", ""
        return "exited", None, f"exited with status {self._code} without an answer", ""


def _read_answer(reader: wire.FrameReader) -> tuple[Outcome | None, Payload | None, str, str]:
    try:
        answer = reader.payload()
    except wire.WireError as error:
        return "error", None, f"malformed answer: {error}", ""
    outcome, value = answer.get("outcome"), answer.get("value")
    if outcome == "ok" and isinstance(value, dict):
        return "ok", cast(Payload, value), "", ""
    if outcome in ("error", "exited") and isinstance(answer.get("error"), str):
        return outcome, None, str(answer["error"])[:1000], str(answer.get("traceback", ""))[:20_000]
    return "error", None, "malformed answer: the function did not return a dict", ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
