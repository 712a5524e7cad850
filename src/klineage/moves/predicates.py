"""Predicates that the conditions of several moves share. Each looks at a Context and answers yes, no or cannot tell."""

from __future__ import annotations

from collections.abc import Mapping

from .base import Condition, Context, predicate

_WIDTH = {
    "fp64": 8, "float64": 8, "fp32": 4, "float32": 4, "int32": 4, "fp16": 2, "float16": 2, "bf16": 2, "bfloat16": 2,
    "fp8": 1, "int8": 1, "uint8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip


def case_dtype(context: Context) -> str | None:
    """The case's element type as its parameters name it ("fp16"), when they do."""
    if context.case is None:
        return None
    value = context.case.params.get("dtype")
    return value.removeprefix("torch.") if isinstance(value, str) else None


@predicate
def operands_16_bit(context: Context, _args: Mapping[str, str]) -> bool | None:
    """The inputs of the case are fp16 or bf16."""
    dtype = case_dtype(context)
    return None if dtype is None or dtype not in _WIDTH else _WIDTH[dtype] == 2


@predicate
def operands_at_most_16_bit(context: Context, _args: Mapping[str, str]) -> bool | None:
    """The inputs of the case are 16 bits wide or narrower."""
    dtype = case_dtype(context)
    return None if dtype is None or dtype not in _WIDTH else _WIDTH[dtype] <= 2


@predicate
def shared_memory_fits(context: Context, _args: Mapping[str, str]) -> bool | None:
    """Every launch fits the shared memory of one block on the target."""
    if not context.reports:
        return None
    return all(r.smem_bytes <= context.target.smem_per_block_bytes for r in context.reports)


@predicate
def no_spills(context: Context, _args: Mapping[str, str]) -> bool | None:
    """No launch spills registers."""
    return None if not context.reports else all(r.spill_bytes == 0 for r in context.reports)


OPERANDS_AT_MOST_16_BIT = Condition("operands_at_most_16_bit", "the operands are loaded as numbers of 16 bits or fewer")
SHARED_MEMORY_FITS = Condition("shared_memory_fits", "every launch fits the shared memory of one block")
