"""The store as callers see it: append-only evidence, looked up by what decides a verdict."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from ..model.kernel import Kernel
from ..model.lineage import Lineage, Refusal, Step
from ..model.skill import Skill
from ..model.verdict import Status, Verdict


class Store(Protocol):
    """Where evidence lives. What a ``put_*`` call returned from survives a kill of the process.

    Every method raises StoreError when the database cannot be read or written. Safe to share between threads;
    several processes may have the same store open.
    """

    @property
    def location(self) -> str:
        """Path or URL (without a password), for messages."""
        ...

    def close(self) -> None:
        """Release the connections; the store must not be used afterwards."""
        ...

    def put_kernel(self, kernel: Kernel) -> str:
        """Keep a kernel and return its id; the first parent and origin of a text are the ones kept."""
        ...

    def get_kernel(self, kernel_id: str) -> Kernel | None:
        """The kernel of this id, or None."""
        ...

    def put_verdict(self, verdict: Verdict) -> str:
        """Keep a verdict and return its id; the same verdict twice is kept once."""
        ...

    def get_verdict(self, verdict_id: str) -> Verdict | None:
        """The verdict of this id, or None."""
        ...

    def find_verdict(
        self, task_id: str, kernel_id: str, fingerprint: str, incumbent: str | None = None
    ) -> Verdict | None:
        """The latest verdict that holds for this question, or None.

        An ``infra_error`` never answers. An accepted or too-slow verdict answers only for the same incumbent,
        since that decided it; other rejections answer whatever the incumbent.
        """
        ...

    def verdicts(
        self, *, task_id: str | None = None, kernel_id: str | None = None, status: Status | None = None
    ) -> list[Verdict]:
        """Verdicts that match every given key, oldest first."""
        ...

    def put_step(self, run: str, step: Step) -> None:
        """Keep an accepted step of a run."""
        ...

    def steps(self, run: str) -> list[Step]:
        """The steps of a run, oldest first."""
        ...

    def put_refusal(self, run: str, refusal: Refusal) -> None:
        """Keep a refusal of a run."""
        ...

    def refusals(self, run: str) -> list[Refusal]:
        """The refusals of a run, oldest first."""
        ...

    def put_lineage(self, lineage: Lineage) -> None:
        """Keep a finished (or stopped) walk."""
        ...

    def lineages(self, task: str | None = None, target: str | None = None) -> list[Lineage]:
        """Lineages by task name and target, oldest first."""
        ...

    def latest_lineage(self, task: str, target: str) -> Lineage | None:
        """The last lineage kept for a task on a target, or None."""
        ...

    def put_skills(self, skills: Iterable[Skill]) -> None:
        """Keep skills, all or none; a later skill of the same name stands for the earlier one."""
        ...

    def skills(self) -> list[Skill]:
        """The latest skill of each name, by name."""
        ...

    def skill_history(self, name: str) -> list[Skill]:
        """Every version of a skill, oldest first."""
        ...

    def put_artifact(self, data: bytes, kind: str = "") -> str:
        """Keep bytes and return their SHA-256 hex digest."""
        ...

    def get_artifact(self, digest: str) -> bytes:
        """The bytes of a digest, verified. Raises StoreError when missing or damaged."""
        ...

    def set_checkpoint(self, key: str, value: Any) -> None:
        """Record how far a run is: ``value`` is JSON-able and stands for earlier ones of the key."""
        ...

    def checkpoint(self, key: str) -> Any | None:
        """The latest value of a key, or None."""
        ...

    def check(self) -> str:
        """ "ok", or the database's own complaint about its integrity."""
        ...
