"""What skills did on operators that no lineage of theirs used, and how they stand after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..model import Effect, Provenance, Risk, Skill, SkillStatus, Verdict
from ..model.optimize import OptimizeReport, Try

_HARM = 1 / 1.02  # of the time before over the time after: a try that slowed its kernel down by more


_FEWEST = 2  # operators without a gain that demote a skill


@dataclass(frozen=True)
class _Outcome:
    report: OptimizeReport
    tried: Try
    verdict: Verdict | None

    @property
    def gain(self) -> float | None:
        """Time before over time after, or None when the try gave no time."""
        return self.tried.before_us / self.tried.after_us if self.tried.after_us else None

    @property
    def text(self) -> str:
        """The operator with what came of it."""
        return f"{self.report.task} {'failed' if self.gain is None else f'×{self.gain:.2f}'}"


def verified(skill: Skill, reports: Sequence[OptimizeReport], verdict: Callable[[str], Verdict | None]) -> Skill:
    """The skill after these searches: with their effects, harm and risks, and with another status where they decide it.

    A measured gain on an operator outside its sources makes it ``verified``; a skill that was measured on two such
    operators or more and gained on none is ``demoted``. What was modelled changes no status. ``verdict`` gives one by
    its id.
    """
    outcomes = [
        _Outcome(r, t, verdict(t.verdict))
        for r in reports
        if r.task not in skill.sources
        for t in r.tries
        if t.skill == skill.name and t.verdict
    ]
    if not outcomes:
        return skill
    effects = [(o.tried.decision == "kept", e) for o in outcomes for e in _effects(o)]
    known = {e.context for e in (*skill.effects, *skill.negative)}
    fresh = [(kept, e) for kept, e in effects if e.context not in known]
    risks = [
        Risk(what=o.verdict.reason, case=o.report.task, verdict=o.verdict.id, kind=str(o.verdict.status))
        for o in outcomes
        if o.verdict is not None and o.gain is None
    ]
    judged = skill.model_copy(
        update={
            "effects": (*skill.effects, *(e for _, e in fresh if e.speedup >= _HARM)),
            "negative": (*skill.negative, *(e for _, e in fresh if e.speedup < _HARM)),
            "risks": (*skill.risks, *(r for r in risks if r.verdict not in {x.verdict for x in skill.risks})),
            "evidence": tuple(dict.fromkeys([*skill.evidence, *(str(o.tried.verdict) for o in outcomes)])),
            "scope": tuple(sorted({*skill.scope, *(e.context for _, e in fresh)})),
        }
    )
    status, reason = _status(skill, outcomes)
    return Skill.model_validate({**judged.model_dump(), "status": status, "status_reason": reason})


def _status(skill: Skill, outcomes: Sequence[_Outcome]) -> tuple[SkillStatus, str]:
    operators = sorted({o.report.task for o in outcomes})
    kept = [o for o in outcomes if o.tried.decision == "kept"]
    gained = sorted({o.report.task for o in kept})
    mode = outcomes[0].report.mode
    counts = f"{len(gained)} of {len(operators)} held-out operators"
    said = ", ".join(o.text for o in (kept or outcomes)[:8])
    if mode is not Provenance.MEASURED:
        return skill.status, f"{skill.status_reason}; gained on {counts} ({mode}): {said}"
    if kept:
        return SkillStatus.VERIFIED, f"gained on {counts} (measured): {said}"
    if len(operators) < _FEWEST:
        return SkillStatus.HYPOTHESIS, f"no gain on {said} (measured), held out; one operator is too few to demote it"
    return SkillStatus.DEMOTED, f"gained on none of {len(operators)} held-out operators (measured): {said}"


def _effects(outcome: _Outcome) -> list[Effect]:
    """The effect of a try, over all bench cases together."""
    after = outcome.tried.after_us
    if not after:
        return []
    target, task = outcome.report.target, outcome.report.task
    return [
        Effect(
            context=f"{target}/{task}/held-out",
            optimised_us=after,
            simpler_us=outcome.tried.before_us,
            provenance=outcome.report.mode,
        )
    ]
