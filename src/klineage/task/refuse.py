"""Refuse a task that a trivial kernel would pass: its verdicts would mean nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import TaskError
from ..model import Case
from .core import Task, seed_of
from .tolerance import compare

_LOWER = {
    torch.float64: torch.float32,
    torch.float32: torch.bfloat16,
    torch.float16: torch.float8_e4m3fn,
    torch.bfloat16: torch.float8_e4m3fn,
}

Answer = Callable[[Case], Sequence[Tensor] | None]  # None: no such answer exists for this case


def refuse(task: Task) -> None:
    """Raise TaskError when the task cannot tell a good kernel from a trivial one."""
    reason = degenerate(task)
    if reason:
        raise TaskError(f"task {task.name} is refused: {reason}", "add check cases (or a bound) that tell them apart")


def degenerate(task: Task) -> str | None:
    """Why the task is worthless as a judge, or None.

    Tried on every check case: zeros, one constant, an input handed back, and the oracle rounded to the next
    smaller type (scaled to its range first). Also: inputs that ignore the seed, or differ for the same seed, and a
    bench case of a dtype that no check case has.
    """
    cases = task.check_cases
    fault = _seeds(task, cases) or _reference(task, cases) or _unchecked_dtype(task)
    if fault:
        return fault
    for words, answer in _trivial(task):
        if all(_passes(task, case, answer) for case in cases):
            return f"{words} would pass all its {len(cases)} check cases"
    return None


def _unchecked_dtype(task: Task) -> str | None:
    """A bench case whose inputs have a dtype in which nothing is checked: a kernel would be timed unjudged."""
    checked = {spec[3] for case in task.check_cases for spec in task.input_specs(case) if spec[0] == "tensor"}
    for case in task.bench_cases:
        for spec in task.input_specs(case):
            if spec[0] == "tensor" and spec[3] not in checked:
                return f"bench case {case.name} has {spec[3]} inputs, and no check case has"
    return None


def _trivial(task: Task) -> Iterator[tuple[str, Answer]]:
    yield "a kernel that returns zeros", lambda case: [torch.zeros_like(o) for o in task.native_outputs(case)]
    fixed = [_mean(o) for o in task.native_outputs(task.check_cases[0])]
    yield "a kernel that returns a constant", lambda case: _constants(task, case, fixed)
    yield "a kernel that returns its outputs' means", lambda case: _means(task, case)
    arity = max(len(task.make_inputs(case)) for case in task.check_cases)
    for index in range(arity):
        yield f"a kernel that returns input {index}", lambda case, index=index: _input(task, case, index)
    yield "a silent downcast of the answer", lambda case: _downcast(task, case)


def _passes(task: Task, case: Case, answer: Answer) -> bool:
    outputs = answer(case)
    return outputs is not None and compare(task, case, outputs).passed


def _mean(output: Tensor) -> float:
    if output.numel() == 0:
        return 0.0
    return float(output.double().mean()) if output.is_floating_point() else float(output.flatten()[0])


def _constants(task: Task, case: Case, values: Sequence[float]) -> list[Tensor]:
    return [torch.full_like(o, v) for o, v in zip(task.native_outputs(case), values, strict=True)]


def _means(task: Task, case: Case) -> list[Tensor] | None:
    """One value per output, the best one for this case; a single number has no mean that is not the answer."""
    outputs = task.native_outputs(case)
    if any(o.numel() == 1 for o in outputs) and len(task.check_cases) > 1 and _always_single(task):
        return None
    return _constants(task, case, [_mean(o) for o in outputs])


def _always_single(task: Task) -> bool:
    return all(o.numel() == 1 for case in task.check_cases for o in task.native_outputs(case))


def _input(task: Task, case: Case, index: int) -> list[Tensor] | None:
    inputs = task.make_inputs(case)
    value: Any = inputs[index] if index < len(inputs) else None
    native = task.native_outputs(case)
    if not isinstance(value, Tensor) or any(o.shape != value.shape for o in native):
        return None
    return [value.to(o.dtype).contiguous() for o in native]


def _downcast(task: Task, case: Case) -> list[Tensor] | None:
    rounded: list[Tensor] = []
    for oracle, native in zip(task.oracle(case), task.native_outputs(case), strict=True):
        lower = _LOWER.get(native.dtype)
        if lower is None:
            return None
        finite = torch.where(torch.isfinite(oracle), oracle.abs(), 0.0)
        largest = float(finite.amax()) if oracle.numel() else 0.0
        scale = 2.0 ** (math.floor(math.log2(largest)) - 7) if largest else 1.0  # a power of two: exact itself
        kept = torch.where(torch.isfinite(oracle), (oracle / scale).to(lower).to(oracle.dtype) * scale, oracle)
        rounded.append(kept.to(native.dtype).contiguous())
    return rounded


def _seeds(task: Task, cases: Sequence[Case]) -> str | None:
    varies = False
    for case in cases:
        first, again = task.make_inputs(case), task.make_inputs(case)
        if not _same(first, again):
            return f"case {case.name} gives other inputs for the same seed (use the generator given)"
        other = case.model_copy(update={"seed": seed_of("other", case.name)})
        varies = varies or not _same(first, task.make_inputs(other))
    return None if varies else "its inputs are the same for every seed (use the generator given)"


def _reference(task: Task, cases: Sequence[Case]) -> str | None:
    for case in cases:
        oracle, native = task.oracle(case), task.native_outputs(case)
        if len(oracle) != len(native) or any(a.shape != b.shape for a, b in zip(oracle, native, strict=True)):
            return f"its reference gives other shapes in fp64 on case {case.name}"
        if any(o.is_floating_point() and o.numel() and not bool(torch.isfinite(o).any()) for o in oracle):
            return f"its reference gives no finite value on case {case.name}"
    return None


def _same(one: Sequence[Any], other: Sequence[Any]) -> bool:
    def equal(a: Any, b: Any) -> bool:
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            return a.shape == b.shape and a.dtype == b.dtype and torch.equal(_plain(a), _plain(b))
        return type(a) is type(b) and a == b

    return len(one) == len(other) and all(equal(a, b) for a, b in zip(one, other, strict=True))


def _plain(value: Tensor) -> Tensor:
    return value.to(torch.float64).nan_to_num() if value.is_floating_point() else value
