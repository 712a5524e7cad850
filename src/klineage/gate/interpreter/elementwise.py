# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false
# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false
"""Fault: ``tl.map_elementwise`` builds an IR region and fails in the interpreter.

Cure: call the scalar function once per element (per ``pack`` elements), as its semantics say: it may branch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as native

from .formats import TensorHandle, make_tensor


def map_elementwise(scalar_fn: Any, *args: Any, pack: Any = 1, **_: Any) -> Any:
    """Apply ``scalar_fn`` to each element of the broadcast tensors; returns one tensor or a tuple."""
    size = getattr(pack, "value", pack)
    tensors = native.interpreter_semantic.broadcast_tensors(*args) if len(args) > 1 else args
    shape = tensors[0].handle.data.shape
    columns = [(t.dtype.scalar, t.handle.data.reshape(-1)) for t in tensors]
    total = columns[0][1].size
    if total % size:
        raise ValueError(f"map_elementwise: {total} elements are not a multiple of pack={size}")
    results: list[list[Any]] = []
    single = False
    for start in range(0, native.interpreter_builder.elements_to_map(total, size), size):
        scalars = [_scalar(data[start + j], dtype) for dtype, data in columns for j in range(size)]
        outcome = scalar_fn(*scalars)
        single = not isinstance(outcome, (tuple, list, tl.tuple))
        results.append([outcome] if single else list(outcome))
    outputs = tuple(_gather(results, i, size, shape) for i in range(len(results[0]) // size))
    return outputs[0] if single else outputs


def _scalar(value: Any, dtype: Any) -> Any:
    return tl.core.tensor(TensorHandle(np.asarray([value]), dtype), dtype)


def _gather(results: list[list[Any]], output: int, size: int, shape: tuple[int, ...]) -> Any:
    first = results[0][output * size]
    flat = np.concatenate([r[output * size + j].handle.data.reshape(1) for r in results for j in range(size)])
    # a tracing builder maps only a sample of the elements: their values do not matter there
    data = flat.reshape(shape) if flat.size == np.prod(shape) else np.broadcast_to(flat[:1], shape)
    return make_tensor(data, first.dtype.scalar)
