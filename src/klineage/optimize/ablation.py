"""Skills with part of what they know taken away, to find out what that part is worth."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from ..model import Skill, SkillStatus
from ..moves import all_moves


class Ablation(StrEnum):
    """What is left of the skills."""

    FULL = "full"
    NO_CONDITIONS = "no-conditions"  # as they are, but applied wherever their edit can be written
    LABELS_ONLY = "labels-only"  # the names of their moves: no place, value, condition, order or effect
    GENERATED_ONLY = "generated-only"  # what the moves say of themselves: every move, no lineage's evidence
    NONE = "none"


def ablated(skills: Sequence[Skill], how: Ablation) -> list[Skill]:
    """The skills as the ablation leaves them.

    Without conditions a move's own checks of soundness are left out as well (see ``checks``), so that the gate alone
    stands between an edit and the kernel.
    """
    if how is Ablation.NONE:
        return []
    if how is Ablation.NO_CONDITIONS:
        return [s.model_copy(update={"preconditions": ()}) for s in skills]
    if how is Ablation.LABELS_ONLY:
        labels = dict.fromkeys(s.move for s in skills if s.status is not SkillStatus.DEMOTED)
        intents = {s.move: s.intent for s in skills}
        return [_bare(move, intents[move]) for move in labels]
    if how is Ablation.GENERATED_ONLY:
        return [
            _bare(m.name, m.title).model_copy(
                update={"preconditions": tuple(c.as_precondition() for c in m.conditions)}
            )
            for m in all_moves()
        ]
    return list(skills)


def checks(how: Ablation) -> bool:
    """Whether moves still test their own soundness conditions."""
    return how not in (Ablation.NO_CONDITIONS, Ablation.LABELS_ONLY)


def _bare(move: str, intent: str) -> Skill:
    """A skill that knows nothing but its move."""
    return Skill(
        name=move, move=move, intent=intent, anchors=(), carriers={}, preconditions=(), effects=(), evidence=(),
        sources=(), scope=(),
    )  # fmt: skip
