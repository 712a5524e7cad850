# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportUnknownLambdaType=false, reportPrivateUsage=false
"""Fault: reductions and scans work on the raw bits of bf16 and fp8, sum fp16 in fp32, and call a custom combine
function once per element.

Cure: a tree over whole slices (neighbours first, so that only associativity is used), rounding after each step as
the hardware does. Sums of fp32 and integers keep numpy's reduction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.language import standard

from .formats import LOW, TensorHandle, make_tensor, narrow, values_of, widen

Tensors = tuple[Any, ...]


def reduce(tensors: Tensors, axis: int | None, combine: Any, keep_dims: bool) -> Tensors:
    """Reduce each tensor of a tuple along ``axis`` (all axes when None) with a jit combine function."""
    rank = len(tensors[0].shape)
    if axis is not None and not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is out of range for a tensor of {rank} dimensions")
    if axis is None:
        flat = tuple(make_tensor(t.handle.data.reshape(-1), t.dtype) for t in tensors)
        reduced = _reduce_axis(flat, 0, combine)
        return tuple(_reshape(t, (1,) * rank) for t in reduced) if keep_dims else reduced
    axis %= rank
    reduced = _reduce_axis(tensors, axis, combine)
    if not keep_dims:
        return reduced
    shape = list(tensors[0].handle.data.shape)
    shape[axis] = 1
    return tuple(_reshape(t, tuple(shape)) for t in reduced)


def scan(tensors: Tensors, axis: int, combine: Any, reverse: bool) -> Tensors:
    """Inclusive scan of each tensor of a tuple along ``axis``."""
    axis %= len(tensors[0].shape)
    if reverse:
        tensors = tuple(_flip(t, axis) for t in tensors)
    result = _scan_axis(tensors, axis, combine)
    return tuple(_flip(t, axis) for t in result) if reverse else result


def _reshape(tensor: Any, shape: tuple[int, ...]) -> Any:
    return make_tensor(tensor.handle.data.reshape(shape), tensor.dtype)


def _flip(tensor: Any, axis: int) -> Any:
    return make_tensor(np.ascontiguousarray(np.flip(tensor.handle.data, axis)), tensor.dtype)


def _reduce_axis(tensors: Tensors, axis: int, combine: Any) -> Tensors:
    first = tensors[0]
    dtype = first.dtype.scalar
    if combine is standard._sum_combine and dtype not in LOW and dtype != tl.float16:
        data = first.handle.data
        return (make_tensor(np.asarray(np.add.reduce(data, axis, dtype=data.dtype)), dtype),)
    if combine in (standard._elementwise_max, standard._elementwise_min):
        op = np.fmax if combine is standard._elementwise_max else np.fmin
        extreme = np.asarray(op.reduce(values_of(first.handle), axis))
        if dtype in LOW:
            return (make_tensor(narrow(TensorHandle(extreme, tl.float32), dtype).data, dtype),)
        return (make_tensor(extreme, dtype),)
    if combine in _BITWISE:
        return (make_tensor(np.asarray(_BITWISE[combine].reduce(first.handle.data, axis)), dtype),)
    chooser = _CHOOSERS.get(combine)
    if chooser is not None:
        return _extreme_with_index(tensors, axis, *chooser)
    return _tree(tensors, axis, combine)


_BITWISE = {
    getattr(standard, name): operation
    for name, operation in (("_xor_combine", np.bitwise_xor), ("_or_combine", np.bitwise_or))
    if hasattr(standard, name)
}
_CHOOSERS = {
    standard._argmax_combine_tie_break_left: (np.argmax, -np.inf),
    standard._argmax_combine_tie_break_fast: (np.argmax, -np.inf),
    standard._argmin_combine_tie_break_left: (np.argmin, np.inf),
    standard._argmin_combine_tie_break_fast: (np.argmin, np.inf),
}


def _extreme_with_index(tensors: Tensors, axis: int, choose: Callable[..., Any], lowest: float) -> Tensors:
    """Value and index of the extreme; the leftmost when several are equal; NaN never wins against a number."""
    values = values_of(tensors[0].handle)
    if values.dtype.kind == "f":
        values = np.where(np.isnan(values), values.dtype.type(lowest), values)
    place = np.expand_dims(choose(values, axis), axis)
    picked = (np.take_along_axis(t.handle.data, place, axis).squeeze(axis) for t in tensors)
    return tuple(make_tensor(np.asarray(p), t.dtype) for p, t in zip(picked, tensors, strict=True))


def _combine(combine: Any, left: Tensors, right: Tensors, dtypes: list[Any]) -> Tensors:
    result = combine(*left, *right)
    result = result if isinstance(result, (tuple, list, tl.tuple)) else (result,)
    return tuple(_as_type(r, dtype) for r, dtype in zip(result, dtypes, strict=True))


def _as_type(tensor: Any, dtype: Any) -> Any:
    handle = tensor.handle
    if handle.dtype.scalar == dtype:
        return tensor
    if dtype in LOW:
        return make_tensor(narrow(widen(handle), dtype).data, dtype)
    return make_tensor(values_of(handle).astype(handle.data.dtype), dtype)


def _slices(tensors: Tensors, axis: int, where: slice) -> Tensors:
    index: tuple[Any, ...] = (slice(None),) * axis + (where,)
    return tuple(make_tensor(t.handle.data[index], t.dtype) for t in tensors)


def _tree(tensors: Tensors, axis: int, combine: Any) -> Tensors:
    dtypes = [t.dtype.scalar for t in tensors]
    while tensors[0].handle.data.shape[axis] > 1:  # block shapes are powers of two
        left, right = (_slices(tensors, axis, slice(start, None, 2)) for start in (0, 1))
        tensors = _combine(combine, left, right, dtypes)
    return tuple(make_tensor(t.handle.data.squeeze(axis), t.dtype) for t in tensors)


def _scan_axis(tensors: Tensors, axis: int, combine: Any) -> Tensors:
    first = tensors[0]
    ufunc = {standard._sum_combine: np.add, standard._prod_combine: np.multiply}.get(combine)
    if ufunc is not None and first.dtype.scalar not in LOW and first.dtype.scalar != tl.float16:
        data = first.handle.data
        return (make_tensor(ufunc.accumulate(data, axis, dtype=data.dtype), first.dtype),)
    dtypes = [t.dtype.scalar for t in tensors]
    size, step = first.handle.data.shape[axis], 1
    while step < size:  # Hillis and Steele: each element takes in the one `step` places to its left
        shifted = tuple(make_tensor(np.roll(t.handle.data, step, axis), t.dtype) for t in tensors)
        merged = _combine(combine, shifted, tensors, dtypes)
        tensors = tuple(_keep_first(t, m, axis, step) for t, m in zip(tensors, merged, strict=True))
        step *= 2
    return tensors


def _keep_first(before: Any, after: Any, axis: int, count: int) -> Any:
    """``after`` with the first ``count`` places along ``axis`` taken from ``before``: they have no left neighbour."""
    index: tuple[Any, ...] = (slice(None),) * axis + (slice(0, count),)
    data = after.handle.data.copy()
    data[index] = before.handle.data[index]
    return make_tensor(data, before.dtype)
