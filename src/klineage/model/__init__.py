"""Domain values: frozen, no I/O, no torch."""

from .base import Figure, Frozen, Provenance, content_hash, json_hash, measured, modelled, unavailable
from .device import DEFAULT_TARGET, TARGETS, Target, target
from .kernel import Kernel
from .lineage import Effect, EffectSign, Lineage, Refusal, Step, WalkEnd
from .skill import Precondition, Risk, Skill, SkillStatus, Standing
from .spend import Spent
from .surface import Site, SiteKind
from .task import Case, CaseRole, Param, TaskInfo, Tolerance, Work
from .verdict import (
    CaseResult,
    CaseTime,
    Environment,
    LaunchReport,
    LaunchTime,
    ModelTerm,
    Occupancy,
    Status,
    Traffic,
    Verdict,
    speedup_interval,
)

__all__ = [
    "DEFAULT_TARGET", "TARGETS", "Case", "CaseResult", "CaseRole", "CaseTime", "Effect", "EffectSign",
    "Environment", "Figure", "Frozen", "Kernel", "LaunchReport", "LaunchTime", "Lineage", "ModelTerm",
    "Occupancy", "Param", "Precondition", "Provenance", "Refusal", "Risk", "Site", "SiteKind", "Skill",
    "SkillStatus", "Spent", "Standing", "Status", "Step", "Target", "TaskInfo", "Tolerance", "Traffic", "Verdict",
    "WalkEnd", "Work", "content_hash", "json_hash", "measured", "modelled", "speedup_interval", "target", "unavailable",
]  # fmt: skip
