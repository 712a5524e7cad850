"""Bubblewrap, where it is installed and the kernel does not let this process make namespaces itself.

Some distributions allow user namespaces to bubblewrap alone. The worker server is then started inside it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache

MARK = "KLINEAGE_IN_BUBBLEWRAP"  # set inside; the server reports these namespaces as its own
NAMESPACES = ("pid", "net", "ipc", "mount", "proc")
_TRY = "import ctypes; raise SystemExit(ctypes.CDLL(None, use_errno=True).unshare(0x10000000 | 0x40000000) != 0)"


def wrapper() -> list[str]:
    """The words to put before a command, or none.

    ``KLINEAGE_BUBBLEWRAP``: "always" uses it even where it is not needed, "never" does not.
    """
    wish = os.environ.get("KLINEAGE_BUBBLEWRAP", "")
    path = shutil.which("bwrap")
    if path is None or wish == "never" or (wish != "always" and _can_unshare()) or not _works(path):
        return []
    return _words(path)


def _words(path: str) -> list[str]:
    return [
        path, "--dev-bind", "/", "/", "--proc", "/proc", "--unshare-user", "--unshare-pid", "--unshare-net",
        "--unshare-ipc", "--die-with-parent", "--setenv", MARK, "1", "--",
    ]  # fmt: skip


@cache
def _can_unshare() -> bool:
    return _succeeds([sys.executable, "-I", "-S", "-c", _TRY])


@cache
def _works(path: str) -> bool:
    return _succeeds([*_words(path), "true"])


def _succeeds(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False
