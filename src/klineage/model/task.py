"""The declarative part of a task: cases, tolerance policy, work model. The callables live in klineage.task."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from .base import Frozen, json_hash

Param = int | float | str | bool


class CaseRole(StrEnum):
    """What a case is for."""

    CHECK = "check"  # correctness; small enough for the interpreter
    BENCH = "bench"  # performance; compiled, traced by sampled programs, timed


class Case(Frozen):
    """One shape/dtype/layout of a task. ``params`` are what the task's ``make_inputs`` takes."""

    name: str
    params: dict[str, Param]
    role: CaseRole = CaseRole.CHECK
    seed: int = 0


class Tolerance(Frozen):
    """Relative to each output row's largest reference value (see the gate's documentation).

    ``override`` replaces the derived bound and must carry a reason.
    """

    override: float | None = None
    reason: str = ""

    def model_post_init(self, context: object, /) -> None:
        if self.override is not None and not self.reason:
            raise ValueError("a tolerance override needs a reason")


class Work(Frozen):
    """The least a case must do: floating-point operations and bytes through device memory."""

    flops: float = Field(ge=0)
    bytes: float = Field(ge=0)


class TaskInfo(Frozen):
    """What is known of a task without running it."""

    name: str
    description: str
    cases: tuple[Case, ...]
    tolerance: Tolerance
    in_place: tuple[int, ...] = ()  # indices of inputs a kernel may overwrite
    source_hash: str  # hash of the task file's text
    path: str = ""

    @property
    def id(self) -> str:
        """Hash of all that decides a verdict: file text, cases, tolerance."""
        return json_hash(self.model_dump(mode="json", exclude={"path"}))

    def with_role(self, role: CaseRole) -> tuple[Case, ...]:
        """The cases of one role, in order."""
        return tuple(c for c in self.cases if c.role is role)
