# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUnknownLambdaType=false
# pyright: reportAttributeAccessIssue=false
"""Fault: ``libdevice.*`` functions are stubs that return None or ask for IR.

Cure: the same functions on numpy arrays (torch for the special functions), in the precision of the arguments;
fp16, bf16 and fp8 are computed in fp32.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime import interpreter as native

from .formats import LOW, Array, TensorHandle, encode, make_tensor, numpy_dtype, values_of

Function = Callable[..., Array]
_MODULES = ("triton.language.extra.libdevice", "triton.language.extra.cuda.libdevice",
            "triton.language.extra.hip.libdevice")  # fmt: skip


def _torch(function: Callable[..., torch.Tensor]) -> Function:
    return lambda *args: function(*[torch.from_numpy(np.ascontiguousarray(a)) for a in args]).numpy()


def _normal_inverse(p: torch.Tensor) -> torch.Tensor:
    return torch.special.ndtri(p)


def _half_away(x: Array) -> Array:
    return np.copysign(np.floor(np.abs(x) + x.dtype.type(0.5)), x)


def _bit_count(x: Array) -> Array:
    return np.bitwise_count(x.view(f"u{x.itemsize}")).astype(np.int32)


def _leading_zeros(x: Array) -> Array:
    bits = x.view(f"u{x.itemsize}")
    width = 8 * x.itemsize
    result = np.full(x.shape, width, np.int32)
    for i in range(width):
        result[(bits >> bits.dtype.type(i)) & bits.dtype.type(1) == 1] = width - 1 - i
    return result


def _high_half(a: Array, b: Array) -> Array:
    if a.itemsize == 8:
        high = [(int(x) * int(y)) >> 64 for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True)]
        return np.array(high, dtype=a.dtype).reshape(a.shape)
    wide = np.int64 if a.dtype.kind == "i" else np.uint64
    return ((a.astype(wide) * b.astype(wide)) >> wide(8 * a.itemsize)).astype(a.dtype)


# functions that take one or more multi-function-unit instructions on the hardware; the rest counts as ALU work
TRANSCENDENTAL: dict[str, Function] = {
    "exp": np.exp, "exp2": np.exp2, "exp10": lambda x: np.power(x.dtype.type(10), x), "expm1": np.expm1,
    "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "cbrt": np.cbrt, "rcbrt": lambda x: 1 / np.cbrt(x),
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "sinpi": lambda x: np.sin(np.pi * x),
    "cospi": lambda x: np.cos(np.pi * x), "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "atan2": np.arctan2, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "pow": np.power, "hypot": np.hypot,
    "rhypot": lambda x, y: 1 / np.hypot(x, y), "norm3d": lambda a, b, c: np.sqrt(a * a + b * b + c * c),
    "rnorm3d": lambda a, b, c: 1 / np.sqrt(a * a + b * b + c * c),
    "erf": _torch(torch.erf), "erfc": _torch(torch.erfc), "erfinv": _torch(torch.erfinv),
    "erfcinv": _torch(lambda x: torch.erfinv(1 - x)), "erfcx": _torch(torch.special.erfcx),
    "normcdf": _torch(torch.special.ndtr), "normcdfinv": _torch(_normal_inverse),
    "lgamma": _torch(torch.lgamma), "tgamma": _torch(lambda x: torch.lgamma(x).exp()),
    "j0": _torch(torch.special.bessel_j0), "j1": _torch(torch.special.bessel_j1),
    "y0": _torch(torch.special.bessel_y0), "y1": _torch(torch.special.bessel_y1),
    "cyl_bessel_i0": _torch(torch.special.i0), "cyl_bessel_i1": _torch(torch.special.i1),
    "fast_expf": np.exp, "fast_exp10f": lambda x: np.power(x.dtype.type(10), x), "fast_logf": np.log,
    "fast_log2f": np.log2, "fast_log10f": np.log10, "fast_sinf": np.sin, "fast_cosf": np.cos, "fast_tanf": np.tan,
    "fast_tanhf": np.tanh, "fast_powf": np.power, "fast_dividef": np.divide, "div_rn": np.divide,
    "div_rz": np.divide, "div_rd": np.divide, "div_ru": np.divide, "rcp_rn": lambda x: 1 / x,
    "rcp_rz": lambda x: 1 / x, "rcp_rd": lambda x: 1 / x, "rcp_ru": lambda x: 1 / x, "sqrt_rn": np.sqrt,
    "sqrt_rz": np.sqrt, "sqrt_rd": np.sqrt, "sqrt_ru": np.sqrt, "rsqrt_rn": lambda x: 1 / np.sqrt(x),
    "fmod": np.fmod, "remainder": lambda x, y: x - np.rint(x / y) * y,
}  # fmt: skip
PLAIN: dict[str, Function] = {
    "abs": np.abs, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint, "nearbyint": np.rint,
    "round": _half_away, "copysign": np.copysign, "nextafter": np.nextafter, "fdim": lambda x, y: np.fmax(x - y, 0),
    "fma": lambda a, b, c: (a.astype(np.float64) * b + c).astype(a.dtype),
    "saturatef": lambda x: np.clip(np.nan_to_num(x), 0, 1), "ldexp": np.ldexp, "scalbn": np.ldexp,
    "logb": lambda x: np.floor(np.log2(np.abs(x))), "sad": lambda a, b, c: c + np.abs(a - b),
    "hadd": lambda a, b: (a >> 1) + (b >> 1) + (a & b & 1), "rhadd": lambda a, b: (a >> 1) + (b >> 1) + ((a | b) & 1),
    "mulhi": _high_half, "norm4d": lambda a, b, c, d: np.sqrt(a * a + b * b + c * c + d * d),
    "mul24": lambda a, b: (a << 8 >> 8) * (b << 8 >> 8),
}  # fmt: skip
for _mode in ("rn", "rz", "rd", "ru"):
    PLAIN[f"add_{_mode}"], PLAIN[f"sub_{_mode}"], PLAIN[f"mul_{_mode}"] = np.add, np.subtract, np.multiply
    PLAIN[f"fma_{_mode}"] = PLAIN["fma"]

# functions whose result type is not that of their arguments
_ROUND: dict[str, Function] = {"rn": np.rint, "rz": np.trunc, "rd": np.floor, "ru": np.ceil}
_FIXED: dict[str, tuple[Function, Any]] = {
    "isnan": (np.isnan, tl.int32), "isinf": (np.isinf, tl.int32), "finitef": (np.isfinite, tl.int32),
    "isfinited": (np.isfinite, tl.int32), "signbit": (np.signbit, tl.int32), "popc": (_bit_count, tl.int32),
    "clz": (_leading_zeros, tl.int32), "ffs": (lambda x: np.where(x == 0, 0, _bit_count((x & -x) - 1) + 1), tl.int32),
    "llrint": (np.rint, tl.int64), "llround": (_half_away, tl.int64),
    "ilogb": (lambda x: np.floor(np.log2(np.abs(x))), tl.int32),
    "float_as_int": (lambda x: x.view(np.int32), tl.int32), "int_as_float": (lambda x: x.view(np.float32), tl.float32),
    "float_as_uint": (lambda x: x.view(np.uint32), tl.uint32),
    "uint_as_float": (lambda x: x.view(np.float32), tl.float32),
    "longlong_as_double": (lambda x: x.view(np.float64), tl.float64),
    "double_as_longlong": (lambda x: x.view(np.int64), tl.int64),
}  # fmt: skip
_INTEGERS = {"int": tl.int32, "uint": tl.uint32, "ll": tl.int64, "ull": tl.uint64}
_REALS = {"float": tl.float32, "double": tl.float64}
for _suffix, _rounding in _ROUND.items():
    for _real, _real_type in _REALS.items():
        for _integer, _integer_type in _INTEGERS.items():
            _FIXED[f"{_real}2{_integer}_{_suffix}"] = (_rounding, _integer_type)
            _FIXED[f"{_integer}2{_real}_{_suffix}"] = (lambda x: x, _real_type)
    _FIXED[f"double2float_{_suffix}"] = (lambda x: x, tl.float32)


def evaluate(name: str, arrays: list[Array]) -> Array:
    """The named function on plain arrays of one float or integer type."""
    function = TRANSCENDENTAL.get(name) or PLAIN.get(name) or _FIXED[name][0]
    with np.errstate(all="ignore"):
        return np.asarray(function(*arrays))


def _replacement(name: str) -> Callable[..., Any]:
    def call(*args: Any, _semantic: Any = None, **_: Any) -> Any:
        return native.interpreter_builder.libdevice(name, args)

    call.__name__ = name
    return call


class Libdevice(native.InterpreterBuilder):  # pyright: ignore[reportUntypedBaseClass]
    """Calls of libdevice functions."""

    def libdevice(self, name: str, args: tuple[Any, ...]) -> Any:
        """Broadcast the arguments, compute, and give the result the type that libdevice's would have."""
        tensors = [native.interpreter_semantic.to_tensor(a) for a in args]
        leader = next((t for t, a in zip(tensors, args, strict=True) if isinstance(a, tl.core.tensor)), tensors[0])
        arrays = [values_of(t.handle) for t in tensors]
        if leader.dtype.is_floating():
            compute = np.float64 if leader.dtype.scalar == tl.float64 else np.float32
            arrays = [a.astype(compute, copy=False) if a.dtype.kind == "f" else a for a in arrays]
        result = evaluate(name, arrays)
        fixed = _FIXED.get(name)
        dtype = fixed[1] if fixed else leader.dtype.scalar
        data = encode(result, dtype) if dtype in LOW else result.astype(numpy_dtype(dtype))
        block = any(t.type.is_block() for t in tensors)
        return make_tensor(data, dtype) if block else tl.core.tensor(TensorHandle(data.reshape(1), dtype), dtype)


def patch_libdevice() -> None:
    """Put the functions in every libdevice module of this Triton."""
    for path in _MODULES:
        try:
            module = importlib.import_module(path)
        except ImportError:
            continue
        for name in (*TRANSCENDENTAL, *PLAIN, *_FIXED):
            if hasattr(module, name):
                setattr(module, name, _replacement(name))
