"""The budgeted forward loop: try, gate, keep or go back; never worse than the start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import KLineageError
from ..gate.protocol import Judge
from ..model import CaseRole, Kernel, Site, Skill, Status, Verdict
from ..model.optimize import OptimizeReport, Try
from ..model.progress import NullProgress, Progress
from ..propose import Candidate, Forward, Improvement, MovesProposer, Proposer, Rejected, Unusable
from ..store.base import Store
from ..surface.query import normal
from .ablation import Ablation, ablated, checks
from .match import Situation, match, match_free

GAIN = 1.01  # a try is kept when it is at least this much faster
VALUES_PER_SKILL = 3  # values of one skill tried at a site before another step is kept
LITTLE = 1.05  # a skill expected to bring less gets one value


@dataclass
class _Search:
    kernel: Kernel
    verdict: Verdict
    tries: list[Try] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)  # normalised texts already judged
    noted: set[tuple[str, str, str]] = field(default_factory=set)
    tried: dict[tuple[str, str, int], int] = field(default_factory=dict)  # (skill, function, steps kept) -> tries
    # (kernel id, its candidates, skills that do not hold, skills that only a model can apply)
    matched: tuple[str, list[Candidate], list[Rejected], list[tuple[Skill, Site]]] | None = None
    kept: int = 0
    gates: int = 0


class Optimizer:
    """Applies skills to one task's kernel within a budget of gate runs."""

    def __init__(
        self,
        judge: Judge,
        store: Store,
        skills: Sequence[Skill],
        progress: Progress | None = None,
        proposer: Proposer | None = None,
        ablation: Ablation = Ablation.FULL,
    ) -> None:
        self.proposer = proposer or MovesProposer()
        self.judge = judge
        self.store = store
        self.skills = ablated(skills, ablation)
        self.ablation = ablation
        self.progress = progress or NullProgress()

    def run(self, start: Kernel, budget: int = 10) -> OptimizeReport:
        """Search from ``start`` with at most ``budget`` gate runs.

        Raises KLineageError when the gate does not accept the start.
        """
        self.store.put_kernel(start)
        self.progress.start(f"optimise {self.judge.info.name}", budget)
        try:
            verdict = self.judge.judge(start)
            if not verdict.accepted:
                raise KLineageError(
                    f"the start kernel is not accepted: {verdict.status}: {verdict.reason}",
                    "start from a kernel that is right",
                )
            search = _Search(start, verdict, seen={normal(start.source)})
            end = self._search(search, budget)
        finally:
            self.progress.done()
        stop = self.proposer.stop()
        return OptimizeReport(
            task=self.judge.info.name,
            target=self.judge.target.name,
            mode=self.judge.mode,
            start_kernel=start.id,
            best_kernel=search.kernel.id,
            start_us=_time(verdict),
            best_us=_time(search.verdict),
            tries=tuple(search.tries),
            end=stop.reason or end,
            vendor_us=search.verdict.vendor_us,
            proposer=self.proposer.name,
            skills=self.ablation.value,
            spent=tuple(stop.spent),
        )

    def _search(self, search: _Search, budget: int) -> str:
        """Judge what the proposer gives until it has nothing more or the budget is spent; returns why it ended."""
        while True:
            open_ones = self._open(search)
            if search.gates >= budget and (open_ones or self.proposer.name != MovesProposer.name):
                return f"the budget of {budget} tries is spent"
            given = self.proposer.improvement(self._ask(search, open_ones, budget - search.gates))
            if given is None:
                return "no skill is left to try"
            if isinstance(given, Unusable):
                self._unusable(search, given)
            else:
                self._try(search, given)

    def _ask(self, search: _Search, open_ones: Sequence[Candidate], gates_left: int) -> Forward:
        _, _, rejected, free = search.matched or ("", [], [], [])
        return Forward(
            info=self.judge.info,
            target=self.judge.target,
            kernel=search.kernel,
            verdict=search.verdict,
            candidates=open_ones,
            rejected=rejected,
            free=free,
            tries=search.tries,
            gates_left=gates_left,
        )

    def _open(self, search: _Search) -> list[Candidate]:
        """Candidates not judged yet, largest expected effect first; of equals, one whose required moves are done."""
        info = self.judge.info
        situation = Situation(
            source=search.kernel.source,
            target=self.judge.target,
            cases=info.with_role(CaseRole.BENCH),
            reports={c.name: search.verdict.launches for c in info.with_role(CaseRole.BENCH)},
            checked=checks(self.ablation),
        )
        if search.matched is None or search.matched[0] != search.kernel.id:
            candidates, rejected = match(self.skills, situation)
            if self.proposer.name == MovesProposer.name:  # a model is told of them instead
                idle = [c for c in candidates if c.skill.idle(self.judge.mode)]
                why = f"not tried: it gained nothing wherever it was judged ({self.judge.mode})"
                candidates = [c for c in candidates if c not in idle]
                for refusal in [*rejected, *(Rejected(c.skill, c.proposal.site.label, why) for c in idle)]:
                    self._note(search, refusal)
            search.matched = (search.kernel.id, candidates, rejected, match_free(self.skills, situation))
        candidates = search.matched[1]
        open_ones = [c for c in candidates if normal(c.proposal.source) not in search.seen]
        # a skill that brought nothing waits behind the others, and rests after some values until a step was kept
        tries = {id(c): search.tried.get((*_key(c), search.kept), 0) for c in open_ones}
        open_ones = [c for c in open_ones if tries[id(c)] < _values(c)]
        pending = {c.skill.move for c in open_ones if not tries[id(c)]}
        waiting = {id(c): bool(set(c.skill.requires) & pending - {c.skill.move}) for c in open_ones}
        return sorted(open_ones, key=lambda c: (tries[id(c)], -c.expected, waiting[id(c)]))

    def _try(self, search: _Search, given: Improvement) -> None:
        proposal = given.proposal
        if normal(proposal.source) in search.seen:
            self._unusable(search, Unusable("unchanged", "this kernel was judged before"))
            return
        kernel = search.kernel.derive(proposal.source, f"skill {given.skill}")
        search.seen.add(normal(proposal.source))
        verdict = self.judge.judge(kernel, search.verdict)
        search.gates += 1
        place = (given.skill, proposal.site.function, search.kept)
        search.tried[place] = search.tried.get(place, 0) + 1
        before, after = _time(search.verdict), verdict.latency_us
        kept = verdict.accepted and after is not None and after * GAIN <= before
        parameters = ", ".join(f"{k}={v}" for k, v in proposal.params.items())
        if kept and after is not None:
            reason = f"{before / after:.2f}x faster ({self.judge.mode})"
            reason += f"; expected {given.expected:.2f}x" if given.expected is not None else ""
        elif verdict.accepted or verdict.status is Status.REJECTED_SLOW:
            reason = f"no gain: {before / (after or before):.2f}x ({self.judge.mode})"
        else:
            reason = f"{verdict.status}: {verdict.reason}"
        if given.unknown:
            reason += f"; not checkable here: {'; '.join(given.unknown)}"
        search.tries.append(
            Try(
                index=len(search.tries),
                skill=given.skill,
                move=proposal.move,
                site=f"{proposal.site.label} {parameters}".strip(),
                decision="kept" if kept else "refused",
                reason=reason,
                before_us=before,
                after_us=after,
                kernel=kernel.id,
                verdict=verdict.id,
            )
        )
        self.progress.step(f"{given.skill}: {reason}")
        self.store.put_kernel(kernel)
        if kept:
            search.kernel, search.verdict = kernel, verdict
            search.kept += 1

    def _unusable(self, search: _Search, answer: Unusable) -> None:
        """Record an answer that gave no kernel to judge; costs no gate run."""
        reason = f"{answer.outcome}: {answer.reason}"
        search.tries.append(
            Try(
                index=len(search.tries),
                skill=self.proposer.name,
                move="",
                site="",
                decision="refused",
                reason=reason,
                before_us=_time(search.verdict),
            )
        )
        self.progress.note(reason)

    def _note(self, search: _Search, refusal: Rejected) -> None:
        """Record once why a skill was not even tried; costs no gate run."""
        key = (refusal.skill.name, refusal.site.split(":")[0], refusal.reason)
        if key in search.noted or not refusal.site:
            return
        search.noted.add(key)
        search.tries.append(
            Try(
                index=len(search.tries),
                skill=refusal.skill.name,
                move=refusal.skill.move,
                site=refusal.site,
                decision="refused",
                reason=refusal.reason,
                before_us=_time(search.verdict),
            )
        )


def optimize(
    judge: Judge,
    store: Store,
    start: Kernel,
    skills: Sequence[Skill],
    budget: int = 10,
    progress: Progress | None = None,
    proposer: Proposer | None = None,
    ablation: Ablation = Ablation.FULL,
) -> OptimizeReport:
    """Apply ``skills`` to ``start`` within ``budget`` gate runs; the result is never worse than the start."""
    return Optimizer(judge, store, skills, progress, proposer, ablation).run(start, budget)


def _values(candidate: Candidate) -> int:
    """How many values of a skill are tried at a site before another step is kept."""
    unknown = not candidate.skill.effects and not candidate.skill.negative
    return VALUES_PER_SKILL if unknown or candidate.expected >= LITTLE else 1


def _key(candidate: Candidate) -> tuple[str, str]:
    return candidate.skill.name, candidate.proposal.site.function


def _time(verdict: Verdict) -> float:
    value = verdict.latency_us
    if value is None:
        raise KLineageError("an accepted verdict has no time", "report this as a bug")
    return value
