"""Walks an expert kernel backward, one validated simplification at a time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal

from ..errors import KLineageError
from ..gate.protocol import Judge
from ..model import Effect, Kernel, Lineage, Refusal, Status, Step, Verdict, WalkEnd, speedup_interval
from ..model.progress import NullProgress, Progress
from ..moves import Proposal, Unsupported
from ..propose import Backward, Invert, MovesProposer, Proposer, Unusable
from ..propose.cached import amounts, is_free, normalised
from ..propose.free import simpler as is_simpler
from ..propose.protocol import Stop
from ..store.base import Store
from .dag import commutation_edges
from .inverse import WITHIN, rederive

RefusalKind = Literal["dependency", "risk", "unsupported", "not_simpler", "no_inverse", "unusable"]


@dataclass(frozen=True)
class WalkBudget:
    """What a walk may spend; the first limit reached names the walk's end."""

    steps: int = 40
    gates: int = 400
    seconds: float = 3600.0


@dataclass
class _State:
    kernel: Kernel
    verdict: Verdict
    steps: list[Step] = field(default_factory=list)
    failed: dict[tuple[str, str], list[Refusal]] = field(default_factory=dict)  # (move, function) -> failures
    refusals: list[Refusal] = field(default_factory=list)
    sources: dict[str, str] = field(default_factory=dict)
    gates: int = 0
    stop: Stop = field(default_factory=Stop)


class Walker:
    """One walk. ``run`` may be stopped with Ctrl-C: verdicts are in the store, so a second run resumes for free."""

    def __init__(
        self,
        judge: Judge,
        store: Store,
        budget: WalkBudget,
        progress: Progress | None = None,
        proposer: Proposer | None = None,
    ) -> None:
        self.proposer = proposer or MovesProposer()
        self.judge = judge
        self.store = store
        self.budget = budget
        self.progress = progress or NullProgress()
        self.started = time.monotonic()

    def run(self, expert: Kernel) -> Lineage:
        """Walk ``expert`` to its naive end or to the end of the budget.

        Raises KLineageError when the gate does not accept the expert itself.
        """
        self.progress.start(f"walk {self.judge.info.name}", None)
        try:
            return self._run(expert)
        finally:
            self.progress.done()

    def _run(self, expert: Kernel) -> Lineage:
        self.store.put_kernel(expert)
        verdict = self.judge.judge(expert)
        if not verdict.accepted:
            raise KLineageError(
                f"the expert of task {self.judge.info.name} is not accepted: {verdict.status}: {verdict.reason}",
                "correct the task's expert, adapter or cases",
            )
        state = _State(expert, verdict)
        state.sources[expert.id] = expert.source
        try:
            end = self._descend(state)
        except KeyboardInterrupt:
            self.store.put_lineage(self._lineage(expert, verdict, state, WalkEnd.INTERRUPTED))
            raise
        lineage = self._lineage(expert, verdict, state, end)
        self.store.put_lineage(lineage)
        return lineage

    def _descend(self, state: _State) -> WalkEnd:
        while True:
            spent = self._spent(state)
            if spent is not None:
                return spent
            taken = self._one_step(state)
            if isinstance(taken, WalkEnd):
                return taken
            if not taken:
                return self._end(state)

    def _end(self, state: _State) -> WalkEnd:
        """Why nothing was taken. Only where no move applies is a model's end the naive one."""
        state.stop = self.proposer.stop()
        if self.proposer.name == MovesProposer.name or not any(amounts(state.kernel.source)):
            return WalkEnd.NAIVE
        return WalkEnd.PROPOSER_BUDGET if state.stop.budget else WalkEnd.PROPOSER

    def _spent(self, state: _State) -> WalkEnd | None:
        if len(state.steps) >= self.budget.steps:
            return WalkEnd.STEP_BUDGET
        if state.gates >= self.budget.gates:
            return WalkEnd.GATE_BUDGET
        if time.monotonic() - self.started > self.budget.seconds:
            return WalkEnd.TIME_BUDGET
        return None

    def _one_step(self, state: _State) -> bool | WalkEnd:
        """Take the first acceptable simplification that the proposer gives."""
        for proposal in self.proposer.simplifications(self._ask(state)):
            if isinstance(proposal, Unsupported):
                site = proposal.site.label if proposal.site else ""
                self._note_refusal(state, proposal.move, site, "unsupported", proposal.reason, None)
                continue
            if isinstance(proposal, Unusable):
                self._note_refusal(state, "", "", "unusable", f"{proposal.outcome}: {proposal.reason}", None)
                self.progress.step(f"no kernel in the answer: {proposal.outcome}")
                continue
            spent = self._spent(state)
            if spent is not None:
                return spent
            candidate = state.kernel.derive(proposal.source, f"simplify {proposal.move}")
            if normalised(candidate.source) in {normalised(s) for s in state.sources.values()}:
                continue
            if not is_simpler(candidate.source, state.kernel.source, free=is_free(proposal.move)):
                self._refuse(state, proposal, "not_simpler", "the surface does not become simpler", None)
                continue
            verdict = self.judge.judge(candidate)
            state.gates += 1
            if not verdict.accepted:
                kind: RefusalKind = "risk" if verdict.status is Status.REJECTED_NUMERIC else "dependency"
                self._refuse(state, proposal, kind, f"{verdict.status}: {verdict.reason}", verdict.id)
                continue
            self._accept(state, proposal, candidate, verdict)
            return True
        return False

    def _ask(self, state: _State) -> Backward:
        return Backward(
            info=self.judge.info,
            target=self.judge.target,
            kernel=state.kernel,
            verdict=state.verdict,
            steps=state.steps,
            refusals=state.refusals,
            failed=frozenset(state.failed),
        )

    def _refuse(self, state: _State, proposal: Proposal, kind: RefusalKind, reason: str, verdict: str | None) -> None:
        refusal = self._note_refusal(state, proposal.move, proposal.site.label, kind, reason, verdict)
        key = (proposal.move, proposal.site.function)
        state.failed.setdefault(key, []).append(refusal)
        self.progress.step(f"refused {proposal.move}: {reason}")

    def _note_refusal(
        self, state: _State, move: str, site: str, kind: RefusalKind, reason: str, verdict: str | None
    ) -> Refusal:
        refusal = Refusal(move=move, kernel=state.kernel.id, site=site, reason=reason, kind=kind, verdict=verdict)
        if not any((r.move, r.reason, r.kind) == (move, reason, kind) for r in state.refusals):
            state.refusals.append(refusal)
            self.store.put_refusal(self._run_key(), refusal)
        return refusal

    def _accept(self, state: _State, proposal: Proposal, simpler: Kernel, verdict: Verdict) -> None:
        optimised_us, simpler_us = _time(state.verdict), _time(verdict)
        inverse = rederive(self.judge, self.proposer, self._invert(proposal, simpler, simpler_us, optimised_us))
        state.gates += inverse.tried
        within = inverse.ratio is not None and inverse.ratio * WITHIN >= 1.0
        step = Step(
            index=len(state.steps),
            move=proposal.move,
            intent=_intent(proposal),
            site=proposal.site,
            params=dict(proposal.params),
            optimised=state.kernel.id,
            simpler=simpler.id,
            verdict=verdict.id,
            effects=effects(state.verdict, verdict),
            inverse_params=dict(inverse.proposal.params) if inverse.proposal else None,
            inverse_kernel=inverse.kernel.id if inverse.kernel else None,
            inverse_verdict=inverse.verdict.id if inverse.verdict else None,
            inverse_ratio=inverse.ratio,
            skill_refused="" if within else inverse.reason,
            proposer=self.proposer.name,
        )
        self.store.put_kernel(simpler)
        if inverse.kernel is not None:
            self.store.put_kernel(inverse.kernel)
        self.store.put_step(self._run_key(), step)
        state.steps.append(step)
        self._settle_dependencies(state, proposal)
        state.kernel, state.verdict = simpler, verdict
        state.sources[simpler.id] = simpler.source
        self.progress.step(f"{proposal.move}: {simpler_us / optimised_us:.2f}x without it ({self.judge.mode})")

    def _invert(self, proposal: Proposal, simpler: Kernel, simpler_us: float, optimised_us: float) -> Invert:
        return Invert(
            info=self.judge.info,
            target=self.judge.target,
            move=proposal.move,
            intent=_intent(proposal),
            function=proposal.site.function,
            simpler=simpler,
            simpler_us=simpler_us,
            optimised_us=optimised_us,
        )

    def _settle_dependencies(self, state: _State, proposal: Proposal) -> None:
        """A simplification that failed earlier and passes now was a dependency, whatever it looked like then."""
        earlier = state.failed.pop((proposal.move, proposal.site.function), [])
        for refusal in earlier:
            if refusal.kind == "risk" and refusal in state.refusals:
                index = state.refusals.index(refusal)
                state.refusals[index] = refusal.model_copy(update={"kind": "dependency"})

    def _run_key(self) -> str:
        return f"walk/{self.judge.info.name}/{self.judge.target.name}/{self.judge.mode}"

    def _lineage(self, expert: Kernel, verdict: Verdict, state: _State, end: WalkEnd) -> Lineage:
        edges = commutation_edges(state.steps, state.sources) if end is not WalkEnd.INTERRUPTED else ()
        last = self.proposer.stop()
        reason = state.stop.reason or last.reason
        return Lineage(
            task=self.judge.info.name,
            task_id=verdict.task_id,
            expert=expert.id,
            naive=state.kernel.id,
            expert_verdict=verdict.id,
            target=self.judge.target.name,
            mode=self.judge.mode,
            steps=tuple(state.steps),
            edges=edges,
            refusals=tuple(state.refusals),
            end=end,
            expert_us=_time(verdict),
            naive_us=_time(state.verdict),
            proposer=self.proposer.name,
            spent=(*state.stop.spent, *last.spent),
            note=reason,
        )


def walk(
    judge: Judge,
    store: Store,
    expert: Kernel,
    budget: WalkBudget | None = None,
    progress: Progress | None = None,
    proposer: Proposer | None = None,
) -> Lineage:
    """Walk ``expert`` backward with the judge; the lineage is kept in the store. Without a proposer: the moves."""
    return Walker(judge, store, budget or WalkBudget(), progress, proposer).run(expert)


def effects(optimised: Verdict, simpler: Verdict) -> tuple[Effect, ...]:
    """One effect per bench case both verdicts timed."""
    before = {t.case: t for t in optimised.times}
    found: list[Effect] = []
    for t in simpler.times:
        other = before.get(t.case)
        if other is None or other.latency.value is None or t.latency.value is None:
            continue
        found.append(
            Effect(
                context=f"{simpler.environment.target}/{simpler.task}/{t.case}",
                optimised_us=other.latency.value,
                simpler_us=t.latency.value,
                provenance=t.latency.provenance,
                interval=speedup_interval(other, t),
            )
        )
    return tuple(found)


def _time(verdict: Verdict) -> float:
    value = verdict.latency_us
    if value is None:
        raise KLineageError("an accepted verdict has no time", "report this as a bug")
    return value


def _intent(proposal: Proposal) -> str:
    from ..moves import move

    return (proposal.note or proposal.move) if is_free(proposal.move) else move(proposal.move).title
