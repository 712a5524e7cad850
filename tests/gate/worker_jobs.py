"""What the tests of the workers run in a worker: light to import, since each job imports it afresh."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

MARK = "987654"  # an odd sleep time, to find strays by


def double(payload: dict[str, Any]) -> dict[str, Any]:
    return {"twice": payload["x"] * 2, "pid": os.getpid()}


def exit_quietly(payload: dict[str, Any]) -> dict[str, Any]:
    os._exit(0)


def system_exit(payload: dict[str, Any]) -> dict[str, Any]:
    sys.exit(0)


def kill_itself(payload: dict[str, Any]) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def crash(payload: dict[str, Any]) -> dict[str, Any]:
    return {"read": ctypes.string_at(8)}


def loop(payload: dict[str, Any]) -> dict[str, Any]:
    while True:
        pass


def ignore_signals_and_sleep(payload: dict[str, Any]) -> dict[str, Any]:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(1000)
    return {}


def print_much(payload: dict[str, Any]) -> dict[str, Any]:
    for _ in range(1 << 10):
        sys.stdout.write("x" * (1 << 20))
    return {}


def fork_grandchild(payload: dict[str, Any]) -> dict[str, Any]:
    subprocess.Popen(["sleep", MARK], start_new_session=True)
    return {"done": True}


def daemonise(payload: dict[str, Any]) -> dict[str, Any]:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", MARK])
        os._exit(0)
    time.sleep(0.2)
    os._exit(3)


def complain(payload: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("first line\nsecond line")


class _Evil(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message for you")


def raise_evil(payload: dict[str, Any]) -> dict[str, Any]:
    raise _Evil


def return_nonsense(payload: dict[str, Any]) -> Any:
    return 7


def return_object(payload: dict[str, Any]) -> Any:
    return {"x": object()}


def _own_socket() -> int:
    for link in list(Path("/proc/self/fd").iterdir()):
        if int(link.name) > 2 and link.is_symlink() and str(link.readlink()).startswith("socket:"):
            return int(link.name)
    raise AssertionError


def forge_frame(payload: dict[str, Any]) -> dict[str, Any]:
    os.write(_own_socket(), payload["bytes"])
    time.sleep(1000)
    return {}


def kill_server(payload: dict[str, Any]) -> dict[str, Any]:
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(0.2)
    return {"survived": True}


def write_file(payload: dict[str, Any]) -> dict[str, Any]:
    try:
        Path(payload["path"]).write_text("changed")
    except OSError as error:
        return {"error": type(error).__name__}
    return {"error": ""}


def scratch_files(payload: dict[str, Any]) -> dict[str, Any]:
    Path("here.txt").write_text("x")
    return {"files": [p.name for p in Path().iterdir()], "cwd": str(Path.cwd())}


def environment(payload: dict[str, Any]) -> dict[str, Any]:
    import triton

    return {"names": sorted(os.environ), "interpret": triton.knobs.runtime.interpret}


def allocate(payload: dict[str, Any]) -> dict[str, Any]:
    return {"n": len(bytearray(payload["bytes"]))}


def fill_memory(payload: dict[str, Any]) -> dict[str, Any]:
    held = []
    for _ in range(payload["bytes"] >> 26):
        held.append(os.urandom(1) * (1 << 26))  # written, so in use
        time.sleep(0.02)
    time.sleep(0.6)
    return {"n": sum(map(len, held))}


def talk(payload: dict[str, Any]) -> dict[str, Any]:
    print("to stdout")
    print("to stderr", file=sys.stderr)
    return {}


def echo(payload: dict[str, Any]) -> dict[str, Any]:
    return payload


def sleep_marked(payload: dict[str, Any]) -> dict[str, Any]:
    subprocess.run(["sleep", MARK], check=False)
    return {}


def most_programs(launches: Any, target: Any) -> float:
    """A score for autotuned launches that prefers many programs."""
    return -float(launches[-1].grid[0])
