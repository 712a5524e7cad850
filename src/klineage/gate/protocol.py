"""What walking, inducing and optimising ask of a judge bound to one task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..model import Case, CaseTime, Kernel, LaunchReport, Provenance, Target, TaskInfo, Verdict

Profile = tuple[CaseTime | None, tuple[LaunchReport, ...], str]  # time, launches, reason when there is no time


class VerdictStore(Protocol):
    """The part of a store that a gate needs (see ``klineage.store.base.Store``)."""

    def put_kernel(self, kernel: Kernel) -> str:
        """Keep a kernel."""
        ...

    def get_kernel(self, kernel_id: str) -> Kernel | None:
        """A kernel by id, or None."""
        ...

    def put_verdict(self, verdict: Verdict) -> str:
        """Keep a verdict; what returned survives a kill."""
        ...

    def find_verdict(
        self, task_id: str, kernel_id: str, fingerprint: str, incumbent: str | None = None
    ) -> Verdict | None:
        """The latest verdict that answers this question, or None."""
        ...

    def set_checkpoint(self, key: str, value: Any) -> None:
        """Record a JSON-able value under a key."""
        ...

    def checkpoint(self, key: str) -> Any | None:
        """The latest value of a key, or None."""
        ...


class Judge(Protocol):
    """One task, one target, one mode: the same kernel always gets the same verdict."""

    @property
    def info(self) -> TaskInfo:
        """The task."""
        ...

    @property
    def target(self) -> Target:
        """The architecture judged for."""
        ...

    @property
    def mode(self) -> Provenance:
        """Measured or modelled."""
        ...

    def judge(self, kernel: Kernel, incumbent: Verdict | None = None) -> Verdict:
        """The verdict of one kernel, from the store when it was reached before.

        With an accepted incumbent, a correct kernel that is slower than it is ``rejected_slow``.
        """
        ...

    def judge_many(self, kernels: Sequence[Kernel]) -> list[Verdict]:
        """Verdicts in the same order; work is spread over the judge's workers."""
        ...

    def check(self, kernel: Kernel, cases: Sequence[Case]) -> Verdict:
        """Compile and check correctness on other cases than the task's own; times stay the task's."""
        ...

    def profile(self, kernel: Kernel, cases: Sequence[Case], target: Target | None = None) -> list[Profile]:
        """(time or None, launches, reason when there is no time) per case: compile and profile, no correctness."""
        ...
