"""Attacks that the tests of isolation run in a worker: each reports what it was told."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)


def attempt(payload: dict[str, Any]) -> dict[str, Any]:
    """What the attack of that name gives: a value, or the error's class."""
    try:
        return {"got": str(ATTACKS[payload["attack"]](payload))}
    except Exception as error:
        return {"refused": type(error).__name__}


def _socket(_: dict[str, Any]) -> str:
    with socket.create_connection(("198.51.100.1", 80), timeout=1):
        return "connected"


def _local_socket(payload: dict[str, Any]) -> str:
    with socket.create_connection(("127.0.0.1", payload["port"]), timeout=1):
        return "connected"


def _fork(_: dict[str, Any]) -> int:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return child


def _thread(_: dict[str, Any]) -> str:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    thread.join()
    return "ran"


def _program(_: dict[str, Any]) -> int:
    return subprocess.run(["true"], check=True).returncode


def _parents_memory(payload: dict[str, Any]) -> bytes:
    with Path(f"/proc/{payload.get('pid') or os.getppid()}/mem").open("rb") as memory:
        return memory.read(1)


def _parents_environment(payload: dict[str, Any]) -> str:
    return Path(f"/proc/{payload['pid']}/environ").read_text()


def _trace(_: dict[str, Any]) -> str:
    if libc.ptrace(16, os.getppid(), 0, 0) != 0:  # PTRACE_ATTACH
        raise OSError(ctypes.get_errno(), "ptrace")
    return "attached"


def _kill_all(_: dict[str, Any]) -> str:
    os.kill(-1, 9)
    return "killed"


def _kill_server(_: dict[str, Any]) -> str:
    os.kill(os.getppid(), 9)
    return "sent"


def _write(payload: dict[str, Any]) -> str:
    Path(payload["path"]).write_text("changed")
    return "written"


def _fill(payload: dict[str, Any]) -> int:
    written = 0
    for number in range(64):
        with Path(f"part-{number}").open("wb") as file:
            for _ in range(16):
                file.write(bytes(1 << 20))
                written += 1
    return written


def _mount(_: dict[str, Any]) -> str:
    if libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) != 0:
        raise OSError(ctypes.get_errno(), "mount")
    return "mounted"


def _memory_file(_: dict[str, Any]) -> int:
    return os.memfd_create("hidden")


def _namespace(_: dict[str, Any]) -> str:
    if libc.unshare(0x10000000) != 0:
        raise OSError(ctypes.get_errno(), "unshare")
    return "new namespace"


ATTACKS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "socket": _socket, "local socket": _local_socket, "fork": _fork, "thread": _thread, "program": _program,
    "parent's memory": _parents_memory, "parent's environment": _parents_environment, "ptrace": _trace,
    "kill everything": _kill_all, "kill the server": _kill_server, "write": _write, "fill the scratch": _fill,
    "mount": _mount, "new namespace": _namespace, "memory file": _memory_file,
}  # fmt: skip


def hide_and_fill(_: dict[str, Any]) -> dict[str, Any]:
    """A child in a session of its own takes 2 GiB; how it ended."""
    child = os.fork()
    if child == 0:
        os.setsid()
        held = []
        for _step in range(32):
            held.append(os.urandom(1) * (1 << 26))
            time.sleep(0.02)
        time.sleep(1.0)
        os._exit(0)
    return {"code": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}


def multiply(_: dict[str, Any]) -> dict[str, Any]:
    """Forks until nothing more can be forked."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.fork()
        except OSError:
            time.sleep(0.05)
    return {}


def wait(payload: dict[str, Any]) -> dict[str, Any]:
    """Sleeps, to be hit by what its neighbours do."""
    time.sleep(payload["s"])
    return {"alive": True}


def processes(_: dict[str, Any]) -> dict[str, Any]:
    """Process ids that are visible."""
    return {"pids": [int(p.name) for p in Path("/proc").iterdir() if p.name.isdigit()]}
