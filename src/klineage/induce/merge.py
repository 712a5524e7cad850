"""Invert steps and merge those that are the same optimisation on the same family of kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..model import Effect, EffectSign, Kernel, Lineage, Precondition, Risk, Skill, Step
from ..moves import family, kernel_of, move
from ..propose.cached import is_free
from ..propose.free import alike
from ..surface import Module

NEUTRAL = 1.02


@dataclass(frozen=True)
class Source:
    """A step that is a skill, with the texts on both sides and the lineage it stands in."""

    lineage: Lineage
    step: Step
    optimised: Kernel
    simpler: Kernel

    @property
    def family(self) -> str:
        """Family of the kernel the step acted on."""
        module = Module.parse(self.optimised.source)
        return family(module, kernel_of(module, self.step.site))


def group(
    lineages: Iterable[Lineage], kernel: Callable[[str], Kernel | None]
) -> tuple[dict[tuple[str, str], list[Source]], list[Step]]:
    """((move, family) -> sources, steps that are no skill)."""
    grouped: dict[tuple[str, str], list[Source]] = {}
    others: list[Step] = []
    for lineage in lineages:
        for step in lineage.steps:
            optimised, simpler = kernel(step.optimised), kernel(step.simpler)
            if not step.is_skill or optimised is None or simpler is None:
                others.append(step)
                continue
            source = Source(lineage, step, optimised, simpler)
            grouped.setdefault(_key(source, grouped), []).append(source)
    return grouped, others


def _key(source: Source, grouped: dict[tuple[str, str], list[Source]]) -> tuple[str, str]:
    """(move, family). Free moves whose intents say the same, on the same family, go by the first one's name."""
    name, kind = source.step.move, source.family
    if is_free(name):
        for (other, family_of), sources in grouped.items():
            if family_of == kind and is_free(other) and alike(sources[0].step.intent, source.step.intent):
                return other, kind
    return name, kind


def induce_skill(
    key: tuple[str, str],
    sources: Sequence[Source],
    preconditions: Sequence[Precondition],
    probed: Sequence[Effect] = (),
    risks: Sequence[Risk] = (),
    evidence: Sequence[str] = (),
) -> Skill:
    """One skill from like steps. Effects that did harm are kept apart as negative evidence."""
    name, kind = key
    if is_free(name):
        intent, anchors = sources[0].step.intent, tuple(dict.fromkeys(str(s.step.site.kind) for s in sources))
    else:
        intent, anchors = move(name).title, tuple(str(k) for k in move(name).anchors)
    effects = [e for s in sources for e in s.step.effects]
    every = _distinct([*effects, *probed])
    harmful = tuple(e for e in every if e.sign is EffectSign.FASTER)
    helpful = tuple(e for e in every if e.sign is not EffectSign.FASTER)
    ids = [v for s in sources for v in (s.step.verdict, s.step.inverse_verdict) if v]
    return Skill(
        name=f"{name.replace('_', '-').replace(':', '-')}-{kind}",
        move=name,
        intent=intent,
        anchors=(*anchors, f"family:{kind}"),
        carriers=_carriers(sources),
        preconditions=tuple(preconditions),
        effects=helpful,
        risks=tuple(risks),
        negative=harmful,
        evidence=tuple(dict.fromkeys([*ids, *evidence])),
        sources=tuple(sorted({s.lineage.task for s in sources})),
        requires=_requires(sources),
        scope=tuple(sorted({e.context for e in every})),
        status_reason=f"effects are {sources[0].lineage.mode}; not yet confirmed on a task outside its sources",
    )


def _distinct(effects: Sequence[Effect]) -> list[Effect]:
    return list({(e.context, round(e.speedup, 6)): e for e in effects}.values())


def _carriers(sources: Sequence[Source]) -> dict[str, tuple[str, ...]]:
    """Values that worked, those of the largest effect first."""
    found: dict[str, list[str]] = {}
    for source in sorted(sources, key=lambda s: -s.step.speedup):
        for params in (source.step.params, source.step.inverse_params or {}):
            for carrier, value in params.items():
                if value not in found.setdefault(carrier, []):
                    found[carrier].append(value)
    return {carrier: tuple(values) for carrier, values in found.items()}


def _requires(sources: Sequence[Source]) -> tuple[str, ...]:
    """Moves whose simplification needed this one's first, in every lineage that has both.

    Forward, their materialisation comes before this one's.
    """
    required: set[str] | None = None
    moves_seen: set[str] = set()
    for source in sources:
        steps = source.lineage.steps
        after = {steps[j].move for i, j in source.lineage.edges if i == source.step.index}
        moves_seen |= {s.move for s in steps}
        required = after if required is None else {m for m in required | after if m in after or not _has(source, m)}
    return tuple(sorted((required or set()) - {sources[0].step.move}))


def _has(source: Source, name: str) -> bool:
    return any(s.move == name for s in source.lineage.steps)
