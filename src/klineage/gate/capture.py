# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportPrivateUsage=false, reportUnknownLambdaType=false, reportUnknownParameterType=false
# pyright: reportMissingTypeStubs=false, reportMissingParameterType=false
"""Capture every Triton launch a module makes, with no GPU: nothing is executed.

Triton asks ``triton.runtime.driver.active`` for the target, the device, the launcher and the loader of binaries.
``CaptureDriver`` answers all of them from plain Python, so that JITFunction.run, Autotuner.run, heuristics and
tensor descriptors stay Triton's own code: arguments are specialised, kernels are compiled for the target by the
wheel's own tools, resource limits raise OutOfResources as on hardware, and in place of cuLaunchKernel a ``Launch``
is recorded. For a process that ends afterwards: nothing is put back.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import io
import math
from collections.abc import Callable, Sequence
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
from .compile import Arg

MAX_THREADS_PER_BLOCK = 1024
MAX_GRID = (2**31 - 1, 65535, 65535)  # CUDA C++ programming guide, technical specifications
MAX_LAUNCHES = 4096
_PATIENCE = 4  # times as many configurations are tried while none has compiled


class LaunchError(Exception):
    """A launch that the hardware or this harness refuses; the message is one line."""


@dataclasses.dataclass(frozen=True)
class Launch:
    """One captured launch."""

    kernel: str
    grid: tuple[int, int, int]
    num_warps: int
    num_stages: int
    num_ctas: int
    args: tuple[Arg, ...]
    constexprs: dict[str, str]
    trial: bool  # the autotuner trying a configuration, not the launch the module finally makes
    config: str | None
    smem_bytes: int
    spill_bytes: int | None  # None when ptxas did not say
    compile_s: float | None  # None when it came from the cache
    cubin: bytes = dataclasses.field(repr=False)


Score = Callable[[Sequence[Launch], Target], float]


class Capture:
    """What is recorded, and the policy for autotuned kernels: at most ``max_configs`` configurations that compile
    are tried, spread over the list, and ``score`` (lower is better) chooses."""

    def __init__(self, target: Target, score: Score, max_configs: int) -> None:
        self.target = target
        self.launches: list[Launch] = []
        self.compile_seconds: dict[str, float] = {}  # by Triton's kernel hash, those compiled now
        self.current = ""  # name of the kernel being compiled or launched
        self.inputs: dict[int, int] = {}  # storage -> index of the entry's input
        self._score = score
        self._max_configs = max_configs
        self._tuners: list[Autotuner] = []
        self._trial_config: str | None = None
        self._tried = self._worked = 0
        self._first_error: Exception | None = None

    def record(self, launch: Launch) -> None:
        """Keep a launch. Raises LaunchError when its grid is beyond the hardware or there are too many launches."""
        for axis, size, limit in zip("xyz", launch.grid, MAX_GRID, strict=True):
            if size > limit:
                raise LaunchError(f"grid of {size} in {axis} exceeds the limit of {limit} in {launch.kernel}")
        if len(self.launches) >= MAX_LAUNCHES:
            raise LaunchError(f"more than {MAX_LAUNCHES} launches")
        self.launches.append(launch)

    @property
    def trial(self) -> bool:
        """Whether the autotuner is trying a configuration."""
        return self._trial_config is not None

    @property
    def config(self) -> str | None:
        """The autotuner's configuration in force."""
        if self._trial_config is not None:
            return self._trial_config
        best = getattr(self._tuners[-1], "best_config", None) if self._tuners else None
        return None if best is None else str(best)

    def do_bench(self, kernel_call: Callable[[], Any], *_: Any, quantiles: Any = None, **__: Any) -> Any:
        """Stands in for triton.testing.do_bench: launch once as a trial and score what was launched."""
        before = len(self.launches)
        outer, self._trial_config = self._trial_config, self._trial_config or "benchmark"
        try:
            kernel_call()
        except Exception as error:
            self._first_error = self._first_error or error
            raise
        finally:
            self._trial_config = outer
        value = self._score(self.launches[before:], self.target)
        return [value] * len(quantiles) if quantiles else value

    def tune(self, original: Callable[..., Any], tuner: Autotuner, *args: Any, **kwargs: Any) -> Any:
        """Autotuner.run with our benchmark."""
        tuner.__dict__["do_bench"] = self.do_bench  # also where the user gave one: nothing can be timed here
        tuner.cache_results = False
        saved = self._tried, self._worked, self._first_error
        self._tried, self._worked, self._first_error = 0, 0, None
        self._tuners.append(tuner)
        try:
            return original(tuner, *args, **kwargs)
        finally:
            self._tuners.pop()
            self._tried, self._worked, self._first_error = saved

    def bench(
        self, original: Callable[..., Any], tuner: Autotuner, *args: Any, config: Any, **meta: Any
    ) -> list[float]:
        """Autotuner._bench, skipped once enough configurations have been tried."""
        if self._tried >= self._max_configs * (1 if self._worked else _PATIENCE):
            return [math.inf] * 3
        self._tried += 1
        outer, self._trial_config = self._trial_config, str(config)
        try:
            timings = original(tuner, *args, config=config, **meta)
        finally:
            self._trial_config = outer
        self._worked += math.isfinite(timings[0])
        return timings

    def refuse_hopeless(self) -> None:
        """Raise what the first configuration raised when none has worked: the final launch would say the same after
        compiling once more."""
        if self._first_error is not None and not self._worked and not self.trial:
            raise self._first_error

    def spread(self, configs: list[Any]) -> list[Any]:
        """The configurations to try first, evenly spread over the list, then the rest."""
        count = len(configs)
        if count <= self._max_configs:
            return configs
        first = [int(i * count / self._max_configs) for i in range(self._max_configs)]
        return [configs[i] for i in first] + [c for i, c in enumerate(configs) if i not in set(first)]


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


class CaptureDriver(DriverBase):
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


class _Launcher:
    def __init__(self, capture: Capture, src: Any, metadata: Any) -> None:
        self._capture, self._src, self._metadata = capture, src, metadata

    def __call__(self, gx: Any, gy: Any, gz: Any, _stream: Any, function: Any, *rest: Any) -> None:
        # rest: packed metadata, launch metadata, two hooks, then the kernel's arguments
        metadata, capture = self._metadata, self._capture
        grid = (int(gx), int(gy), int(gz))
        if min(grid) <= 0:
            return  # as CUDA's launcher does
        arguments = zip(self._src.fn.arg_names, rest[4:], strict=False)
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
            )
        )

    def _argument(self, index: int, name: str, value: Any) -> Arg:
        attributes = self._src.attrs.get((index,), [])
        divisible = next((int(v) for k, v in attributes if k == "tt.divisibility"), 1)
        kind = str(self._src.signature.get(name, "constexpr"))
        source = self._capture.inputs.get(_storage(value)) if isinstance(value, torch.Tensor) else None
        return Arg(name, kind, divisible, _describe(value), source)


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
    torch.empty_like(torch.empty(2, 2, device="meta"))  # on meta this is Python code with seconds of imports
    source = ASTSource(_store_one, signature={"x": "*fp32"})
    with knobs.compilation.scope():
        knobs.compilation.always_compile = True  # from the cache it would load no compiler
        triton.compile(source, target=GPUTarget("cuda", 90, 32))


@triton.jit
def _store_one(x):  # Triton refuses annotations here
    tl.store(x, 1.0)
