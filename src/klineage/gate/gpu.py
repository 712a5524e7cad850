"""Which NVIDIA GPU this machine has, asked of the driver alone: no torch, and never in this process.

Initialising CUDA here would break every child that is forked later, so a child asks.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from ..errors import EnvironmentLackError, TargetError
from ..model import DEFAULT_TARGET, TARGETS, Frozen, Provenance, Target, target

_DRIVER_FILES = ("/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg")

_ASK = """
import ctypes, json
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
name, number, count = ctypes.create_string_buffer(128), ctypes.c_int(), ctypes.c_int()
assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value
assert cuda.cuDeviceGetName(name, 128, 0) == 0
def get(call, *arguments):
    assert call(ctypes.byref(number), *arguments) == 0
    return number.value
major, minor = (get(cuda.cuDeviceGetAttribute, which, 0) for which in (75, 76))  # compute capability
print(json.dumps({"name": name.value.decode(), "arch": 10 * major + minor, "count": count.value,
                  "cuda": get(cuda.cuDriverGetVersion)}))
"""


class Gpu(Frozen):
    """The first GPU. ``arch`` is 90 for compute capability 9.0; ``cuda`` the newest version the driver takes."""

    name: str
    arch: int
    count: int
    cuda: int  # 12080 is 12.8


def find_gpu() -> Gpu | None:
    """The GPU the driver names, or None when there is none or no driver."""
    if not any(Path(file).exists() for file in _DRIVER_FILES):
        return None
    try:
        asked = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, timeout=30, check=True)
        return Gpu.model_validate(json.loads(asked.stdout))
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def measurable_target() -> Target | None:
    """The GPU's architecture, or None when there is no GPU or KLineage does not know it."""
    gpu = find_gpu()
    return TARGETS.get(f"sm_{gpu.arch}") if gpu else None


def default_target() -> Target:
    """The GPU's architecture when KLineage knows it, else the default one."""
    return measurable_target() or TARGETS[DEFAULT_TARGET]


def choose(name: str | None, mode: str | None = None) -> tuple[Target, bool]:
    """The target to judge for, and whether by measuring.

    Without a mode a named target is modelled, and otherwise this machine's GPU measures when there is one. Raises
    TargetError for an unknown target or one that this GPU is not, EnvironmentLackError when there is no GPU to measure
    on, ValueError for an unknown mode.
    """
    asked = None if mode is None else Provenance(mode)
    named = None if name is None else target(name)
    if asked is Provenance.MODELLED or (asked is None and named is not None):
        return named or default_target(), False
    here = measurable_target()
    if asked is None:
        return here or TARGETS[DEFAULT_TARGET], here is not None
    if asked is not Provenance.MEASURED:
        raise ValueError(f"unknown mode {mode!r}")
    if here is None:
        raise EnvironmentLackError("no NVIDIA GPU that KLineage knows was found", "run klineage doctor, or model it")
    if named is not None and named != here:
        raise TargetError(f"this GPU is {here.name}, not {named.name}", "leave out the target, or model it")
    return here, True
