"""What forward work reports: every try with its reason, and what it came to."""

from __future__ import annotations

from typing import Literal

from .base import Frozen, Provenance
from .lineage import Lineage
from .skill import Skill
from .spend import Spent


class Try(Frozen):
    """One skill tried at one site. ``after_us`` is None when the gate gave no time."""

    index: int
    skill: str
    move: str
    site: str
    decision: Literal["kept", "refused"]
    reason: str
    before_us: float
    after_us: float | None = None
    kernel: str | None = None  # id of the kernel the try gave, when it gave one
    verdict: str | None = None


class OptimizeReport(Frozen):
    """A budgeted search from a kernel. ``best_us`` is never above ``start_us``; all times are of one ``mode``."""

    task: str
    target: str
    mode: Provenance
    start_kernel: str  # kernel ids
    best_kernel: str
    start_us: float
    best_us: float
    tries: tuple[Try, ...] = ()
    end: str = ""  # why the search stopped
    proposer: str = "moves"
    spent: tuple[Spent, ...] = ()  # when the proposer is a model

    @property
    def speedup(self) -> float:
        """Start over best."""
        return self.start_us / self.best_us


class RecoverReport(Frozen):
    """The round trip: from the naive end, by skills alone, towards the expert."""

    task: str
    target: str
    mode: Provenance
    expert_us: float
    naive_us: float
    recovered_us: float
    recovered_kernel: str = ""
    tries: tuple[Try, ...] = ()

    @property
    def fraction(self) -> float:
        """Share of the expert's speed that was recovered: expert time over recovered time."""
        return self.expert_us / self.recovered_us


class QuickstartReport(Frozen):
    """The main job in one go: lineages, the skills they gave, and kernels that those skills improved."""

    target: str
    mode: Provenance
    lineages: tuple[Lineage, ...]
    skills: tuple[Skill, ...]
    optimized: tuple[OptimizeReport, ...]
    recovered: tuple[RecoverReport, ...] = ()
    wall_s: float
