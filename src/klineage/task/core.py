"""A task: what is known of it (``info``) and the callables behind it, with the oracle and its caches."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..errors import TaskError
from ..model import Case, CaseRole, Kernel, Target, TaskInfo, Work, content_hash
from .specs import InputSpec, input_specs, meta_inputs
from .tolerance import row_errors

Inputs = tuple[Tensor | int | float | str | bool | None, ...]
T = TypeVar("T")

FRESH = -1  # seed of a case that draws a new one in every run


@dataclass(frozen=True)
class Definition:
    """The callables and paths a task file gives."""

    make_inputs: Callable[[Mapping[str, Any], torch.Generator], Sequence[Any]]
    reference: Callable[..., Any]
    vendors: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    work: Callable[[Mapping[str, Any]], tuple[float, float]] | None = None
    reduction: Callable[[Mapping[str, Any]], int] | None = None  # of a case's parameters
    reduction_of: Callable[[Sequence[InputSpec]], int] | None = None  # or of its input specs
    expert: str | None = None
    expert_run: str | None = None
    expert_facts: Callable[[int], Mapping[str, object]] | None = None  # of the target's architecture (90, 100, ...)
    expert_decorators: Mapping[str, str] = field(default_factory=dict)  # of the package -> what to write instead
    naive: str | None = None
    folder: Path = Path()
    notes: tuple[str, ...] = ()


class Task:
    """An operator's contract. ``id`` stays the same when fresh seeds are drawn (``salted``)."""

    def __init__(self, info: TaskInfo, definition: Definition) -> None:
        self.info = info
        self.definition = definition
        self.id = info.id
        self.path: Path | None = None  # the file it was loaded from
        self.notes: tuple[str, ...] = definition.notes
        self._cache: dict[tuple[str, str], Any] = {}
        self._experts: dict[str, Kernel | None] = {}  # by target; shared with salted copies

    def __repr__(self) -> str:
        return f"Task({self.info.name}, {len(self.info.cases)} cases)"

    @property
    def name(self) -> str:
        """The task's name."""
        return self.info.name

    @property
    def vendors(self) -> dict[str, Callable[..., Any]]:
        """Vendor implementations by name, called as ``reference`` is."""
        return dict(self.definition.vendors)

    @property
    def check_cases(self) -> tuple[Case, ...]:
        """Cases for correctness, small enough for the interpreter."""
        return self.info.with_role(CaseRole.CHECK)

    @property
    def bench_cases(self) -> tuple[Case, ...]:
        """Cases for performance."""
        return self.info.with_role(CaseRole.BENCH)

    def case(self, name: str) -> Case:
        """The case of that name. Raises TaskError."""
        for case in self.info.cases:
            if case.name == name:
                return case
        raise TaskError(
            f"task {self.name} has no case {name!r}", f"cases: {', '.join(c.name for c in self.info.cases)}"
        )

    def salted(self, salt: int | str) -> Task:
        """This task with a seed derived from ``salt`` for each case that asks for a fresh one. Same ``id``."""
        cases = tuple(
            c.model_copy(update={"seed": seed_of(self.id, c.name, str(salt))}) if c.seed == FRESH else c
            for c in self.info.cases
        )
        task = copy.copy(self)
        task.info = self.info.model_copy(update={"cases": cases})
        task._cache = dict(self._cache)
        return task

    def make_inputs(self, case: Case) -> Inputs:
        """The inputs of a case: CPU tensors and plain values, the same every time for the same case.

        Raises TaskError when the task's own maker fails or returns something else.
        """
        try:
            values = tuple(self._make(case))
        except TaskError:
            raise
        except Exception as error:
            raise TaskError(f"task {self.name}: make_inputs failed on case {case.name}: {_told(error)}") from error
        for index, value in enumerate(values):
            if not isinstance(value, Tensor | int | float | str | bool | None):
                raise TaskError(
                    f"task {self.name}: input {index} of case {case.name} is a {type(value).__name__}",
                    "return tensors, numbers, strings or None from make_inputs",
                )
            if isinstance(value, Tensor) and value.device.type != "cpu":
                raise TaskError(f"task {self.name}: input {index} is on {value.device}", "make inputs on the CPU")
        return tuple(v.detach() if isinstance(v, Tensor) else v for v in values)

    def input_specs(self, case: Case) -> list[InputSpec]:
        """Shapes, strides and dtypes of a case's inputs; of a bench case without allocating them (see specs.py)."""
        small = case.role is CaseRole.CHECK
        return self._cached("specs", case, lambda: input_specs(lambda: self._make(case), real=small))

    def reference(self, *inputs: Any) -> Any:
        """The task's reference on the given inputs: one tensor or a tuple."""
        return self.definition.reference(*inputs)

    def native_outputs(self, case: Case) -> tuple[Tensor, ...]:
        """The reference's outputs in the case's own dtype: they set shapes, dtypes and strides. On the CPU.

        Where the CPU has no such operator in that dtype, the reference runs in fp32 and its outputs are rounded.
        """
        return self._cached("native", case, lambda: self._native(case))

    def oracle(self, case: Case) -> tuple[Tensor, ...]:
        """The reference on inputs raised to fp64 (integers stay); fp32 where the operator refuses fp64.

        A fall to fp32 is noted in ``oracle_note``. Cached per case.
        """
        return self._cached("oracle", case, lambda: self._oracle(case))[0]

    def oracle_note(self, case: Case) -> str:
        """Empty, or why the oracle of this case is not fp64."""
        return self._cached("oracle", case, lambda: self._oracle(case))[1]

    def reference_error(self, case: Case) -> tuple[float, ...]:
        """Error of the reference in the case's own dtype against the oracle, per output, relative to row maxima.

        0 for integer outputs; infinite values count only where both are finite.
        """
        return self._cached("own", case, lambda: self._own_error(case))

    def reduction(self, case: Case) -> int:
        """Reduction length n of a case: the task's own, else the last dimension of its first floating input."""
        if self.definition.reduction is not None:
            return max(1, int(self.definition.reduction(case.params)))
        if self.definition.reduction_of is not None:
            return self.definition.reduction_of(self.input_specs(case))
        for spec in self.input_specs(case):
            if spec[0] == "tensor" and spec[1]:
                return spec[1][-1]
        return 1

    def work(self, case: Case) -> Work:
        """Least floating-point operations and bytes of a case: the task's own, else counted on meta tensors."""
        if self.definition.work is None:
            return self._cached("work", case, lambda: self._counted_work(case))
        try:
            flops, size = self.definition.work(case.params)
            return Work(flops=float(flops), bytes=float(size))
        except Exception as error:
            raise TaskError(f"task {self.name}: work failed on case {case.name}: {_told(error)}") from error

    def expert(self, target: Target | None = None) -> Kernel | None:
        """The expert kernel, sliced to one module with what its calls fix folded in; None when the task has none.

        Pass the ``target`` so that branches on the device's architecture are folded too. Computed once per target.
        """
        from .kernels import expert_kernel

        key = target.name if target else ""
        if key not in self._experts:
            self._experts[key] = expert_kernel(self, target)
        return self._experts[key]

    def naive(self) -> Kernel | None:
        """The naive start kernel, or None when the task ships none."""
        from .kernels import kernel_of

        path = self.definition.naive
        return None if path is None else kernel_of(self.definition.folder, path)

    def _make(self, case: Case) -> Sequence[Any]:
        seed = seed_of(self.id, case.name, "") if case.seed == FRESH else case.seed
        made = self.definition.make_inputs(case.params, torch.Generator().manual_seed(seed))
        return made if isinstance(made, tuple | list) else (made,)

    def _run(self, case: Case, inputs: Sequence[Any]) -> tuple[Tensor, ...]:
        try:
            with torch.no_grad():
                outputs = self.definition.reference(*inputs)
        except Exception as error:
            raise TaskError(f"task {self.name}: reference failed on case {case.name}: {_told(error)}") from error
        outputs = tuple(outputs) if isinstance(outputs, tuple | list) else (outputs,)
        if not outputs or not all(isinstance(o, Tensor) for o in outputs):
            raise TaskError(f"task {self.name}: reference returns no tensor", "return one tensor or a tuple of them")
        return outputs

    def _native(self, case: Case) -> tuple[Tensor, ...]:
        inputs = self.make_inputs(case)
        try:
            return self._run(case, inputs)
        except TaskError:
            own = [v.dtype for v in inputs if isinstance(v, Tensor) and v.is_floating_point()]
            if not own or own[0] in (torch.float32, torch.float64):
                raise
        outputs = self._run(case, [_raised(v, torch.float32) for v in self.make_inputs(case)])
        return tuple(o.to(own[0]) if o.is_floating_point() else o for o in outputs)

    def _oracle(self, case: Case) -> tuple[tuple[Tensor, ...], str]:
        inputs = self.make_inputs(case)
        try:
            return self._run(case, [_raised(v, torch.float64) for v in inputs]), ""
        except TaskError as error:
            note = f"oracle in fp32, not fp64: {error.message}"
        return self._run(case, [_raised(v, torch.float32) for v in self.make_inputs(case)]), note

    def _own_error(self, case: Case) -> tuple[float, ...]:
        errors: list[float] = []
        for native, oracle in zip(self.native_outputs(case), self.oracle(case), strict=True):
            if not native.is_floating_point() or native.numel() == 0:
                errors.append(0.0)
                continue
            error = float(row_errors(native, oracle, native.dtype).amax())
            errors.append(error if math.isfinite(error) else math.inf)
        return tuple(errors)

    def _counted_work(self, case: Case) -> Work:
        from torch.utils.flop_counter import FlopCounterMode

        inputs = meta_inputs(lambda: self._make(case)) or list(self.make_inputs(case))
        moved = [v.to("meta") if isinstance(v, Tensor) else v for v in inputs]
        try:
            with FlopCounterMode(display=False) as counter:
                outputs = self._run(case, moved)
        except TaskError:
            outputs, counter = (), None
        flops = counter.get_total_flops() if counter else 0
        size = sum(t.numel() * t.element_size() for t in [*moved, *outputs] if isinstance(t, Tensor))
        return Work(flops=float(flops), bytes=float(size))

    def _cached(self, what: str, case: Case, make: Callable[[], T]) -> T:
        key = (what, content_hash(case.model_dump_json()))
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]


def seed_of(*parts: str) -> int:
    """A non-negative 31-bit seed from text."""
    return int(content_hash(*parts, length=8), 16) & 0x7FFFFFFF


def _raised(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value


def _told(error: Exception) -> str:
    text = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {text[:300]}"
