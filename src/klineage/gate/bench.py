"""Whether the launches traced at a bench shape do the work that its answer needs.

A kernel that computes less on large shapes (half a grid, an early return) is right on every check case and looks
fast. Its launches then store fewer distinct bytes than the outputs have, or take less time than the task's work must.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..model import Case
from ..task import Task
from .profile import Profiled

_STORED = 0.9  # share of the outputs that must be seen stored: it is scaled up from sampled programs
_FASTER = 1.05  # than the least time of the task's work: invalid, not fast


def missing_work(task: Task, case: Case, profiled: Profiled) -> str:
    """What the launches of a bench case leave undone, or ""."""
    needed = output_bytes(task, case)
    seen = sum(t.unique_stored_bytes or 0.0 for t in profiled.traffic) + profiled.host_bytes_written
    if needed is not None and seen < _STORED * needed:
        return f"its launches store {seen / needed:.0%} of the {needed} bytes that the outputs have"
    time = profiled.time
    floor, found = (time.roofline_us, time.latency.value) if time else (None, None)
    # work counted by torch takes every input as read in full: it bounds nothing
    if task.definition.work is not None and floor and found and found * _FASTER < floor:
        return f"{found:.4g} us is less than the {floor:.4g} us that the task's work takes: it cannot all be done"
    return ""


def output_bytes(task: Task, case: Case) -> int | None:
    """Bytes of a bench case's outputs, from how output sizes follow input sizes in the check cases.

    None when some output's dimension is no input's dimension in all of them.
    """
    inputs = [task.make_inputs(c) for c in task.check_cases]
    outputs = [task.native_outputs(c) for c in task.check_cases]
    dtypes = {_dtype(values): outs for values, outs in zip(inputs, outputs, strict=True)}
    asked = task.input_specs(case)
    total = 0
    for number in range(len(outputs[0])):
        size = 1
        for axis in range(outputs[0][number].dim()):
            source = _source(inputs, [o[number].shape[axis] for o in outputs], axis)
            if source is None:
                return None
            size *= _shape(asked[source[0]])[source[1]]
        alike = dtypes.get(_asked_dtype(asked), outputs[0])
        total += size * alike[number].element_size()
    return total


def _source(inputs: Sequence[Sequence[Any]], sizes: Sequence[int], axis: int) -> tuple[int, int] | None:
    """(input, dimension) whose size is the output's in every case; the same dimension is preferred."""
    found: list[tuple[int, int]] = []
    for index, value in enumerate(inputs[0]):
        for dim in range(value.dim() if isinstance(value, Tensor) else 0):
            if all(_size(values[index], dim) == size for values, size in zip(inputs, sizes, strict=True)):
                found.append((index, dim))
    return min(found, key=lambda place: (place[1] != axis, place), default=None)


def _size(value: Any, dim: int) -> int:
    return value.shape[dim] if isinstance(value, Tensor) and value.dim() > dim else -1


def _shape(spec: Sequence[Any]) -> Sequence[int]:
    return spec[1].shape if spec[0] == "data" else spec[1]


def _dtype(values: Sequence[Any]) -> str:
    floats = [str(v.dtype).removeprefix("torch.") for v in values if isinstance(v, Tensor) and v.is_floating_point()]
    return floats[0] if floats else ""


def _asked_dtype(specs: Sequence[Sequence[Any]]) -> str:
    return next((s[3] for s in specs if s[0] == "tensor" and getattr(torch, s[3]).is_floating_point), "")
