# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false, reportUnknownLambdaType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeStubs=false, reportMissingParameterType=false
"""A Triton driver for a device that is not there: it records launches in place of making them.

For a process that ends afterwards: nothing is put back.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import inspect
import io
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl
import triton.testing
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.backends.nvidia.compiler import CUDABackend, get_ptxas_version
from triton.compiler import ASTSource
from triton.runtime.autotuner import Autotuner
from triton.runtime.cache import triton_key
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction

from ..model import TARGETS, Target
from . import binary
from .capture import Capture, Launch
from .compile import Arg

MAX_THREADS_PER_BLOCK = 1024


class _Utils:
    """The part of a driver that loads binaries and knows the device."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def get_device_properties(self, _: int) -> dict[str, Any]:
        target = self._target
        return {
            "max_shared_mem": target.smem_per_block_bytes,
            "max_num_regs": target.regs_per_sm,
            "multiprocessor_count": target.sms,
            "warpSize": target.warp_size,
            "sm_clock_rate": int(target.sm_clock_ghz * 1e6),
            "mem_clock_rate": int(target.dram_gbps / 1024 * 1e6 / 2),  # with the width below gives the bandwidth
            "mem_bus_width": 8192,
        }

    def load_binary(self, name: str, cubin: bytes, *_: Any) -> tuple[Any, ...]:
        found = binary.parse_cubin(cubin)
        # the launcher is handed the "function": let it be the binary itself
        return name, cubin, found.registers, found.stack_bytes // 4, MAX_THREADS_PER_BLOCK

    def unload_module(self, _: Any) -> None:
        return None


_Base: Any = DriverBase  # its methods are declared to return nothing


class CaptureDriver(_Base):
    """A Triton driver for a device that is not there."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        self._target = GPUTarget("cuda", capture.target.arch, capture.target.warp_size)
        self.utils = _Utils(capture.target)
        self.launcher_cls = functools.partial(_Launcher, capture)
        self.get_current_device: Callable[[], int] = lambda: 0
        self.set_current_device: Callable[[int], None] = lambda _: None
        self.get_current_stream: Callable[..., int] = lambda *_: 0
        self.get_device_capability: Callable[..., tuple[int, int]] = lambda *_: capture.target.capability

    @classmethod
    def is_active(cls) -> bool:
        """Always: it was set on purpose."""
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Part of the driver's interface; no launcher is generated."""
        return ty

    def get_current_target(self) -> GPUTarget:
        """The target compiled for."""
        return self._target

    def get_active_torch_device(self) -> torch.device:
        """The device that tensors claim to be on."""
        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        """The torch module of the device."""
        return torch.cuda

    def get_benchmarker(self) -> Callable[..., Any]:
        """The static score in a benchmark's clothes."""
        return self._capture.do_bench

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """Nothing to flush."""
        return torch.empty(1, device="meta")

    def clear_cache(self, cache: Any) -> None:
        """Nothing to flush."""


@functools.cache
def _defined_at(function: Any) -> int:
    """The line of ``def``, below the decorators; 0 when there is no text."""
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        return 0
    return next((first + i for i, line in enumerate(lines) if line.lstrip().startswith("def ")), first)


class _Launcher:
    def __init__(self, capture: Capture, src: Any, metadata: Any) -> None:
        self._capture, self._src, self._metadata = capture, src, metadata

    def __call__(self, gx: Any, gy: Any, gz: Any, _stream: Any, function: Any, *rest: Any) -> None:
        # rest: packed metadata, launch metadata, two hooks, then the kernel's arguments
        metadata, capture = self._metadata, self._capture
        grid = (int(gx), int(gy), int(gz))
        if min(grid) <= 0:
            return  # as CUDA's launcher does
        arguments = list(zip(self._src.fn.arg_names, rest[4:], strict=False))
        if capture.recorder is not None and not capture.trial:
            self._write_down(grid, function, [value for _, value in arguments])
        capture.record(
            Launch(
                kernel=metadata.name,
                grid=grid,
                num_warps=metadata.num_warps,
                num_stages=metadata.num_stages,
                num_ctas=metadata.num_ctas,
                args=tuple(self._argument(i, name, value) for i, (name, value) in enumerate(arguments)),
                constexprs=_constexprs(self._src),
                trial=capture.trial,
                config=capture.config,
                smem_bytes=metadata.shared,
                spill_bytes=getattr(metadata, "klineage_spill_bytes", None),
                compile_s=capture.compile_seconds.get(metadata.hash),
                cubin=function,
                line=_defined_at(self._src.fn.fn),
            )
        )

    def _write_down(self, grid: tuple[int, int, int], cubin: bytes, values: list[Any]) -> None:
        kinds = {name: self._src.signature.get(name, "constexpr") for name in self._src.fn.arg_names}
        divisible = [self._divisible(index) for index in range(len(values))]
        key = hashlib.sha256(cubin).hexdigest()[:32]
        self._capture.recorder.launch(self._metadata.name, grid, self._metadata, kinds, values, key, divisible)

    def _divisible(self, index: int) -> int:
        attributes = self._src.attrs.get((index,), [])
        return next((int(v) for k, v in attributes if k == "tt.divisibility"), 1)

    def _argument(self, index: int, name: str, value: Any) -> Arg:
        kind = str(self._src.signature.get(name, "constexpr"))
        source = self._capture.inputs.get(_storage(value)) if isinstance(value, torch.Tensor) else None
        return Arg(name, kind, self._divisible(index), _describe(value), source)


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _constexprs(src: Any) -> dict[str, str]:
    named: dict[str, str] = {}
    for path, value in src.constants.items():
        name = ".".join([src.fn.arg_names[path[0]], *map(str, path[1:])])
        named[name] = str(getattr(value, "__name__", value))[:200]
    return named


def _describe(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        return {"shape": list(value.shape), "stride": list(value.stride()), "dtype": dtype}
    if hasattr(value, "block_shape"):
        return {"shape": list(value.shape), "stride": list(value.strides), "block": list(value.block_shape)}
    if isinstance(value, bool | int | float) or value is None:
        return value
    return str(value)[:200]


def install(capture: Capture) -> None:
    """Make Triton compile for the capture's target and record into it."""
    backend: Any = CUDABackend
    function: Any = JITFunction
    tuner: Any = Autotuner
    make_cubin, launch = backend.make_cubin, function.run
    run, bench, prune = tuner.run, tuner._bench, tuner.prune_configs

    def make_cubin_and_note_spills(self: Any, src: Any, metadata: dict[str, Any], *rest: Any) -> Any:
        if metadata["shared"] > capture.target.smem_per_block_bytes:
            # as the loader would say after ptxas, which takes longest just here
            raise OutOfResources(metadata["shared"], capture.target.smem_per_block_bytes, "shared memory")
        log = io.StringIO()
        knobs.nvidia.dump_ptxas_log = True  # Triton runs ptxas -v anyway and can print what it said
        try:
            with contextlib.redirect_stdout(log):  # on failure Triton prints the whole PTX as well
                cubin = make_cubin(self, src, metadata, *rest)
        finally:
            knobs.nvidia.dump_ptxas_log = False
        metadata["klineage_spill_bytes"] = binary.spill_bytes(log.getvalue())  # cached with the kernel
        return cubin

    def note_kernel(self: Any, *args: Any, **kwargs: Any) -> Any:
        capture.current = self.fn.__name__
        capture.refuse_hopeless()
        return launch(self, *args, **kwargs)

    def note_time(*, metadata: dict[str, Any], times: Any, cache_hit: bool, **_: Any) -> None:
        if not cache_hit:
            capture.compile_seconds[metadata["hash"]] = times.total / 1e6

    backend.make_cubin = make_cubin_and_note_spills
    function.run = note_kernel
    tuner.run = lambda self, *args, **kwargs: capture.tune(run, self, *args, **kwargs)
    tuner._bench = lambda self, *args, **kwargs: capture.bench(bench, self, *args, **kwargs)
    tuner.prune_configs = lambda self, *args, **kwargs: capture.spread(prune(self, *args, **kwargs))
    triton.testing.do_bench = triton.testing.do_bench_cudagraph = capture.do_bench
    knobs.compilation.listener = note_time
    triton.runtime.driver.set_active(CaptureDriver(capture))


def warm_up() -> None:
    """Do once, before forking, what every compilation needs: hash Triton itself, ask the tools for their versions,
    import what torch and Triton import late."""
    triton_key()
    for target in TARGETS.values():
        get_ptxas_version(target.arch)
    for name in ("triton.experimental.gluon.nvidia.hopper", "triton.experimental.gluon.nvidia.blackwell"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    importlib.import_module("torch._dynamo")  # imported late by the first operator seen by a dispatch mode
    torch.empty_like(torch.empty(2, 2, device="meta"))  # on meta this is Python code with seconds of imports
    source = ASTSource(_store_one, signature={"x": "*fp32"})
    with knobs.compilation.scope():
        knobs.compilation.always_compile = True  # from the cache it would load no compiler
        triton.compile(source, target=GPUTarget("cuda", 90, 32))


@triton.jit
def _store_one(x):  # Triton refuses annotations here
    tl.store(x, 1.0)
