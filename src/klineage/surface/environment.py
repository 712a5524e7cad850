"""Answers to module-level conditions of expert packages, found in a child process with a time limit.

What holds on every NVIDIA machine is decided (package versions, "is this an NPU?"); a condition that asks which GPU is
present is left undecided, so that the code choosing at run time stays in the kernel.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from functools import lru_cache
from typing import IO

TIME_LIMIT_S = 120.0  # a first question imports torch, on a busy machine

# Runs in the child: one fork per question, so that questions neither see each other nor import torch again. A question
# that asks about the device raises what no ``except Exception`` stops.
_SERVER = r"""
import json, os, sys

class _Undecided(BaseException):
    pass

def _undecided(*args, **kwargs):
    raise _Undecided

def prepare_torch():
    import torch
    torch.cuda.is_available = lambda: True
    for name in ("get_device_capability", "get_device_properties", "get_device_name", "device_count", "current_device",
                 "mem_get_info", "get_arch_list", "init", "_lazy_init", "synchronize"):
        setattr(torch.cuda, name, _undecided)

def prepare_triton():
    import triton.runtime
    class Target:
        backend = "cuda"
        def __getattr__(self, name):
            raise _Undecided
    class Driver:
        def get_current_target(self):
            return Target()
        def __getattr__(self, name):
            raise _Undecided
    triton.runtime.driver.set_active(Driver())

def ask(program):
    scope = {"__name__": "condition"}
    try:
        exec(compile(program, "<condition>", "exec"), scope)
        return str(scope["klineage_answer"])
    except BaseException:
        return None

out = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
prepared = set()
for line in sys.stdin:
    program = json.loads(line)
    for name, prepare in (("torch", prepare_torch), ("triton", prepare_triton)):
        if "import " + name in program and name not in prepared:
            prepared.add(name)
            try:
                prepare()
            except Exception:
                pass
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        os.write(write, json.dumps(ask(program)).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        said = answer.read().decode() or "null"
    os.waitpid(child, 0)
    out.write(said + "\n")
"""


class _Server:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: subprocess.Popen[str] | None = None

    def ask(self, program: str) -> str | None:
        with self.lock:
            if self.process is None or self.process.poll() is not None:
                self.process = _start()
            stdin, stdout = self.process.stdin, self.process.stdout
            if stdin is None or stdout is None:
                return None
            try:
                stdin.write(json.dumps(program) + "\n")
                stdin.flush()
                line = _line(stdout, TIME_LIMIT_S)
            except (OSError, ValueError):
                line = None
            if line is None:
                self.close()
                return None
            said = json.loads(line)
            return said if isinstance(said, str) else None

    def close(self) -> None:
        """Kill the child and whatever it forked."""
        process, self.process = self.process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def _start() -> subprocess.Popen[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "PYTHONPATH")}
    environment["CUDA_VISIBLE_DEVICES"] = ""
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    return subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        bufsize=1,
        env=environment,
        start_new_session=True,
    )


def _line(stream: IO[str], limit_s: float) -> str | None:
    """One whole line within a time limit, None at the end of the stream or of the time."""
    end = time.monotonic() + limit_s
    data = b""
    while not data.endswith(b"\n"):
        left = end - time.monotonic()
        if left <= 0 or not select.select([stream], [], [], left)[0]:
            return None
        piece = os.read(stream.fileno(), 65536)
        if not piece:
            return None
        data += piece
    return data.decode()


_server = _Server()
atexit.register(_server.close)


@lru_cache(maxsize=256)
def answer(program: str) -> str | None:
    """What a program sets ``klineage_answer`` to, or None when it fails, asks about the device, or takes too long."""
    return _server.ask(program)
