# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportAttributeAccessIssue=false
"""Elementwise and shape operations of the tracing builder, made from tables.

Costs are in instructions per lane as a GPU issues them, on the ALU and on the multi-function unit (MUFU). Integer
work counts only on loaded data: the rest is index arithmetic, which compilers fold.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as native

from .formats import TensorHandle
from .scalars import set_loop_observer
from .trace import Tracer, TraceTooLong, tile

_ARITHMETIC: dict[str, tuple[float, float]] = {  # (ALU, MUFU)
    "create_fadd": (1, 0), "create_fsub": (1, 0), "create_fmul": (1, 0), "create_fneg": (1, 0),
    "create_fma": (1, 0), "create_fabs": (1, 0), "create_frem": (6, 1), "create_fdiv": (2, 1),
    "create_precise_divf": (2, 1), "create_approx_divf": (2, 1), "create_minimumf": (1, 0),
    "create_maximumf": (1, 0), "create_minnumf": (1, 0), "create_maxnumf": (1, 0), "create_clampf": (2, 0),
    "create_floor": (1, 0), "create_ceil": (1, 0), "create_exp": (1, 1), "create_exp2": (0, 1),
    "create_log": (1, 1), "create_log2": (0, 1), "create_sqrt": (0, 1), "create_precise_sqrt": (2, 1),
    "create_rsqrt": (0, 1), "create_sin": (1, 1), "create_cos": (1, 1), "create_erf": (8, 1),
}  # fmt: skip
_COMPARISONS = tuple(f"create_fcmp{order}{op}" for order in "OU" for op in ("LT", "GT", "LE", "GE", "EQ", "NE"))
_CASTS = ("cast_impl", "create_bitcast")
_SHAPES = ("create_reshape", "create_trans", "create_expand_dims", "create_broadcast", "create_unsplat")
_INTEGERS = (
    "create_add", "create_sub", "create_mul", "create_sdiv", "create_udiv", "create_srem", "create_urem", "create_shl",
    "create_lshr", "create_ashr", "create_minsi", "create_minui", "create_maxsi", "create_maxui", "create_and",
    "create_or", "create_xor", "create_umulhi", "create_iabs", "create_icmpSLE", "create_icmpSLT", "create_icmpSGE",
    "create_icmpSGT", "create_icmpULE", "create_icmpULT", "create_icmpUGE", "create_icmpUGT", "create_icmpEQ",
    "create_icmpNE",
)  # fmt: skip
_OTHERS = ("create_addptr", "create_gather", "create_cat", "create_int_to_ptr", "create_ptr_to_int")


ELEMENTWISE = (
    *_ARITHMETIC, *_COMPARISONS, *_CASTS, *_INTEGERS, "create_select", "create_addptr", "create_int_to_ptr",
    "create_ptr_to_int",
)  # fmt: skip


def is_batched(value: Any) -> bool:
    """Whether a handle has a leading axis of programs (see ``batch``)."""
    return getattr(value, "batched", False)


def _floating(dtype: Any) -> bool:
    return not dtype.is_ptr() and dtype.is_floating()


def _rounds(args: tuple[Any, ...]) -> int:
    latest = 0
    for arg in args:
        found = getattr(arg, "round", 0)
        if found > latest:  # noqa: PLR1730  a call of max costs more than the comparison
            latest = found
    return latest


def _largest(args: tuple[Any, ...]) -> Any:
    largest, size = args[0], -1
    for arg in args:
        if isinstance(arg, TensorHandle) and arg.data.size > size:
            largest, size = arg, arg.data.size
    return largest


def _arithmetic(plain: Callable[..., Any], alu: float, mufu: float) -> Callable[..., Any]:
    def operate(self: Tracer, *args: Any) -> Any:
        self.operation()
        leader = _largest(args)
        size = leader.data.size
        self.counts.alu_lanes += alu * size
        self.counts.mufu_lanes += mufu * size
        result = tile(args[0].dtype.scalar, leader.data.shape) if size > 1 else plain(self, *args)
        result.round = _rounds(args)
        return result

    return operate


def _comparison(plain: Callable[..., Any]) -> Callable[..., Any]:
    def operate(self: Tracer, *args: Any) -> Any:
        self.operation()
        leader = _largest(args)
        self.counts.alu_lanes += leader.data.size
        # the builder keeps the operands' type on comparisons and the language renames it
        result = TensorHandle(tile(tl.int1, leader.data.shape).data, args[0].dtype.scalar)
        result = result if leader.data.size > 1 else plain(self, *args)
        result.round = _rounds(args)
        return result

    return operate


def _cast(plain: Callable[..., Any]) -> Callable[..., Any]:
    def operate(self: Tracer, src: Any, dst_type: Any, *rest: Any) -> Any:
        self.operation()
        source, target = src.dtype.scalar, dst_type.scalar
        real = _floating(source) or _floating(target)
        size = src.data.size
        constant = getattr(src, "constant", False)
        if source != target and not constant and (real or getattr(src, "round", 0)):
            self.counts.alu_lanes += size
        result = tile(target, src.data.shape) if real and size > 1 else plain(self, src, dst_type, *rest)
        result.round = getattr(src, "round", 0)
        result.constant = constant
        return result

    return operate


def _select(plain: Callable[..., Any]) -> Callable[..., Any]:
    def operate(self: Tracer, cond: Any, lhs: Any, rhs: Any) -> Any:
        self.operation()
        leader = _largest((cond, lhs, rhs))
        taint = _rounds((cond, lhs, rhs))
        real = _floating(rhs.dtype.scalar)
        if real or taint:
            self.counts.alu_lanes += leader.data.size
        if real and leader.data.size > 1:
            result = tile(rhs.dtype.scalar, leader.data.shape)
        else:
            result = plain(self, cond, lhs, rhs)
        result.round = taint
        return result

    return operate


def _integer(plain: Callable[..., Any]) -> Callable[..., Any]:
    def operate(self: Tracer, *args: Any) -> Any:
        self.operation()
        result = plain(self, *args)
        taint = _rounds(args)
        if taint:
            self.counts.alu_lanes += result.data.size
        result.round = taint
        return result

    return operate


def _passing(plain: Callable[..., Any]) -> Callable[..., Any]:
    def operate(self: Tracer, *args: Any, **options: Any) -> Any:
        self.operation()
        result = plain(self, *args, **options)
        result.round = _rounds(args)
        return result

    return operate


def _splat(plain: Callable[..., Any]) -> Callable[..., Any]:
    def operate(self: Tracer, ret_ty: Any, arg: Any) -> Any:
        self.operation()
        if _floating(arg.dtype.scalar):
            result = tile(arg.dtype.scalar, tuple(int(n) for n in ret_ty.shape))
            result.constant = True  # the compiler folds what is done to a splat before it meets data
        else:
            result = plain(self, ret_ty, arg)
        result.round = _rounds((arg,))
        return result

    return operate


def _join(plain: Callable[..., Any]) -> Callable[..., Any]:
    def operate(self: Tracer, lhs: Any, rhs: Any) -> Any:
        self.operation()
        real = _floating(lhs.dtype.scalar)
        result = tile(lhs.dtype.scalar, (*lhs.data.shape, 2)) if real else plain(self, lhs, rhs)
        result.round = _rounds((lhs, rhs))
        return result

    return operate


def _split(plain: Callable[..., Any]) -> Callable[..., Any]:
    def operate(self: Tracer, val: Any) -> Any:
        self.operation()
        halves = plain(self, val)
        for half in halves:
            half.round = _rounds((val,))
        return halves

    return operate


def _range(plain: Callable[..., Any]) -> Callable[..., Any]:
    def operate(self: Tracer, *args: Any) -> Any:
        self.operation()
        return plain(self, *args)

    return operate


def equip() -> None:
    """Give the tracing builder its operations; those this Triton lacks are left out."""

    def put(names: Any, make: Callable[..., Any], *extra: Any) -> None:
        for name in (names,) if isinstance(names, str) else names:
            plain = getattr(Tracer, name, None)
            if plain is not None:
                setattr(Tracer, name, make(plain, *extra))

    for name, (alu, mufu) in _ARITHMETIC.items():
        put(name, _arithmetic, alu, mufu)
    put(_COMPARISONS, _comparison)
    put(_CASTS, _cast)
    put("create_select", _select)
    put(_INTEGERS, _integer)
    put((*_SHAPES, *_OTHERS), _passing)
    put("create_splat", _splat)
    put("create_join", _join)
    put("create_split", _split)
    put(("create_make_range", "create_get_program_id"), _range)


equip()


@contextlib.contextmanager
def using_builder(tracer: Any) -> Generator[None]:
    """Interpret with the tracing builder, which also hears of loops."""
    before = native.interpreter_builder
    observer = set_loop_observer(tracer)
    native.interpreter_builder = native.interpreter_semantic.builder = tracer
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        native.interpreter_builder = native.interpreter_semantic.builder = before
        set_loop_observer(observer)


__all__ = ["ELEMENTWISE", "TraceTooLong", "Tracer", "is_batched", "tile", "using_builder"]
