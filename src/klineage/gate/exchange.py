"""One job seen from the parent: its limits, the exchange of bytes with the child, and what became of it."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import math
import os
import selectors
import signal
import socket
import time
from typing import Any, Literal, Protocol, cast

from . import wire
from .wire import Payload

Outcome = Literal["ok", "error", "timeout", "killed", "exited", "output_cap"]

CLEANUP_S = 20.0  # for the server to confirm that a killed job is gone
_GRACE_S = 2.0  # for a child that has answered to end by itself
_TAIL_BYTES = 8192


def _machine_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one job may use; None is no limit.

    ``memory_bytes`` is address space beyond the server's own; ``resident_bytes`` is memory that all processes of the
    job really use, looked at four times a second: half of the machine's, 16 GiB at most.
    """

    wall_s: float = 60.0
    cpu_s: float | None = None  # twice the wall-clock limit when None
    memory_bytes: int | None = 16 << 30
    resident_bytes: int | None = dataclasses.field(default_factory=lambda: min(16 << 30, _machine_bytes() // 2))
    output_bytes: int = 16 << 20
    file_bytes: int = 1 << 30
    result_bytes: int = 2 << 30

    def request(self) -> dict[str, Any]:
        """The part the child sets on itself."""
        cpu = self.cpu_s if self.cpu_s is not None else 2 * self.wall_s
        return {
            "cpu_s": math.ceil(cpu),
            "memory_bytes": self.memory_bytes,
            "resident_bytes": self.resident_bytes,
            "file_bytes": self.file_bytes,
        }


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


class Server(Protocol):
    """Whoever starts jobs."""

    def submit(self, limits: Limits, descriptors: list[int]) -> None:
        """Start one job with its data, output and status descriptors. Raises OSError when the server is gone."""
        ...

    def stop(self) -> None:
        """Kill the server with all its jobs."""
        ...


class Exchange:
    """One job seen from the parent: feed the request, gather answer and output, enforce the limits."""

    def __init__(self, server: Server, chunks: list[wire.Buffer], limits: Limits) -> None:
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
            self._deadline = self._killed_at + CLEANUP_S
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
            ended = json.loads(message)
            self._code = int(ended["code"])
            if ended["why"]:
                self._fail("killed", str(ended["why"]))
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
