"""Answers to module-level conditions of expert packages, found in a child process with a time limit.

What holds on every NVIDIA machine is decided (package versions, "is this an NPU?"); a condition that asks which GPU is
present is left undecided, so that the code choosing at run time stays in the kernel.
"""

from __future__ import annotations

import os
import subprocess
import sys
from functools import lru_cache

TIME_LIMIT_S = 60.0

_PREAMBLE = """
class _Undecided(BaseException):
    pass
def _undecided(*args, **kwargs):
    raise _Undecided
"""
_TORCH = """
import torch
torch.cuda.is_available = lambda: True
for _name in ("get_device_capability", "get_device_properties", "get_device_name", "device_count", "current_device",
              "mem_get_info", "get_arch_list", "init", "_lazy_init", "synchronize"):
    setattr(torch.cuda, _name, _undecided)
"""
_TRITON = """
import triton.runtime
class _Target:
    backend = "cuda"
    def __getattr__(self, name):
        raise _Undecided
class _Driver:
    def get_current_target(self):
        return _Target()
    def __getattr__(self, name):
        raise _Undecided
triton.runtime.driver.set_active(_Driver())
"""


@lru_cache(maxsize=256)
def answer(program: str) -> str | None:
    """The last line a program prints, or None when it fails, asks about the device, or takes too long.

    ``program`` sets ``klineage_answer`` to a string.
    """
    text = _PREAMBLE + (_TORCH if "import torch" in program else "") + (_TRITON if "import triton" in program else "")
    text += f"exec(compile({program!r}, '<condition>', 'exec'))\nprint('\\n' + str(klineage_answer))\n"
    environment = {k: v for k, v in os.environ.items() if k not in ("TRITON_INTERPRET", "PYTHONPATH")}
    environment["CUDA_VISIBLE_DEVICES"] = ""
    environment["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    try:
        done = subprocess.run(
            [sys.executable, "-c", text],
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT_S,
            env=environment,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    lines = done.stdout.strip().splitlines()
    return lines[-1] if done.returncode == 0 and lines else None
