# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false
"""Values at the bench shapes: a few programs, chosen afresh each time, run on real inputs and compared.

The check cases are small. A kernel that is right on them and leaves work out on large shapes only shows here.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ..errors import TaskError
from ..model import Case, Kernel, LaunchReport, Target
from ..task import Task
from ..task.core import seed_of
from ..task.tolerance import floor_error
from .workers import Zygote

SPOT_JOB = "klineage.gate.interpreter.jobs:spot_job"
_PROGRAMS = 6  # of each launch: the first, the last, and others by chance
_MOST_BYTES = 3 << 30  # of inputs and reference; beyond it the case is left out
_MOST_FLOPS = 2e11  # of the reference on the CPU: a second or two
_COVERED = 0.8  # of an output: an estimate from a sample
_WIDER = 4.0  # times the floor of the tolerance; the reference here is in fp32


@dataclass(frozen=True)
class SpotResult:
    """``reason`` is not empty when values are wrong; ``unseen`` when nothing could be compared."""

    reason: str = ""
    unseen: str = ""


@dataclass(frozen=True)
class _Prepared:
    specs: list[list[Any]]
    expected: tuple[Tensor, ...]  # one per output, flat, in fp32 or the integer type
    forms: tuple[tuple[tuple[int, ...], str], ...]
    row_max: tuple[Tensor, ...]
    reduction: int


class SpotChecks:
    """The spot checks of one task: inputs and reference of each bench case are made once. Close it when done."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._folder = Path(tempfile.mkdtemp(prefix="klineage-spot-"))
        self._prepared: dict[str, _Prepared | str] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Remove the inputs."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def prepare(self, case: Case) -> None:
        """Make a case's inputs and reference now, for a check to come."""
        with self._lock:
            if case.name not in self._prepared:
                self._prepared[case.name] = self._make(case)

    def check(
        self, worker: Zygote, kernel: Kernel, case: Case, target: Target, reports: Sequence[LaunchReport]
    ) -> SpotResult:
        """Run and compare a few programs of a bench case."""
        self.prepare(case)
        prepared = self._prepared[case.name]
        if isinstance(prepared, str):
            return SpotResult(unseen=f"values of {case.name} are not compared: {prepared}")
        drawn = np.frombuffer(os.urandom(2 * (_PROGRAMS - 2)), np.uint16) / 65536.0
        payload = {
            "source": kernel.source,
            "entry": kernel.entry,
            "target": target.name,
            "inputs": prepared.specs,
            "shares": [0.0, 1.0, *map(float, drawn)],
            "configs": [r.config for r in reports],
            "seed": int.from_bytes(os.urandom(4), "little"),
        }
        result = worker.run(SPOT_JOB, payload)
        if result.value is None:
            return SpotResult(unseen=f"values of {case.name} are not compared: {result.outcome} {result.error}")
        if result.value.get("kind") == "timeout":
            return SpotResult(unseen=f"values of {case.name} are not compared: {result.value.get('error')}")
        if result.value.get("error"):
            return SpotResult(reason=str(result.value["error"])[:300])
        if list(result.value.get("kernels") or ()) != [r.kernel for r in reports]:
            return SpotResult(reason="it launched other kernels than were compiled")
        return self._compare(case, prepared, cast(list[Any], result.value.get("outputs")))

    def _make(self, case: Case) -> _Prepared | str:
        flops = self._task.work(case).flops
        if flops > _MOST_FLOPS:
            return f"the reference takes {flops:.2g} operations"
        try:
            fresh = case.model_copy(update={"seed": seed_of("spot", os.urandom(8).hex())})
            inputs = self._task.make_inputs(fresh)
            size = sum(v.untyped_storage().nbytes() for v in inputs if isinstance(v, Tensor))
            if size > _MOST_BYTES // 2:
                return f"{size >> 20} MiB of inputs are too many"
            specs = [self._file(case, number, value) for number, value in enumerate(inputs)]
            with torch.no_grad():
                outputs = self._task.reference(*map(_raised, inputs))
        except (TaskError, RuntimeError, MemoryError, OSError) as error:
            return " ".join(str(error).split())[:200]
        outputs = cast(tuple[Tensor, ...], tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,))
        own = [str(v.dtype).removeprefix("torch.") for v in inputs if isinstance(v, Tensor) and v.is_floating_point()]
        forms = [_form(self._task, o, number, own[0] if own else "") for number, o in enumerate(outputs)]
        rows = [o.reshape(1, -1) if o.dim() < 2 else o.reshape(-1, o.shape[-1]) for o in outputs]
        peaks = [r.abs().nan_to_num(0.0, 0.0, 0.0).amax(dim=1) if r.numel() else r.new_zeros(0) for r in rows]
        return _Prepared(
            specs, tuple(o.reshape(-1) for o in outputs), tuple(forms), tuple(peaks), self._task.reduction(case)
        )

    def _file(self, case: Case, number: int, value: Any) -> list[Any]:
        if not isinstance(value, Tensor):
            return ["value", value]
        span = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True)) if value.numel() else 0
        path = self._folder / f"{seed_of(case.name)}-{number}"
        flat = value.as_strided((span,), (1,)).contiguous()
        path.write_bytes(memoryview(flat.view(torch.uint8).numpy()) if span else b"")  # type: ignore[arg-type]
        return ["file", str(path), list(value.shape), list(value.stride()), str(value.dtype).removeprefix("torch.")]

    def _compare(self, case: Case, prepared: _Prepared, outputs: list[Any]) -> SpotResult:
        if len(outputs) != len(prepared.expected):
            return SpotResult(reason=f"{len(outputs)} outputs instead of {len(prepared.expected)}")
        compared = 0
        for number, (given, form) in enumerate(zip(outputs, prepared.forms, strict=True)):
            if not isinstance(given, dict):
                return SpotResult(reason=f"output {number} is no tensor")
            told = cast(dict[str, Any], given)
            if (tuple(told["shape"]), told["dtype"]) != form:
                return SpotResult(reason=f"output {number} is {told['dtype']} {tuple(told['shape'])}, expected {form}")
            size = prepared.expected[number].numel() * getattr(torch, form[1]).itemsize
            distinct = told.get("distinct")
            if isinstance(distinct, float) and distinct < _COVERED * size:
                reason = f"output {number}: programs store to the same places, {distinct / size:.0%} of it in all"
                return SpotResult(reason=reason)
            places = torch.from_numpy(np.asarray(told["places"]).astype(np.int64))
            values = torch.from_numpy(np.asarray(told["values"]).astype(np.float64))
            compared += places.numel()
            reason = _wrong(prepared, number, places, values)
            if reason:
                return SpotResult(reason=f"output {number}: {reason}")
        if compared:
            return SpotResult()
        return SpotResult(unseen=f"values of {case.name} are not compared: its launches depend on each other")


def _raised(value: Any) -> Any:
    half = isinstance(value, Tensor) and value.is_floating_point() and value.dtype is not torch.float64
    return value.to(torch.float32) if half else value


def _form(task: Task, output: Tensor, number: int, dtype: str) -> tuple[tuple[int, ...], str]:
    """Shape and type that an output must have: its type follows the input's, as in the check cases."""
    if not output.is_floating_point():
        return tuple(output.shape), str(output.dtype).removeprefix("torch.")
    native = task.native_outputs(task.check_cases[0])[number]
    kept = {str(task.native_outputs(c)[number].dtype) for c in task.check_cases}
    fixed = len(kept) == 1 and not any(
        isinstance(v, Tensor) and v.dtype == native.dtype for v in task.make_inputs(task.check_cases[0])
    )
    return tuple(output.shape), str(native.dtype).removeprefix("torch.") if fixed or not dtype else dtype


def _wrong(prepared: _Prepared, number: int, places: Tensor, values: Tensor) -> str:
    if not places.numel():
        return ""
    shape, name = prepared.forms[number]
    expected = prepared.expected[number]
    if int(places.min()) < 0 or int(places.max()) >= expected.numel() or places.shape != values.shape:
        return "places that do not exist"
    wanted = expected[places].double()
    dtype: torch.dtype = getattr(torch, name)
    if not dtype.is_floating_point:
        wrong = int((wanted != values).sum())
        return f"{wrong} of {places.numel()} sampled integers differ" if wrong else ""
    rounded = wanted.to(dtype).double()
    finite = torch.isfinite(rounded)
    if not torch.equal(rounded[~finite].nan_to_num(0.5), values[~finite].nan_to_num(0.5)):
        return "NaN or infinities where the reference has none, or the reverse"
    columns = shape[-1] if len(shape) > 1 else max(1, expected.numel())
    peak = prepared.row_max[number].double()[places // columns]
    peak = torch.where(peak > 0, peak, float(prepared.row_max[number].amax()) or 1.0)
    error = torch.where(finite, (values - wanted).abs() / peak, 0.0)
    allowed = _WIDER * floor_error(dtype, prepared.reduction)
    bad = ~(error <= allowed)
    if not bool(bad.any()):
        return ""
    worst = float(error[bad].nan_to_num(float("inf")).amax())
    return f"{int(bad.sum())} of {places.numel()} sampled values are wrong (error {worst:.3g} > allowed {allowed:.3g})"
