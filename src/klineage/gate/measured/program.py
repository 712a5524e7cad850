# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""The form of a recorded program. It was written down where a candidate ran, so the judge checks it before use.

A program holds no computation but its kernels': torch may allocate, fill, copy, and sum up what kernels wrote.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, TypeAdapter, ValidationError, model_validator

from ...model import Frozen
from ..wire import TENSOR_DTYPES
from .record import SCALARS, SUMMARIES

_Size = Annotated[int, Field(ge=0, lt=1 << 48, strict=True)]
_Name = Annotated[str, Field(min_length=1, max_length=200)]


class View(Frozen):
    """A tensor in a storage; ``offset`` and ``stride`` in elements."""

    storage: _Name
    shape: tuple[_Size, ...]
    stride: tuple[_Size, ...]
    offset: _Size
    dtype: str

    @model_validator(mode="after")
    def _fits_together(self) -> View:
        if self.dtype not in TENSOR_DTYPES or len(self.shape) != len(self.stride):
            raise ValueError("no tensor")
        return self

    @property
    def numel(self) -> int:
        """Elements."""
        return math.prod(self.shape)


class Alloc(Frozen):
    """Fresh memory."""

    op: Literal["alloc"]
    storage: _Name
    bytes: _Size
    dtype: str


class Data(Frozen):
    """Small data that the launcher made on the host, as bytes."""

    op: Literal["data"]
    storage: _Name
    data: Any


class Fill(Frozen):
    """torch.fill_."""

    op: Literal["fill"]
    view: View
    value: bool | int | float


class Copy(Frozen):
    """torch.copy_."""

    op: Literal["copy"]
    view: View
    source: View


class Reduce(Frozen):
    """Partial results of kernels summed up."""

    op: Literal["reduce"]
    how: str
    view: View
    source: View
    dims: tuple[_Size, ...]
    keep: bool


class Pointer(Frozen):
    """A tensor that a kernel is given; ``divisible`` is what its address was compiled for."""

    kind: Literal["ptr"]
    view: View
    divisible: Annotated[int, Field(ge=1, le=4096)]


class Scalar(Frozen):
    """A number that a kernel is given, of one of Triton's types."""

    kind: str
    value: bool | int | float

    @model_validator(mode="after")
    def _is_of_its_kind(self) -> Scalar:
        if self.kind not in SCALARS or (isinstance(self.value, float) and not self.kind.startswith("fp")):
            raise ValueError("no number of its kind")
        return self


class Launch(Frozen):
    """One launch of a kernel in the binary that ``cubin`` names."""

    op: Literal["launch"]
    kernel: _Name
    grid: tuple[Annotated[int, Field(ge=1, lt=1 << 31)], Annotated[int, Field(ge=1, le=65535)],
                Annotated[int, Field(ge=1, le=65535)]]  # fmt: skip
    threads: Annotated[int, Field(ge=1, le=1024)]
    smem: Annotated[int, Field(ge=0, lt=1 << 20)]
    cubin: _Name
    params: tuple[Pointer | Scalar, ...]


Step = Annotated[Alloc | Data | Fill | Copy | Reduce | Launch, Field(discriminator="op")]


class Program(Frozen):
    """What a launcher did, in order, and the tensors that it returned."""

    steps: tuple[Step, ...]
    outputs: tuple[View, ...]
    impossible: Literal[""]


_PROGRAM = TypeAdapter(Program)


def outline(program: Mapping[str, Any]) -> str:
    """What a program does beside its launches, in short: with the launches' code it decides the time."""
    done: list[str] = []
    for step in program["steps"]:
        view = step.get("view") or {}
        done.append(f"{step['op']} {view.get('shape', '')} {view.get('dtype', '')}")
    return "; ".join(done)


def problem(program: Any, cubins: Collection[str], inputs: int) -> str:
    """Why a program for so many inputs is none that the recorder writes, or "".

    One that says why it is impossible is in order.
    """
    if isinstance(program, dict) and isinstance(program.get("impossible"), str) and program["impossible"]:
        return ""
    try:
        found = _PROGRAM.validate_python(program)
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:200]
    known = {f"input{i}" for i in range(inputs)}
    given, written = set(known), set[str]()  # storages that hold input values, that a kernel may have written
    for step in found.steps:
        why = _step_problem(step, known, written - given, cubins)
        if why:
            return why
        if isinstance(step, Alloc | Data):
            known.add(step.storage)
        elif isinstance(step, Launch):
            written |= {p.view.storage for p in step.params if isinstance(p, Pointer)}
        elif isinstance(step, Copy) and step.source.storage in given:
            given.add(step.view.storage)
    return next((f"returns unknown {v.storage}" for v in found.outputs if v.storage not in known), "")


def _step_problem(step: Step, known: set[str], written: set[str], cubins: Collection[str]) -> str:
    if isinstance(step, Alloc | Data):
        if step.storage in known:
            return f"{step.storage} is made twice"
        plain = isinstance(step, Alloc) or (isinstance(step.data, torch.Tensor) and step.data.dtype == torch.uint8)
        of_a_type = isinstance(step, Data) or step.dtype in TENSOR_DTYPES
        return "" if plain and of_a_type else f"{step.storage} holds no bytes"
    views = [p.view for p in step.params if isinstance(p, Pointer)] if isinstance(step, Launch) else [step.view]
    views += [step.source] if isinstance(step, Copy | Reduce) else []
    unknown = next((v.storage for v in views if v.storage not in known), None)
    if unknown is not None:
        return f"uses unknown {unknown}"
    if isinstance(step, Launch) and step.cubin not in cubins:
        return f"launches an unknown binary {step.cubin}"
    if isinstance(step, Copy) and step.view.shape != step.source.shape and step.source.numel != 1:
        return "" if _broadcasts(step.source.shape, step.view.shape) else "copies between unlike shapes"
    return _sum_problem(step, written) if isinstance(step, Reduce) else ""


def _sum_problem(step: Reduce, written: set[str]) -> str:
    if step.how not in SUMMARIES:
        return f"computes with torch.{step.how}"
    if step.source.storage not in written or 2 * step.view.numel > step.source.numel:
        return f"torch.{step.how} of what no kernel wrote"
    rank, dims = len(step.source.shape), set(step.dims)
    left = [1 if i in dims else n for i, n in enumerate(step.source.shape) if step.keep or i not in dims]
    return "" if max(dims, default=0) < max(1, rank) and list(step.view.shape) == left else "sums to another shape"


def _broadcasts(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    pairs = zip(reversed(small), reversed(large), strict=False)
    return len(small) <= len(large) and all(a in (1, b) for a, b in pairs)
