# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingTypeArgument=false
# pyright: reportPrivateImportUsage=false
"""Number formats of the interpreter: bf16 and fp8 live as raw bits in numpy arrays; here they become fp32 and back.

Rounding is to nearest even; conversions to fp8 saturate to the largest finite value (PTX ``cvt.rn.satfinite``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter as native

Array = np.ndarray[Any, Any]

_TORCH: dict[Any, torch.dtype] = {
    tl.bfloat16: torch.bfloat16,
    tl.float8e5: torch.float8_e5m2,
    tl.float8e4nv: torch.float8_e4m3fn,
    tl.float8e4b8: torch.float8_e4m3fnuz,
    tl.float8e5b16: torch.float8_e5m2fnuz,
}
LOW = frozenset(_TORCH)  # types the interpreter keeps as bits and would calculate on as integers
_LARGEST = {tl.float8e4nv: 448.0, tl.float8e5: 57344.0, tl.float8e4b8: 240.0, tl.float8e5b16: 57344.0}
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_fp8_tables: dict[Any, Array] = {}

TensorHandle = native.TensorHandle
_plain_numpy_dtype = native._get_np_dtype  # pyright: ignore[reportPrivateUsage]
_numpy_types: dict[str, np.dtype[Any]] = {}


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """The numpy type that holds a language type (pointers as uint64)."""
    scalar = dtype.scalar
    found = _numpy_types.get(scalar.name)
    if found is None:
        found = _numpy_types[scalar.name] = _plain_numpy_dtype(scalar)
    return found


def unsigned(itemsize: int) -> Any:
    """The unsigned numpy type of so many bytes."""
    return _UNSIGNED[itemsize]


def is_low(handle: Any) -> bool:
    """Whether a handle holds bf16 or fp8 bits."""
    return handle.dtype.scalar in LOW


def decode(bits: Array, dtype: Any) -> Array:
    """fp32 values of bf16 or fp8 bits."""
    if dtype == tl.bfloat16:
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    table = _fp8_tables.get(dtype)
    if table is None:
        every = torch.arange(256, dtype=torch.int32).to(torch.uint8).view(_TORCH[dtype])
        table = _fp8_tables[dtype] = every.to(torch.float32).numpy()
    return table[bits]


def encode(values: Array, dtype: Any) -> Array:
    """bf16 or fp8 bits of values (any float type), rounded to nearest even, fp8 saturated."""
    source = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
    largest = _LARGEST.get(dtype)
    if largest is not None:
        source = torch.where(source.isnan(), source, source.clamp(-largest, largest))
    rounded = source.to(_TORCH[dtype])
    if rounded.element_size() == 2:
        return rounded.view(torch.int16).numpy().view(np.uint16).reshape(values.shape)
    return rounded.view(torch.uint8).numpy().reshape(values.shape)


def truncate_bf16(values: Array) -> Array:
    """bf16 bits of fp32 values rounded toward zero."""
    return (np.ascontiguousarray(values, dtype=np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def widen(handle: Any) -> Any:
    """The handle in fp32 when it holds low-precision bits, else itself."""
    if not is_low(handle):
        return handle
    return TensorHandle(decode(handle.data, handle.dtype.scalar), tl.float32)


def narrow(handle: Any, dtype: Any) -> Any:
    """A computed handle rounded to ``dtype``; comparisons (booleans) pass unchanged."""
    if handle.data.dtype == np.bool_:
        return handle
    return TensorHandle(encode(handle.data, dtype), dtype)


def values_of(handle: Any) -> Array:
    """The handle's values as numpy numbers (bf16 and fp8 as fp32)."""
    return decode(handle.data, handle.dtype.scalar) if is_low(handle) else handle.data


class Diverged(BaseException):
    """Programs traced together disagree about a branch or a loop."""


def scalar_of(handle: Any) -> Any:
    """The one value of a scalar. Raises Diverged when programs traced together have different ones."""
    flat = handle.data.reshape(-1)
    if getattr(handle, "batched", False) and not (flat == flat[0]).all():
        raise Diverged("programs go different ways")
    return flat[0]


def repeated(value: Array, shape: tuple[int, ...]) -> Array:
    """One element seen as an array of ``shape`` through zero strides (``np.broadcast_to``, without its overhead)."""
    return np.ndarray(shape, value.dtype, np.ascontiguousarray(value), strides=(0,) * len(shape))


def make_tensor(data: Array, dtype: Any) -> Any:
    """A language tensor of data: a block when it has a shape, a scalar (shape [1] inside) otherwise."""
    if data.ndim:
        return tl.core.tensor(TensorHandle(data, dtype), tl.block_type(dtype, list(data.shape)))
    return tl.core.tensor(TensorHandle(data.reshape(1), dtype), dtype)


def round_tf32(values: Array) -> Array:
    """fp32 values as tensor cores read them in TF32 mode: the lowest 13 mantissa bits are dropped."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)
