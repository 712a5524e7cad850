"""Skills: steps turned round, with conditions that evidence earned."""

from __future__ import annotations

from enum import StrEnum

from .base import Frozen, Provenance, json_hash
from .lineage import Effect


class SkillStatus(StrEnum):
    """How far a skill is to be trusted. A modelled figure never makes one ``verified``."""

    HYPOTHESIS = "hypothesis"
    VERIFIED = "verified"
    DEMOTED = "demoted"


class Standing(StrEnum):
    """How a precondition is known."""

    PROVEN = "proven"  # breaking it was tried and the gate rejected: a counter-example exists
    BOUNDED = "bounded"  # a sweep shows where it stops holding
    ASSUMED = "assumed"


class Precondition(Frozen):
    """A predicate checked by machine over surface, case and device.

    ``predicate`` names a registered checker, ``args`` its arguments, ``statement`` says it in words.
    """

    predicate: str
    args: dict[str, str] = {}
    statement: str
    standing: Standing = Standing.ASSUMED
    counterexample: str | None = None  # verdict id
    sweep: tuple[tuple[str, float], ...] = ()  # (context, speedup) around the bound

    def model_post_init(self, context: object, /) -> None:
        if self.standing is Standing.PROVEN and not self.counterexample:
            raise ValueError("a proven precondition needs its counter-example")
        if self.standing is Standing.BOUNDED and not self.sweep:
            raise ValueError("a bounded precondition needs its sweep")


class Risk(Frozen):
    """What went wrong when a condition was broken, with the verdict that shows it."""

    what: str
    case: str
    verdict: str
    kind: str  # "compile", "numeric", "slower", ...


class Skill(Frozen):
    """When an optimisation is sound and worth it."""

    name: str
    move: str
    intent: str
    anchors: tuple[str, ...]  # site kinds and predicates that locate it
    carriers: dict[str, tuple[str, ...]]  # parameter -> values that worked
    preconditions: tuple[Precondition, ...]
    effects: tuple[Effect, ...]
    risks: tuple[Risk, ...] = ()
    negative: tuple[Effect, ...] = ()  # contexts in which it did harm
    evidence: tuple[str, ...]  # verdict ids
    sources: tuple[str, ...]  # tasks whose lineages gave it
    requires: tuple[str, ...] = ()  # moves that stood above it in every lineage
    scope: tuple[str, ...]  # contexts covered
    status: SkillStatus = SkillStatus.HYPOTHESIS
    status_reason: str = ""

    def model_post_init(self, context: object, /) -> None:
        if self.status is SkillStatus.VERIFIED and not any(e.provenance is Provenance.MEASURED for e in self.effects):
            raise ValueError("a skill is verified only by a measured effect")
        if not self.evidence and (self.effects or self.negative or self.risks or self.scope):
            raise ValueError("a skill that claims something needs evidence")

    @property
    def id(self) -> str:
        """Content hash."""
        return json_hash(self.model_dump(mode="json"))

    def idle(self, mode: Provenance) -> bool:
        """Whether it gained less than 1% in every context judged in this mode, of which there are at least two."""
        known = [e.speedup for e in (*self.effects, *self.negative) if e.provenance is mode]
        return len(known) >= 2 and max(known) < 1.01

    @property
    def expected_speedup(self) -> float:
        """Geometric mean of its effects, negative ones included."""
        every = (*self.effects, *self.negative)
        product = 1.0
        for effect in every:
            product *= effect.speedup ** (1.0 / len(every))
        return product
