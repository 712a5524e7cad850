"""What forward work reports: every try with its reason, and what it came to."""

from __future__ import annotations

import math
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
    vendor_us: float | None = None  # the fastest vendor's, timed beside the best kernel; None where none was timed
    proposer: str = "moves"
    skills: str = "full"  # or what an ablation left of them
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
    skills: str = "full"  # or what an ablation left of them

    @property
    def fraction(self) -> float:
        """Share of the expert's speed that was recovered: expert time over recovered time."""
        return self.expert_us / self.recovered_us


class HeldOut(Frozen):
    """What skills did for one operator that no lineage of theirs used; ``report`` is None where it could not start."""

    task: str
    report: OptimizeReport | None = None
    reason: str = ""

    @property
    def kept(self) -> tuple[Try, ...]:
        """The tries that were kept."""
        return () if self.report is None else tuple(t for t in self.report.tries if t.decision == "kept")


class VerifyReport(Frozen):
    """Skills tried on held-out operators, and the skills as they stand after it."""

    target: str
    mode: Provenance
    operators: tuple[HeldOut, ...]
    skills: tuple[Skill, ...]
    wall_s: float

    @property
    def speedup(self) -> float | None:
        """Geometric mean over the operators of start over best; None without any."""
        found = [o.report.speedup for o in self.operators if o.report is not None]
        return math.prod(found) ** (1 / len(found)) if found else None


class QuickstartReport(Frozen):
    """The main job in one go: lineages, the skills they gave, and kernels that those skills improved."""

    target: str
    mode: Provenance
    lineages: tuple[Lineage, ...]
    skills: tuple[Skill, ...]
    optimized: tuple[OptimizeReport, ...]
    recovered: tuple[RecoverReport, ...] = ()
    wall_s: float
