# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Replays a recorded program on the GPU: buffers with canaries, fills and copies, and launches through the driver.

For the trusted worker. Tensors live in buffers of their own with a guarded margin on each side; kernels are the
captured binaries, launched with cuLaunchKernel. Numbers of bytes and offsets are as the launcher asked for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from . import device
from .device import CudaError

GUARD = 1 << 16  # bytes on either side of every buffer
CANARY = 0xA5
_CTYPES: dict[str, Any] = {
    "i1": ctypes.c_int8, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
    "u1": ctypes.c_uint8, "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32,
    "u64": ctypes.c_uint64, "fp32": ctypes.c_float, "fp64": ctypes.c_double,
}  # fmt: skip
_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_SMALL_SHARED = 48 << 10


class Impossible(Exception):
    """The program cannot be replayed faithfully here; the message says why."""


class Loader(Protocol):
    """What loads and launches binaries: ``Driver`` on a GPU. A function is whatever it takes for one."""

    def function(self, key: str, cubin: bytes, name: str, shared: int) -> Any:
        """A kernel of a binary, loaded once."""
        ...

    def parameters(self, function: Any) -> int | None:
        """How many parameters a kernel has, or None when that cannot be said."""
        ...

    def launcher(self, function: Any, step: dict[str, Any], values: Sequence[Any]) -> Callable[[], None]:
        """A call that launches a kernel with these values."""
        ...


class Driver:
    """The few driver calls needed, on torch's primary context."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._functions: dict[tuple[str, str], ctypes.c_void_p] = {}
        self._pinned: list[Any] = []
        torch.cuda.init()
        torch.empty(1, device="cuda")

    def function(self, key: str, cubin: bytes, name: str, shared: int) -> ctypes.c_void_p:
        """A kernel of a binary, loaded once."""
        found = self._functions.get((key, name))
        if found is not None:
            return found
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(cubin))
        self._call("cuModuleGetFunction", ctypes.byref(function), module, name.encode())
        if shared > _SMALL_SHARED:
            self._call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, shared)
        self._functions[key, name] = function
        return function

    def parameters(self, function: ctypes.c_void_p) -> int | None:
        """How many parameters a kernel has, or None when the driver is too old to say (before CUDA 12.4)."""
        if not hasattr(self._cuda, "cuFuncGetParamInfo"):
            return None
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        count = 0
        while (
            self._cuda.cuFuncGetParamInfo(function, ctypes.c_size_t(count), ctypes.byref(offset), ctypes.byref(size))
            == 0
        ):
            count += 1
        return count

    def launcher(self, function: ctypes.c_void_p, step: dict[str, Any], values: Sequence[Any]) -> Callable[[], None]:
        """A call that launches a kernel with these values on torch's current stream."""
        held = list(values)
        pointers = (ctypes.c_void_p * len(held))(*(ctypes.cast(ctypes.pointer(v), ctypes.c_void_p) for v in held))
        grid = [ctypes.c_uint(n) for n in step["grid"]]
        threads, shared = ctypes.c_uint(step["threads"]), ctypes.c_uint(step["smem"])
        one, launch = ctypes.c_uint(1), self._cuda.cuLaunchKernel
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

        def call(_held: Any = held) -> None:
            code = launch(function, *grid, threads, one, one, shared, stream, pointers, None)
            if code:
                raise CudaError(code, f"launch of {step['kernel']}")

        return call

    def _call(self, name: str, *args: Any) -> None:
        code = getattr(self._cuda, name)(*args)
        if code:
            raise CudaError(code, name)


class Buffer:
    """Device memory with guarded margins."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._bytes = torch.full((size + 2 * GUARD + -size % 512,), CANARY, dtype=torch.uint8, device=device.DEVICE)

    def view(self, shape: Sequence[int], stride: Sequence[int], offset: int, dtype: torch.dtype) -> torch.Tensor:
        """A tensor in the buffer; ``offset`` in elements. Raises Impossible when it leaves the buffer."""
        span = offset + (1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True)) if 0 not in shape else 0)
        if span * dtype.itemsize > self.size:
            raise Impossible("a tensor leaves its memory")
        empty = torch.empty(0, dtype=dtype, device=device.DEVICE)
        return empty.set_(self._bytes.untyped_storage(), GUARD // dtype.itemsize + offset, shape, stride)

    def content(self) -> torch.Tensor:
        """The bytes between the margins."""
        return self._bytes[GUARD : GUARD + self.size]

    def intact(self) -> bool:
        """Whether nothing was written in the margins."""
        margins = (self._bytes[:GUARD], self._bytes[GUARD + self.size :])
        return all(bool((m == CANARY).all()) for m in margins)

    def poison(self, dtype: torch.dtype) -> None:
        """NaN where the type has one, bytes 0xA5 otherwise."""
        whole = self.content()
        if dtype.is_floating_point and dtype.itemsize > 1 and self.size % dtype.itemsize == 0:
            whole.view(dtype).fill_(float("nan"))
        else:
            whole.fill_(CANARY)


def place(inputs: Sequence[Any]) -> dict[str, Buffer]:
    """The storages of a case's inputs on the device, by name."""
    placed: dict[str, Buffer] = {}
    for index, value in enumerate(inputs):
        if isinstance(value, torch.Tensor):
            data = _bytes_of(value)
            placed[f"input{index}"] = buffer = Buffer(len(data))
            buffer.content().copy_(data)
    return placed


class Replay:
    """A program bound to device memory: ``run`` executes it; ``outputs`` are its results.

    ``inputs`` are buffers from ``place``; several programs may read the same ones.
    """

    def __init__(
        self, driver: Loader, program: dict[str, Any], cubins: dict[str, bytes], inputs: dict[str, Buffer]
    ) -> None:
        if program["impossible"]:
            raise Impossible(str(program["impossible"]))
        self._driver, self._cubins = driver, cubins
        self.buffers: dict[str, Buffer] = dict(inputs)
        self._dtypes: dict[str, torch.dtype] = {}
        self._data: dict[str, torch.Tensor] = {}  # what came from the host
        self.actions: list[Callable[[], Any]] = []
        for step in program["steps"]:
            self._prepare(step)
        self.outputs = [self._tensor(view) for view in program["outputs"]]

    def run(self) -> None:
        """Queue the whole program once."""
        for action in self.actions:
            action()

    def poison(self) -> None:
        """Spoil everything the program allocates and put back what came from the host: nothing outlives a call."""
        for name, dtype in self._dtypes.items():
            self.buffers[name].poison(dtype)
        for name, data in self._data.items():
            self.buffers[name].content().copy_(data)

    def broken(self) -> str:
        """What was written outside, or ""."""
        spoiled = [name for name, buffer in self.buffers.items() if not buffer.intact()]
        return f"it wrote outside {_said(spoiled[0])}" if spoiled else ""

    def changed(self, inputs: Sequence[Any]) -> list[int]:
        """Indices of inputs whose memory is not what it was."""
        found: list[int] = []
        for index, value in enumerate(inputs):
            placed = self.buffers.get(f"input{index}")
            if placed is not None and not torch.equal(placed.content().cpu(), _bytes_of(value)):
                found.append(index)
        return found

    def _prepare(self, step: dict[str, Any]) -> None:
        kind = step["op"]
        if kind == "alloc":
            self.buffers[step["storage"]] = Buffer(int(step["bytes"]))
            self._dtypes[step["storage"]] = getattr(torch, step["dtype"])
        elif kind == "data":
            self._data[step["storage"]] = data = step["data"].to(device.DEVICE)
            self.buffers[step["storage"]] = buffer = Buffer(len(data))
            buffer.content().copy_(data)
        elif kind == "fill":
            target, value = self._tensor(step["view"]), step["value"]
            self.actions.append(lambda: target.fill_(value))
        elif kind == "copy":
            target, source = self._tensor(step["view"]), self._tensor(step["source"])
            self.actions.append(lambda: target.copy_(source))
        elif kind == "reduce":
            self._prepare_reduction(step)
        else:
            self._prepare_launch(step)

    def _prepare_reduction(self, step: dict[str, Any]) -> None:
        target, source = self._tensor(step["view"]), self._tensor(step["source"])
        reduce = getattr(torch, step["how"])
        self.actions.append(lambda: target.copy_(reduce(source, dim=step["dims"], keepdim=step["keep"])))

    def _prepare_launch(self, step: dict[str, Any]) -> None:
        values: list[Any] = []
        for param in step["params"]:
            if param["kind"] == "ptr":
                address = self._tensor(param["view"]).data_ptr()
                if address % max(1, int(param["divisible"])):
                    raise Impossible(f"{step['kernel']} was compiled for an address that is aligned otherwise")
                values.append(ctypes.c_void_p(address))
            else:
                values.append(_CTYPES[param["kind"]](param["value"]))
        function = self._driver.function(step["cubin"], self._cubins[step["cubin"]], step["kernel"], step["smem"])
        wanted = self._driver.parameters(function)
        # newer Tritons append pointers to scratch memory, which the recorder has made sure is not used
        extra = 2 if wanted is None else wanted - len(values)
        if not 0 <= extra <= 2:
            raise Impossible(f"{step['kernel']} takes {wanted} parameters, {len(values)} are known")
        values += [ctypes.c_void_p(0)] * extra
        self.actions.append(self._driver.launcher(function, step, values))

    def _tensor(self, view: dict[str, Any]) -> torch.Tensor:
        buffer = self.buffers.get(view["storage"])
        if buffer is None:
            raise Impossible("a tensor comes from where nothing was written down")
        return buffer.view(view["shape"], view["stride"], view["offset"], getattr(torch, view["dtype"]))


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


def _said(name: str) -> str:
    return f"input {name.removeprefix('input')}" if name.startswith("input") else "memory that it allocated"
