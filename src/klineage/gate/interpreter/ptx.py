"""A small evaluator of straight-line PTX over numpy arrays: what ``inline_asm_elementwise`` snippets are made of.

Registers hold raw bits, one element per invocation. Modelled: moves (with vector packing), integer and float
arithmetic, approximations, comparisons and selections, predicates, ``lop3``, ``prmt``, conversions. Approximate
instructions are computed exactly.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class UnsupportedPtx(NotImplementedError):
    """A snippet with an instruction that is not modelled."""


_FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
_NO_EFFECT = ("griddepcontrol", "bar", "membar", "fence", "nanosleep", "prefetch", "discard", "elect")
_WORD = re.compile(r"\{[^}]*\}|[^,\s|]+")


def evaluate(text: str, registers: dict[str, Array], count: int) -> None:
    """Run a snippet; ``registers`` ("$0", ...) are read and written in place, each of ``count`` raw values.

    Raises UnsupportedPtx.
    """
    for statement in _statements(text):
        _execute(statement, registers, count)


def _statements(text: str) -> list[str]:
    text = re.sub(r"//[^\n]*", "", re.sub(r"/\*.*?\*/", "", text, flags=re.S))
    # braces that open a scope, not a vector operand: those stand first or last in a statement
    parts = [re.sub(r"^[{}\s]+", "", p) if not re.match(r"\s*\{[^}]*\}\s*,", p) else p for p in text.split(";")]
    return [p.strip() for p in parts if p.strip() and not p.strip().startswith(".reg") and p.strip() not in "{}"]


def _execute(statement: str, registers: dict[str, Array], count: int) -> None:
    guard: Array | None = None
    if statement.startswith("@"):
        name, _, statement = statement[1:].partition(" ")
        guard = registers[name.lstrip("!")].astype(bool) ^ name.startswith("!")
        statement = statement.strip()
    opcode, _, rest = statement.partition(" ")
    if opcode.startswith(_NO_EFFECT):
        return
    operands = _WORD.findall(rest)
    kinds = opcode.split(".")
    if kinds[0] == "setp":
        result = _compare(kinds, [_read(o, kinds[-1], registers, count) for o in operands[-2:]])
        registers[operands[0]] = result if guard is None else np.where(guard, result, registers[operands[0]])
        return
    target = operands[0]
    if kinds[0] == "mov" and target.startswith("{"):
        _unpack(target, operands[1], kinds[-1], registers, count)
        return
    bits = _bits(_compute(kinds, operands[1:], registers, count), count)
    if guard is not None and target in registers:
        bits = np.where(guard, bits, registers[target].astype(bits.dtype))
    registers[target] = bits


def _bits(values: Array, count: int) -> Array:
    values = np.ascontiguousarray(np.broadcast_to(values, (count,)))
    return values.view(f"u{values.itemsize}") if values.dtype != np.bool_ else values


def _type(kind: str) -> Any:
    if kind in _FLOATS:
        return _FLOATS[kind]
    match = re.fullmatch(r"([usb])(8|16|32|64)", kind)
    if match is None:
        raise UnsupportedPtx(f"PTX type .{kind} is not modelled in the interpreter")
    return np.dtype(f"{'i' if match[1] == 's' else 'u'}{int(match[2]) // 8}").type


def _immediate(text: str, dtype: Any) -> Array:
    if text.lower().startswith("0f"):
        return np.array([int(text[2:], 16)], np.uint32).view(np.float32).astype(dtype)
    if np.issubdtype(dtype, np.floating):
        return np.array([float(text)], dtype)
    value = int(text.rstrip("U"), 0) & ((1 << 8 * np.dtype(dtype).itemsize) - 1)
    return np.array([value], np.dtype(f"u{np.dtype(dtype).itemsize}")).view(dtype)


def _read(operand: str, kind: str, registers: dict[str, Array], count: int) -> Array:
    if kind in ("f16x2", "bf16x2"):
        raw = _read(operand, "b32", registers, count)
        halves = np.broadcast_to(raw, (count,)).copy().view(np.uint16).reshape(count, 2)
        return halves.view(np.float16) if kind == "f16x2" else (halves.astype(np.uint32) << 16).view(np.float32)
    if kind == "bf16":
        return (_read(operand, "b16", registers, count).astype(np.uint32) << np.uint32(16)).view(np.float32)
    dtype = _type(kind)
    if operand.startswith("{"):
        parts = [
            _read(o, f"b{8 * np.dtype(dtype).itemsize // 2}", registers, count) for o in _WORD.findall(operand[1:-1])
        ]
        return np.stack([np.broadcast_to(p, (count,)) for p in parts], -1).copy().view(dtype).reshape(count)
    if operand in registers:
        width = np.dtype(dtype).itemsize
        return registers[operand].astype(f"u{width}").view(dtype)
    if operand.startswith("%"):
        special = {"%globaltimer": time.perf_counter_ns(), "%clock64": time.perf_counter_ns(), "%nsmid": 1}
        return np.full(count, special.get(operand, 0), dtype=np.uint64).astype(dtype)
    try:
        return _immediate(operand, dtype)
    except ValueError:
        raise UnsupportedPtx(f"PTX operand {operand} is not modelled in the interpreter") from None


def _unpack(target: str, source: str, kind: str, registers: dict[str, Array], count: int) -> None:
    names = _WORD.findall(target[1:-1])
    whole = np.broadcast_to(_read(source, kind, registers, count), (count,)).copy()
    pieces = whole.view(f"u{whole.itemsize // len(names)}").reshape(count, len(names))
    for i, name in enumerate(names):
        registers[name] = pieces[:, i].copy()


def _compare(kinds: list[str], values: list[Array]) -> Array:
    table: dict[str, Callable[[Array, Array], Array]] = {
        "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "eq": np.equal,
        "ne": np.not_equal, "ltu": np.less, "gtu": np.greater, "lo": np.less, "hi": np.greater,
    }  # fmt: skip
    if kinds[-1].endswith("x2") or kinds[1] not in table:
        raise UnsupportedPtx(f"PTX instruction {'.'.join(kinds)} is not modelled in the interpreter")
    return table[kinds[1]](*values)


_UNARY: dict[str, Callable[[Array], Array]] = {
    "mov": lambda x: x, "neg": np.negative, "abs": np.abs, "not": np.invert, "ex2": np.exp2, "lg2": np.log2,
    "rcp": lambda x: 1 / x, "rsqrt": lambda x: 1 / np.sqrt(x), "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos,
    "tanh": np.tanh,
}  # fmt: skip
_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "div": np.divide, "min": np.fmin, "max": np.fmax, "and": np.bitwise_and,
    "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def _compute(kinds: list[str], operands: list[str], registers: dict[str, Array], count: int) -> Array:
    name, kind = kinds[0], kinds[-1]
    if name == "cvt":
        return _convert(kinds, operands, registers, count)
    if name in ("shl", "shr"):
        amount = np.minimum(_read(operands[1], "u32", registers, count), 63).astype(np.uint64)
        value = _read(operands[0], kind, registers, count)
        wide = value.astype(np.int64 if kind.startswith("s") else np.uint64)
        moved = wide << amount.astype(wide.dtype) if name == "shl" else wide >> amount.astype(wide.dtype)
        return moved.astype(value.dtype)
    if name == "selp":
        first, second = (_read(o, kind, registers, count) for o in operands[:2])
        return np.where(registers[operands[2]].astype(bool), first, second)
    if name == "lop3":
        return _lop3(operands, registers, count)
    if name == "prmt":
        return _prmt(operands, registers, count)
    values = [_read(o, kind, registers, count) for o in operands]
    with np.errstate(all="ignore"):
        result = _arithmetic(kinds, values)
    return _pack_halves(result, kind) if kind in ("f16x2", "bf16x2", "bf16") else result


def _arithmetic(kinds: list[str], values: list[Array]) -> Array:
    name = kinds[0]
    dtype = values[0].dtype
    if name in _UNARY:
        return _UNARY[name](values[0]).astype(dtype)
    if name in _BINARY:
        return _BINARY[name](values[0], values[1]).astype(dtype)
    if name in ("mul", "mad", "fma"):
        if "hi" in kinds or "wide" in kinds:
            raise UnsupportedPtx(f"PTX instruction {'.'.join(kinds)} is not modelled in the interpreter")
        if dtype.kind == "f" and len(values) == 3:
            exact = values[0].astype(np.float64) * values[1].astype(np.float64) + values[2].astype(np.float64)
            return exact.astype(dtype)
        product = (values[0] * values[1]).astype(dtype)
        return product if len(values) == 2 else (product + values[2]).astype(dtype)
    raise UnsupportedPtx(f"PTX instruction {'.'.join(kinds)} is not modelled in the interpreter")


def _to_bf16(values: Array) -> Array:
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint32(0x7FFF), rounded).astype(np.uint16)


def _pack_halves(values: Array, kind: str) -> Array:
    if kind == "bf16":
        return _to_bf16(values)
    halves = _to_bf16(values) if kind == "bf16x2" else values.astype(np.float16).view(np.uint16)
    return np.ascontiguousarray(halves).view(np.uint32).reshape(-1)


def _convert(kinds: list[str], operands: list[str], registers: dict[str, Array], count: int) -> Array:
    target, source = kinds[-2], kinds[-1]
    values = [_read(o, source, registers, count) for o in operands]
    if target in ("f16x2", "bf16x2"):  # cvt.rn.f16x2.f32 d, a, b: a becomes the upper half
        pair = np.stack([np.broadcast_to(v, (count,)) for v in reversed(values)], -1)
        return _pack_halves(pair, target)
    value = values[0]
    if target == "bf16":
        return _to_bf16(value.astype(np.float32))
    dtype = _type(target)
    if value.dtype.kind == "f" and not np.issubdtype(dtype, np.floating):
        mode = next((m for m in ("rni", "rzi", "rmi", "rpi") if m in kinds), "rzi")
        rounding = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[mode]
        limits = np.iinfo(dtype)
        return np.clip(np.nan_to_num(rounding(value.astype(np.float64))), limits.min, limits.max).astype(dtype)
    return value.astype(dtype)


def _lop3(operands: list[str], registers: dict[str, Array], count: int) -> Array:
    a, b, c = (_read(o, "b32", registers, count) for o in operands[:3])
    table = int(operands[3], 0)
    result = np.zeros(count, np.uint32)
    for i in range(8):
        if table >> i & 1:
            result |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
    return result


def _prmt(operands: list[str], registers: dict[str, Array], count: int) -> Array:
    a, b, selector = (np.broadcast_to(_read(o, "b32", registers, count), (count,)) for o in operands[:3])
    pool = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
    result = np.zeros(count, np.uint32)
    for i in range(4):
        choice = (selector >> np.uint32(4 * i)) & np.uint32(0xF)
        byte = (pool >> (8 * (choice & 7)).astype(np.uint64)).astype(np.uint32) & np.uint32(0xFF)
        byte = np.where(choice & 8, np.where(byte & 0x80, np.uint32(0xFF), np.uint32(0)), byte)
        result |= byte.astype(np.uint32) << np.uint32(8 * i)
    return result
