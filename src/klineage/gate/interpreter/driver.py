# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportPrivateUsage=false, reportUnknownLambdaType=false, reportArgumentType=false
"""Fault: host code that asks Triton's driver for the device finds none.

Cure: a driver that answers with the target's properties and runs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget

from ...model import Target


class _Utils:
    def __init__(self, target: Target) -> None:
        self._target = target

    def get_device_properties(self, device: Any) -> dict[str, int]:
        """What the CUDA driver's helper returns, clock rates in kHz."""
        target = self._target
        return {
            "max_shared_mem": target.smem_per_block_bytes,
            "max_num_regs": target.regs_per_sm,
            "multiprocessor_count": target.sms,
            "warpSize": target.warp_size,
            "sm_clock_rate": int(target.sm_clock_ghz * 1e6),
            "mem_clock_rate": int(target.dram_gbps * 1e3),
            "mem_bus_width": 4096,
        }


class NullDriver:
    """Answers for a target; holds no device."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.utils = _Utils(target)

    def get_current_target(self) -> Any:
        """Triton's description of the target."""
        return GPUTarget("cuda", self._target.arch, self._target.warp_size)

    def get_current_device(self) -> int:
        """Always the first device."""
        return 0

    def set_current_device(self, device: int) -> None:
        """There is one device."""

    def get_current_stream(self, device: Any = None) -> int:
        """The default stream."""
        return 0

    def get_active_torch_device(self) -> torch.device:
        """Where tensors really are."""
        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        """torch.cuda, as far as it works without a device."""
        return torch.cuda

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """A buffer nobody times."""
        return torch.empty(1, dtype=torch.int32)

    def clear_cache(self, cache: Any) -> None:
        """Nothing is timed."""

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Nothing is launched."""
        return ty

    def get_benchmarker(self) -> Callable[..., list[float]]:
        """Runs the function once and reports zeros."""

        def once(function: Callable[[], Any], quantiles: Sequence[float] | None = None, **_: Any) -> list[float]:
            function()
            return [0.0] * len(quantiles or [1])

        return once


def set_driver(target: Target) -> None:
    """Make Triton believe in a device like ``target``."""
    triton.runtime.driver.set_active(NullDriver(target))
    if not hasattr(torch._C, "_cuda_getCurrentRawStream"):
        torch._C._cuda_getCurrentRawStream = lambda *_: 0
