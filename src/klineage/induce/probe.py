"""Probe the bounds of a skill: break its conditions on purpose, sweep shapes and targets, keep what is learnt."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from ..gate.protocol import Judge, Profile
from ..model import (
    Case,
    CaseRole,
    Effect,
    EffectSign,
    LaunchReport,
    Precondition,
    Risk,
    Standing,
    Status,
    Verdict,
    speedup_interval,
    target,
)
from ..moves import FEATURES, Context, Proposal, features, holds, move, report_of
from ..propose.cached import is_free
from ..surface import Module
from ..surface.query import normal
from .merge import Source


@dataclass(frozen=True)
class ProbePlan:
    """How far to probe. Scales multiply one dimension of a bench case at a time."""

    scales: tuple[float, ...] = (0.0625, 0.25, 4.0)
    dtypes: tuple[str, ...] = ("fp16", "bf16", "fp32")
    targets: tuple[str, ...] = ("sm_80", "sm_89", "sm_100", "sm_120")
    counterexamples: int = 3  # unchecked proposals judged for each skill
    max_elements: float = 2**29  # of the product of a case's dimensions
    dimensions: int = 8  # how many of a case's dimensions are scaled, in the order the task gives them

    @staticmethod
    def light() -> ProbePlan:
        """What quickstart affords."""
        return ProbePlan(scales=(0.0625,), dtypes=(), targets=(), counterexamples=1, dimensions=1)


@dataclass
class Probe:
    """What probing one skill brought."""

    preconditions: list[Precondition]
    effects: list[Effect] = field(default_factory=list)
    risks: list[Risk] = field(default_factory=list)
    evidence: list[str] = field(default_factory=list)
    points: list[tuple[Effect, dict[str, float]]] = field(default_factory=list)


class Prober:
    """Probes skills of one task with that task's judge."""

    def __init__(self, judge: Judge, plan: ProbePlan) -> None:
        self.judge = judge
        self.plan = plan

    def probe(self, family: str, sources: Sequence[Source]) -> Probe:
        """Probe one skill on its first source of this judge's task."""
        source = sources[0]
        free = is_free(source.step.move)  # no code of its own: it declares nothing, and cannot be broken on purpose
        declared = [] if free else [c.as_precondition() for c in move(source.step.move).conditions]
        anchor = Precondition(
            predicate="kernel_family_is",
            args={"family": family},
            statement=f"the kernel is of the {family} family",
        )
        probe = Probe([anchor, *declared])
        if not free:
            self._counterexamples(probe, source)
        self._sweep(probe, source)
        self._bound(probe)
        return probe

    # ---------------------------------------------------------------- soundness
    def _counterexamples(self, probe: Probe, source: Source) -> None:
        """Judge proposals that the move makes only when its checks are off; a rejection proves the condition."""
        module = Module.parse(source.simpler.source)
        optimisation = move(source.step.move)
        checked = {normal(p.source) for p in optimisation.materialize(module) if isinstance(p, Proposal)}
        reports = self._launches(source)
        judged = 0
        for proposal in optimisation.materialize(module, None, checked=False):
            if isinstance(proposal, Proposal) and normal(proposal.source) not in checked:
                if judged >= self.plan.counterexamples:
                    return
                judged += 1
                kernel = source.simpler.derive(proposal.source, f"unchecked {proposal.move}")
                self._settle(probe, module, proposal, reports, self.judge.judge(kernel))

    def _launches(self, source: Source) -> tuple[LaunchReport, ...]:
        verdict = self.judge.judge(source.simpler)
        return verdict.launches

    def _settle(
        self,
        probe: Probe,
        module: Module,
        proposal: Proposal,
        reports: tuple[LaunchReport, ...],
        verdict: Verdict,
    ) -> None:
        probe.evidence.append(verdict.id)
        if verdict.status not in (Status.REJECTED_NUMERIC, Status.REJECTED_COMPILE, Status.REJECTED_HACK):
            return
        failed = next((c.case for c in verdict.cases if not c.passed), "")
        kind = "numeric" if verdict.status is Status.REJECTED_NUMERIC else "compile"
        probe.risks.append(Risk(what=verdict.reason, case=failed, verdict=verdict.id, kind=kind))
        cases = {c.name: c for c in self.judge.info.cases}
        for index, condition in enumerate(probe.preconditions):
            context = Context(module, proposal.site, proposal.params, self.judge.target, cases.get(failed), reports)
            if condition.standing is Standing.ASSUMED and holds(condition, context) is False:
                probe.preconditions[index] = condition.model_copy(
                    update={"standing": Standing.PROVEN, "counterexample": verdict.id}
                )

    # ------------------------------------------------------------- profitability
    def _sweep(self, probe: Probe, source: Source) -> None:
        bench = self.judge.info.with_role(CaseRole.BENCH)
        if not bench:
            return
        points = [(case, self.judge.target) for case in variants(bench[0], self.plan)]
        points += [(bench[0], target(name)) for name in self.plan.targets if name != self.judge.target.name]
        with ThreadPoolExecutor(2) as pool:  # both sides of a point at once; the judge's workers are processes
            for case, where in points:
                sides = [
                    pool.submit(self.judge.profile, kernel, [case], where)
                    for kernel in (source.optimised, source.simpler)
                ]
                optimised, simpler = (side.result()[0] for side in sides)
                self._point(probe, source, f"{where.name}/{source.lineage.task}/{case.name}", optimised, simpler)

    @staticmethod
    def _point(probe: Probe, source: Source, context: str, optimised: Profile, simpler: Profile) -> None:
        """One context: an effect where both sides have a time, a risk where only the simpler one has."""
        if simpler[0] is None or simpler[0].latency.value is None:
            return
        if optimised[0] is None or optimised[0].latency.value is None:
            probe.risks.append(Risk(what=optimised[2], case=context, verdict=source.step.verdict, kind="compile"))
            return
        effect = Effect(
            context=context,
            optimised_us=optimised[0].latency.value,
            simpler_us=simpler[0].latency.value,
            provenance=simpler[0].latency.provenance,
            interval=speedup_interval(optimised[0], simpler[0]),
        )
        probe.effects.append(effect)
        report = report_of(source.step.site, simpler[1])
        if report is not None:
            probe.points.append((effect, features(report)))

    def _bound(self, probe: Probe) -> None:
        """When the sweep holds both gain and harm, the launch feature that parts them becomes a precondition."""
        gain = [(e, f) for e, f in probe.points if e.sign is EffectSign.SLOWER]
        harm = [(e, f) for e, f in probe.points if e.sign is EffectSign.FASTER]
        if not gain or not harm:
            return
        for feature in FEATURES:
            bound = _separator([f[feature] for _, f in gain], [f[feature] for _, f in harm])
            if bound is None:
                continue
            side, value = bound
            sweep = tuple((e.context, round(e.speedup, 4)) for e, _ in probe.points)
            words = feature.replace("_", " ")
            probe.preconditions.append(
                Precondition(
                    predicate=f"feature_{side}",
                    args={"feature": feature, "bound": f"{value:g}"},
                    statement=f"{words} {side.replace('_', ' ')} {value:g}",
                    standing=Standing.BOUNDED,
                    sweep=sweep,
                )
            )
            return


def _separator(gain: Sequence[float], harm: Sequence[float]) -> tuple[str, float] | None:
    """(side, bound) of a threshold with all gains on one side and all harm on the other, else None.

    The turning point lies somewhere between the nearest gain and the nearest harm: their geometric mean is the bound.
    """
    if min(gain) > max(harm):
        return "at_least", math.sqrt(min(gain) * max(harm))
    if max(gain) < min(harm):
        return "at_most", math.sqrt(max(gain) * min(harm))
    return None


def variants(case: Case, plan: ProbePlan) -> list[Case]:
    """Cases around ``case``: one integer dimension scaled at a time, and other dtypes."""
    found: list[Case] = []
    dimensions = {k: v for k, v in case.params.items() if isinstance(v, int) and not isinstance(v, bool) and v > 16}
    for name, value in list(dimensions.items())[: plan.dimensions]:
        for scale in plan.scales:
            scaled = max(16, int(value * scale))
            params: Mapping[str, int | float | str | bool] = {**case.params, name: scaled}
            if scaled != value and _elements(params) <= plan.max_elements:
                found.append(case.model_copy(update={"name": f"{case.name}[{name}={scaled}]", "params": params}))
    if isinstance(case.params.get("dtype"), str):
        for dtype in plan.dtypes:
            if dtype != case.params["dtype"]:
                params = {**case.params, "dtype": dtype}
                found.append(case.model_copy(update={"name": f"{case.name}[dtype={dtype}]", "params": params}))
    return found


def _elements(params: Mapping[str, int | float | str | bool]) -> float:
    """The product of the two largest dimensions: about the largest tensor's elements."""
    sizes = sorted((v for v in params.values() if isinstance(v, int) and not isinstance(v, bool)), reverse=True)
    return float(sizes[0] * (sizes[1] if len(sizes) > 1 else 1)) if sizes else 0.0
