"""The comparison of a candidate's outputs with the oracle: form first, then NaN and infinities, then error.

The error of an element is relative to the largest finite reference value of its row (its last dimension; the whole
tensor when it has fewer than two). Allowed: ``min(max(4 * own, floor), 16 * floor)`` where ``own`` is the error of the
reference implementation in the case's own dtype and ``floor = 2 eps(dtype) + 8 eps(fp32) sqrt(n)`` with n the
reduction length. Integer outputs must be equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..model import Case, CaseResult

if TYPE_CHECKING:
    from .core import Task

EPS32 = torch.finfo(torch.float32).eps


def compare(task: Task, case: Case, outputs: Any, *, device: str | None = None) -> CaseResult:
    """Judge ``outputs`` (a tensor or a sequence of tensors, on any device) of one case against the oracle.

    ``device`` names the device type outputs must be on, when that is to be checked. Never raises for a bad output.
    """
    given = list(outputs) if isinstance(outputs, tuple | list) else [outputs]
    expected = task.native_outputs(case)
    reason = _form(given, expected, device)
    if reason:
        return CaseResult(case=case.name, passed=False, reason=reason)
    own = task.reference_error(case)
    worst: tuple[float, float] | None = None
    for index, (got, form, oracle) in enumerate(zip(given, expected, task.oracle(case), strict=True)):
        label = f"output {index}: " if len(given) > 1 else ""
        if not form.dtype.is_floating_point:
            if not torch.equal(got.cpu(), form):
                wrong = int((got.cpu() != form).sum())
                return CaseResult(case=case.name, passed=False, reason=f"{label}{wrong} integer values differ")
            continue
        allowed = allowed_error(task, case, form.dtype, own[index])
        error, reason = _values(got.cpu(), oracle, form.dtype, allowed)
        if reason:
            return CaseResult(
                case=case.name, passed=False, error=_number(error), allowed=allowed, reason=label + reason
            )
        if worst is None or error / allowed > worst[0] / worst[1]:
            worst = (error, allowed)
    error, allowed = worst or (0.0, 0.0)
    return CaseResult(case=case.name, passed=True, error=error, allowed=allowed)


def floor_error(dtype: torch.dtype, reduction: int) -> float:
    """``2 eps(dtype) + 8 eps(fp32) sqrt(n)``: rounding of the result plus a fair fp32 accumulation."""
    return 2 * torch.finfo(dtype).eps + 8 * EPS32 * math.sqrt(max(1, reduction))


def allowed_error(task: Task, case: Case, dtype: torch.dtype, own: float) -> float:
    """The largest relative error that passes, for an output of ``dtype`` whose reference has error ``own``."""
    if task.info.tolerance.override is not None:
        return task.info.tolerance.override
    floor = floor_error(dtype, task.reduction(case))
    scaled = 4 * own if math.isfinite(own) else floor
    return min(max(scaled, floor), 16 * floor)


def row_errors(got: Tensor, oracle: Tensor, dtype: torch.dtype) -> Tensor:
    """Largest relative error of each row (flattened to one dimension); NaN and infinities that match count as 0.

    A row whose reference is zero throughout is measured against the tensor's largest value.
    """
    expected, value = _rows(oracle.to(torch.float64)), _rows(got.to(torch.float64))
    finite = torch.isfinite(_rows(oracle.to(dtype).to(torch.float64)))
    magnitude = torch.where(finite, expected.abs(), 0.0)
    scale = magnitude.amax(dim=1, keepdim=True)
    whole = float(scale.amax()) or 1.0
    scale = torch.where(scale > 0, scale, whole)
    difference = torch.where(finite, (value - expected).abs(), 0.0)
    return (difference / scale).amax(dim=1)


def _form(given: Sequence[Any], expected: Sequence[Tensor], device: str | None) -> str:
    if len(given) != len(expected):
        return f"{len(given)} outputs instead of {len(expected)}"
    for index, (got, form) in enumerate(zip(given, expected, strict=True)):
        label = f"output {index}" if len(given) > 1 else "output"
        if type(got) is not Tensor:
            return f"{label} is {_kind(got)}, expected a plain torch.Tensor"
        if got.shape != form.shape:
            return f"{label} has shape {tuple(got.shape)}, expected {tuple(form.shape)}"
        if got.dtype != form.dtype:
            return f"{label} is {_dtype(got)}, expected {_dtype(form)}"
        if got.layout is not torch.strided or not (got.is_contiguous() or got.stride() == form.stride()):
            return f"{label} has strides {tuple(got.stride())}, expected contiguous or {tuple(form.stride())}"
        if device is not None and got.device.type != device:
            return f"{label} is on {got.device.type}, expected {device}"
    return ""


def _values(got: Tensor, oracle: Tensor, dtype: torch.dtype, allowed: float) -> tuple[float, str]:
    """(largest relative error, why it fails or '')."""
    if got.numel() == 0:
        return 0.0, ""
    rounded, value = _rows(oracle.to(dtype).to(torch.float64)), _rows(got.to(torch.float64))
    for name, here, there in (
        ("NaN", value.isnan(), rounded.isnan()),
        ("+Inf", value == math.inf, rounded == math.inf),
        ("-Inf", value == -math.inf, rounded == -math.inf),
    ):
        if not torch.equal(here, there):
            row = int((here != there).any(dim=1).nonzero()[0])
            return math.nan, f"row {row}: {name} at {int(here.sum())} places, expected at {int(there.sum())}"
    errors = row_errors(got, oracle, dtype)
    bad = ~(errors <= allowed)
    row = int(torch.where(errors.isnan(), math.inf, errors).argmax())
    error = float(errors[row])
    if bool(bad.any()):
        more = f" ({int(bad.sum())} of {len(errors)} rows)" if len(errors) > 1 else ""
        return error, f"row {row}: error {error:.3g} > allowed {allowed:.3g}{more}"
    return error, ""


def _rows(value: Tensor) -> Tensor:
    return value.reshape(1, -1) if value.dim() < 2 else value.reshape(-1, value.shape[-1])


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _kind(value: Any) -> str:
    return "None" if value is None else type(value).__name__


def _dtype(value: Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")
