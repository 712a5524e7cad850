# pyright: reportPrivateUsage=false
# pyright: reportUnknownLambdaType=false, reportUnknownParameterType=false, reportMissingParameterType=false
"""Make host code believe it has a CUDA device: tensors say they are on ``cuda:0`` while they live elsewhere.

For a process that ends afterwards: nothing is put back.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from torch.overrides import TorchFunctionMode

from ..model import Target

Backing = Literal["meta", "cpu"]
CUDA = torch.device("cuda", 0)


class PretendCuda(TorchFunctionMode):
    """While active every tensor answers as if it were on ``cuda:0``; what is made "on cuda" is made on ``backing``.

    ``meta`` costs no memory and holds no values; ``cpu`` is for host code that reads values.
    """

    def __init__(self, backing: Backing) -> None:
        super().__init__()
        self._backing = torch.device(backing)
        getters: dict[Any, Any] = {
            torch.Tensor.device: CUDA,
            torch.Tensor.is_cuda: True,
            torch.Tensor.is_cpu: False,
            torch.Tensor.is_meta: False,
        }
        self._answers = {descriptor.__get__: answer for descriptor, answer in getters.items()}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Answer device questions, send every other call on with devices exchanged."""
        if func in self._answers:
            return self._answers[func]
        if func is torch.Tensor.get_device:
            return 0
        if func is torch.Tensor.cuda:
            return args[0].to(self._backing)
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None:
            kwargs["device"] = self._place(kwargs["device"])
        if func is torch.Tensor.to:
            args = (args[0], *(self._place(a) if isinstance(a, str | torch.device) else a for a in args[1:]))
        return func(*args, **kwargs)

    def _place(self, device: Any) -> Any:
        if isinstance(device, int) and not isinstance(device, bool):
            return self._backing
        try:
            return self._backing if torch.device(device).type == "cuda" else device
        except (RuntimeError, TypeError):
            return device


class _Stream:
    """Stands in for a CUDA stream or event: nothing is ever queued."""

    cuda_stream = 0
    stream_id = 0
    device = CUDA

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in ("synchronize", "wait_stream", "wait_event", "record", "wait", "record_event"):
            raise AttributeError(name)
        return lambda *_, **__: None


class _DeviceContext(contextlib.ContextDecorator):
    """Stands in for torch.cuda.device, device_of and stream."""

    def __init__(self, *_: object, **__: object) -> None:
        self.idx = self.prev_idx = 0

    def __enter__(self) -> _DeviceContext:
        return self

    def __exit__(self, *_: object) -> Literal[False]:
        return False


def device_properties(target: Target) -> Any:
    """What torch.cuda.get_device_properties would say of the target's part."""
    major, minor = target.capability
    return types.SimpleNamespace(
        name=target.part,
        major=major,
        minor=minor,
        multi_processor_count=target.sms,
        total_memory=80 << 30,
        warp_size=target.warp_size,
        max_threads_per_multi_processor=target.threads_per_sm,
        max_threads_per_block=1024,
        regs_per_multiprocessor=target.regs_per_sm,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=target.smem_per_block_bytes,
        shared_memory_per_multiprocessor=target.smem_per_sm_bytes,
        L2_cache_size=target.l2_bytes,
    )


def install(target: Target) -> None:
    """Let torch.cuda (and torch.accelerator) describe ``target`` as device 0 of a working machine."""
    properties = device_properties(target)
    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda *_: None,
        "get_device_capability": lambda *_, **__: target.capability,
        "get_device_properties": lambda *_, **__: properties,
        "get_device_name": lambda *_, **__: properties.name,
        "get_arch_list": lambda: [target.name],
        "current_stream": lambda *_, **__: _Stream(),
        "default_stream": lambda *_, **__: _Stream(),
        "Stream": lambda *_, **__: _Stream(),
        "Event": lambda *_, **__: _Stream(),
        "stream": _DeviceContext,
        "device": _DeviceContext,
        "device_of": _DeviceContext,
        "synchronize": lambda *_, **__: None,
        "empty_cache": lambda: None,
        "mem_get_info": lambda *_: (properties.total_memory, properties.total_memory),
        "is_bf16_supported": lambda *_, **__: target.arch >= 80,
        "is_current_stream_capturing": lambda: False,
    }
    for name, answer in answers.items():
        setattr(torch.cuda, name, answer)
    if not hasattr(torch._C, "_cuda_getCurrentRawStream"):  # triton asks torch for the raw stream by this name
        torch._C._cuda_getCurrentRawStream = lambda *_: 0  # type: ignore[attr-defined]
    accelerator = getattr(torch, "accelerator", None)
    if accelerator is not None:
        accelerator.is_available = lambda: True
        accelerator.current_accelerator = lambda *_, **__: torch.device("cuda")
        accelerator.device_count = lambda: 1
        accelerator.current_device_index = lambda: 0
        accelerator.synchronize = lambda *_, **__: None
