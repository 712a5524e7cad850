"""Steps and lineages: validated transitions from a kernel to simpler ones, as a DAG."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from .base import Frozen, Provenance
from .spend import Spent
from .surface import Site


class EffectSign(StrEnum):
    """What taking the optimisation away did to the time."""

    SLOWER = "slower"  # the optimisation pays here
    NEUTRAL = "neutral"
    FASTER = "faster"  # the optimisation does harm here: negative evidence


class Effect(Frozen):
    """Time before and after in one context. ``speedup`` is what the optimisation gives: simpler over optimised."""

    context: str  # e.g. "sm_90/fp16/16384x8192"
    optimised_us: float
    simpler_us: float
    provenance: Provenance
    interval: tuple[float, float] | None = None  # of the speedup, when measured

    @property
    def speedup(self) -> float:
        """Simpler time over optimised time: above 1 when the optimisation pays."""
        return self.simpler_us / self.optimised_us

    @property
    def sign(self) -> EffectSign:
        """Slower/neutral/faster for the simplification, with 2% as the neutral band."""
        if self.speedup > 1.02:
            return EffectSign.SLOWER
        return EffectSign.FASTER if self.speedup < 1 / 1.02 else EffectSign.NEUTRAL


class Refusal(Frozen):
    """A simplification or inverse that was not taken, and why."""

    move: str
    kernel: str  # id of the kernel it was tried on
    site: str
    reason: str
    kind: Literal["dependency", "risk", "unsupported", "not_simpler", "no_inverse", "unusable"]
    verdict: str | None = None


class Step(Frozen):
    """An accepted simplification ``optimised -> simpler``. With a re-derived inverse it can become a skill."""

    index: int
    move: str
    intent: str
    site: Site
    params: dict[str, str] = {}  # what the optimisation carried (e.g. num_stages=3)
    optimised: str  # kernel ids
    simpler: str
    verdict: str  # of the simpler kernel
    effects: tuple[Effect, ...]
    inverse_params: dict[str, str] | None = None  # parameters the re-derived inverse used
    inverse_kernel: str | None = None
    inverse_verdict: str | None = None
    inverse_ratio: float | None = None  # optimised time over re-derived time; >= 0.98 to be a skill
    skill_refused: str = ""  # why the step is not a skill, when it is not
    proposer: str = "moves"

    @property
    def is_skill(self) -> bool:
        """Whether the inverse was re-derived, accepted and within 2% of the optimised side."""
        return self.inverse_verdict is not None and not self.skill_refused

    @property
    def speedup(self) -> float:
        """Geometric mean of the effects' speedups."""
        product = 1.0
        for effect in self.effects:
            product *= effect.speedup ** (1.0 / len(self.effects))
        return product


class WalkEnd(StrEnum):
    """Why a walk stopped."""

    NAIVE = "naive"  # no move applies
    PROPOSER = "proposer"  # the proposer has nothing more, though some move still applies
    PROPOSER_BUDGET = "proposer_budget"  # what the proposer may spend is spent
    STEP_BUDGET = "step_budget"
    GATE_BUDGET = "gate_budget"
    TIME_BUDGET = "time_budget"
    INTERRUPTED = "interrupted"


class Lineage(Frozen):
    """A walk from an expert kernel to its naive end.

    ``edges`` are (i, j) index pairs of steps: step j needs step i's simplification first; steps with no path
    between them commute.
    """

    task: str
    task_id: str
    expert: str
    naive: str
    expert_verdict: str
    target: str
    mode: Provenance
    steps: tuple[Step, ...]
    edges: tuple[tuple[int, int], ...] = ()
    refusals: tuple[Refusal, ...] = ()
    end: WalkEnd
    expert_us: float
    naive_us: float
    proposer: str = "moves"
    spent: tuple[Spent, ...] = ()  # when the proposer is a model
    note: str = ""  # why the proposer stopped, when it was not the moves
