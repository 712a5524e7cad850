# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportPrivateUsage=false, reportUntypedBaseClass=false
# pyright: reportUnknownLambdaType=false
"""Fault: the interpreter calculates on the raw bits of bf16 and fp8, and its casts to them lose the carry.

Cure: widen to fp32, compute, round once to nearest even. Dots accumulate in fp32 as tensor cores do, unless
``out_dtype`` is fp16; TF32 dots drop the operands' low mantissa bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as native

from .formats import LOW, Array, TensorHandle, encode, is_low, narrow, numpy_dtype, round_tf32, truncate_bf16, values_of
from .formats import widen as widen_handle

_FP16_DOT_K = 16  # depth of one fp16 mma.sync instruction: rounding to fp16 happens after each


class LowFloats(native.InterpreterBuilder):
    """Arithmetic, casts, dots and atomics of narrow floats."""

    def cast_impl(self, src: Any, dst_type: Any) -> Any:
        source, target = src.dtype.scalar, dst_type.scalar
        if source == target:
            return TensorHandle(src.data, target)
        src = widen_handle(src)
        if target in LOW:
            return TensorHandle(encode(src.data, target), target)
        if src.dtype.scalar == target:
            return src
        return TensorHandle(src.data.astype(numpy_dtype(target)), target)

    def create_fp_to_fp(self, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        if rounding_mode == native._ir.ROUNDING_MODE.RTZ:
            if dst_type.scalar == tl.bfloat16:
                return TensorHandle(truncate_bf16(values_of(src)), tl.bfloat16)
            return super().create_fp_to_fp(src, dst_type, rounding_mode)
        return self.cast_impl(src, dst_type)

    def binary_op(self, lhs: Any, rhs: Any, op: Any) -> Any:
        dtype = lhs.dtype.scalar
        if dtype not in LOW:
            return super().binary_op(lhs, rhs, op)
        return narrow(super().binary_op(widen_handle(lhs), widen_handle(rhs), op), dtype)

    def unary_op(self, arg: Any, op: Any) -> Any:
        dtype = arg.dtype.scalar
        if dtype not in LOW:
            return super().unary_op(arg, op)
        return narrow(super().unary_op(widen_handle(arg), op), dtype)

    def ternary_op(self, lhs: Any, rhs: Any, other: Any, op: Any) -> Any:
        dtype = other.dtype.scalar
        if dtype not in LOW or op is np.where:  # a selection moves bits, whatever they mean
            return super().ternary_op(lhs, rhs, other, op)
        return narrow(super().ternary_op(widen_handle(lhs), widen_handle(rhs), widen_handle(other), op), dtype)

    def create_fma(self, x: Any, y: Any, z: Any) -> Any:
        dtype = z.dtype.scalar
        if dtype not in LOW:
            return super().create_fma(x, y, z)
        return narrow(super().create_fma(widen_handle(x), widen_handle(y), widen_handle(z)), dtype)

    def get_bf16(self, value: float) -> Any:
        """A bf16 constant; before triton 3.9 there is none."""
        return TensorHandle(encode(np.array([value], np.float32), tl.bfloat16), tl.bfloat16)

    def create_rsqrt(self, arg: Any) -> Any:
        return self.unary_op(arg, lambda x: (1 / np.sqrt(x)).astype(x.dtype))

    def create_dot(self, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
        dtype = d.dtype.scalar
        if dtype in (tl.int32, tl.float64):
            product = np.matmul(a.data.astype(np.float64), b.data.astype(np.float64))  # exact for 8-bit integers
            return TensorHandle(product.astype(d.data.dtype) + d.data, dtype)
        left, right = values_of(a), values_of(b)
        if a.dtype.scalar == tl.float32 and input_precision == native._ir.INPUT_PRECISION.TF32:
            left, right = round_tf32(left), round_tf32(right)
        left, right = left.astype(np.float32, copy=False), right.astype(np.float32, copy=False)
        if dtype == tl.float16:
            return TensorHandle(_fp16_accumulated(left, right, d.data), dtype)
        return TensorHandle(np.matmul(left, right) + d.data, dtype)

    def create_atomic_rmw(self, rmwOp: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        dtype = val.dtype.scalar
        if dtype not in LOW:
            return super().create_atomic_rmw(rmwOp, ptr, val, mask, sem, scope)
        pointers = np.broadcast_to(ptr.data, val.data.shape)
        chosen = np.broadcast_to(mask.data, val.data.shape)
        old = np.zeros_like(val.data)
        combine = _RMW[str(rmwOp).rsplit(".", maxsplit=1)[-1]]
        every = np.ones(1, dtype=bool)
        for i in np.ndindex(val.data.shape):  # one after another: lanes that share an address accumulate
            if not chosen[i]:
                continue
            place = np.asarray([pointers[i]])
            before = native._interpreter.load(place, every, np.zeros(1, val.data.dtype), val.data.dtype)
            added = TensorHandle(np.asarray([val.data[i]]), dtype)
            after = combine(self, TensorHandle(before, dtype), added)
            native._interpreter.store(place, after.data, every)
            old[i] = before[0]
        return TensorHandle(old, dtype)


_RMW = {
    "FADD": lambda self, x, y: self.create_fadd(x, y),
    "MAX": lambda self, x, y: self.create_maximumf(x, y),
    "MIN": lambda self, x, y: self.create_minimumf(x, y),
    "XCHG": lambda *handles: handles[2],
}


def _fp16_accumulated(left: Array, right: Array, start: Array) -> Array:
    total = start.astype(np.float16)
    for k in range(0, left.shape[-1], _FP16_DOT_K):
        step = np.matmul(left[..., k : k + _FP16_DOT_K], right[..., k : k + _FP16_DOT_K, :])
        total = (total.astype(np.float32) + step).astype(np.float16)
    return total


def patch_conversions() -> None:
    """Make the module-level conversion, which scaled dots call directly, round as the builder does."""
    plain = native._convert_float

    def convert(data: Any, source: Any, target: Any, mode: Any) -> Any:
        if mode == native._ir.ROUNDING_MODE.RTZ:
            return plain(data, source, target, mode)
        values = values_of(TensorHandle(data, source)) if source in LOW else data
        if target in LOW:
            return encode(values, target)
        if target in (tl.float16, tl.float32, tl.float64):
            return values.astype(numpy_dtype(target))
        return plain(data, source, target, mode)

    native._convert_float = convert


__all__ = ["LowFloats", "is_low", "patch_conversions"]
