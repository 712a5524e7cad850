# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportPrivateUsage=false
"""A candidate must leave the process as it found it: names of other modules, and switches that hold for all.

Only what was there before and is another object now counts; names that lazy imports add do not.
"""

from __future__ import annotations

import gc
import signal
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

_MODULES = (
    "builtins", "gc", "io", "json", "linecache", "math", "os", "socket", "sys", "threading", "time", "zlib", "numpy",
    "torch", "torch.cuda", "torch.nn.functional", "torch.testing", "torch.utils.benchmark", "torch.overrides",
    "triton", "triton.testing", "triton.language", "triton.language.core", "triton.language.math",
    "triton.language.standard", "triton.runtime", "triton.runtime.autotuner", "triton.runtime.driver",
    "triton.runtime.interpreter", "triton.runtime.jit", "triton.compiler", "triton.compiler.compiler",
)  # fmt: skip
_CLASSES = ("torch.Tensor", "torch.cuda.Event", "torch.cuda.Stream")
_OURS = {"klineage.gate.interpreter.executor": {"_runner"}}  # names the harness itself sets again
# Autotuners and jit functions keep their own state; sys.* names that the interpreter of Python itself sets
_MOVING = {
    "__warningregistry__",
    "_",
    "last_exc",
    "last_type",
    "last_value",
    "last_traceback",
    "exc_info",
    "path_importer_cache",
    "ps1",
}


def _loaded() -> Iterator[tuple[str, Any]]:
    for name, module in list(sys.modules.items()):
        if name in _MODULES or name.startswith("klineage."):
            yield name, module
            for key, value in list(vars(module).items()):
                own = isinstance(value, type) and getattr(value, "__module__", "") == name
                if own and (name.startswith("klineage.") or f"{name}.{key}" in _CLASSES):
                    yield f"{name}.{key}", value


def _flags() -> dict[str, Any]:
    readers: dict[str, Callable[[], Any]] = {
        "default dtype": torch.get_default_dtype,
        "default device": torch.get_default_device,
        "allow_tf32": lambda: (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32),
        "reduced precision": lambda: (
            torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
            torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
        ),
        "float32 matmul precision": torch.get_float32_matmul_precision,
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled,
        "number of threads": torch.get_num_threads,
        "gradient mode": torch.is_grad_enabled,
        "random seed": torch.initial_seed,
        "signal handlers": lambda: tuple(signal.getsignal(n) for n in (signal.SIGALRM, signal.SIGCHLD, signal.SIGINT)),
        "trace function": lambda: (sys.gettrace(), sys.getprofile()),
        "garbage collector": gc.isenabled,
        "recursion limit": sys.getrecursionlimit,
    }
    found: dict[str, Any] = {}
    for name, read in readers.items():
        try:
            found[name] = read()
        except Exception:  # a switch that this torch lacks
            found[name] = None
    return found


class TamperWatch:
    """Takes a snapshot when made; ``changes`` names what is another object now."""

    def __init__(self) -> None:
        self._names = {name: dict(vars(owner)) for name, owner in _loaded()}
        self._codes = {
            id(value): (value.__code__, value.__defaults__)
            for name, members in self._names.items()
            if name.startswith("klineage.")
            for value in members.values()
            if isinstance(value, types.FunctionType)
        }
        self._flags = _flags()

    def changes(self) -> list[str]:
        """Names rebound, removed or given other code, and switches thrown, since the snapshot."""
        found: list[str] = []
        owners = dict(_loaded())
        for name, before in self._names.items():
            now = dict(vars(owners[name])) if name in owners else {}
            for key, value in before.items():
                if key in _MOVING or key in _OURS.get(name, ()):
                    continue
                if now.get(key) is not value:
                    found.append(f"{name}.{key}")
                elif isinstance(value, types.FunctionType) and self._recoded(value):
                    found.append(f"the code of {name}.{key}")
            if isinstance(owners.get(name), type):  # lazy imports add to modules, nothing adds to these classes
                found += [f"{name}.{key}" for key in now.keys() - before.keys()]
        now_flags = _flags()
        found += [f"the global {name}" for name, value in self._flags.items() if now_flags[name] != value]
        return found

    def _recoded(self, function: types.FunctionType) -> bool:
        known = self._codes.get(id(function))
        return known is not None and known != (function.__code__, function.__defaults__)
