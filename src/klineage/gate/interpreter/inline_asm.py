# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false, reportUntypedBaseClass=false
"""Fault: ``tl.inline_asm_elementwise`` fails in the interpreter.

Cure: a registry of whole snippets (``register``), then the PTX evaluator for straight-line snippets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from triton.runtime import interpreter as native

from .formats import Array, TensorHandle, numpy_dtype
from .ptx import evaluate

Snippet = Callable[..., Array]
_registry: dict[str, Snippet] = {}


def register(text: str, function: Snippet) -> None:
    """Give the meaning of a snippet the evaluator cannot read: raw numpy arrays in, one raw array out."""
    _registry[_normalise(text)] = function


def _normalise(text: str) -> str:
    return " ".join(text.split())


class Results(list[Any]):
    """The outputs of one snippet."""

    def get_result(self, index: int) -> Any:
        """The handle of one output, as the IR's call operation gives it."""
        return self[index]


class InlineAsm(native.InterpreterBuilder):
    """Inline assembly by registry or evaluation."""

    def create_inline_asm(
        self,
        inlineAsm: str,
        constraints: str,
        values: Any,
        type: Any,  # noqa: A002
        isPure: bool,
        pack: int,
    ) -> Any:
        types = list(type) if isinstance(type, (list, tuple)) else [type]
        known = _registry.get(_normalise(inlineAsm))
        if known is not None:
            data = known(*[v.data for v in values])
            return Results([TensorHandle(data, types[0].scalar)])
        return Results(_evaluated(inlineAsm, constraints, values, types, pack))


def _evaluated(text: str, constraints: str, values: Sequence[Any], types: list[Any], pack: int) -> list[Any]:
    shape = values[0].data.shape if values else (1,)
    elements = int(np.prod(shape))
    count = max(1, elements // pack)
    outputs = [c for c in constraints.replace(" ", "").split(",") if c.startswith("=")]
    registers: dict[str, Array] = {}
    number = len(outputs)
    for value in values:
        for column in _to_registers(value.data, pack, count):
            registers[f"${number}"] = column
            number += 1
    evaluate(text, registers, count)
    results: list[Any] = []
    first = 0
    for kind in types:
        dtype = numpy_dtype(kind.scalar)
        used = max(1, pack * dtype.itemsize // 4)
        columns = [registers.get(f"${first + i}", np.zeros(count, np.uint32)) for i in range(used)]
        results.append(TensorHandle(_from_registers(columns, dtype, pack, shape), kind.scalar))
        first += used
    return results


def _to_registers(data: Array, pack: int, count: int) -> list[Array]:
    flat = np.ascontiguousarray(data).reshape(count, -1)
    if flat.dtype == np.bool_:
        flat = flat.astype(np.uint8)
    raw = flat.view(f"u{flat.itemsize}")
    if pack * flat.itemsize >= 4 and flat.itemsize < 4:
        raw = raw.view(np.uint32)
    return [raw[:, i].copy() for i in range(raw.shape[1])]


def _from_registers(columns: list[Array], dtype: Any, pack: int, shape: tuple[int, ...]) -> Array:
    width = dtype.itemsize if dtype.itemsize >= 4 or pack * dtype.itemsize < 4 else 4
    table = np.stack([c.astype(f"u{width}") for c in columns], -1)
    return np.ascontiguousarray(table).view(dtype).reshape(shape)
