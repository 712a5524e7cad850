"""A model as the proposer: it reads facts and answers with intent, site and edit; what it says is never trusted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..llm import Answer, BudgetSpentError, Client, Outcome, Prompts
from ..model import Kernel, Provenance, Site, SiteKind, Target, TaskInfo
from ..moves import Proposal, Unsupported, all_moves
from ..surface import Module, sites
from . import facts
from .cached import amounts, is_free, materialisations, simplifications
from .free import free_name
from .protocol import Backward, Forward, Improvement, Invert, Stop, Unusable
from .vocabulary import MovesProposer


@dataclass(frozen=True)
class Patience:
    """How long one model is borne with."""

    answers: int = 6  # about one kernel on a backward walk
    inverses: int = 3  # about one kernel, to put a free move back
    in_a_row: int = 3  # answers in a row that give no kernel


class LlmProposer:
    """Implements Proposer by asking a model through a ``Client``, with prompts from files."""

    def __init__(self, client: Client, prompts: Prompts, patience: Patience | None = None) -> None:
        self.client = client
        self.prompts = prompts
        self.patience = patience or Patience()
        self.name = f"llm:{client.choice.full_name}"
        self._moves = MovesProposer()
        self._stop = Stop()
        self._told = 0  # exchanges already reported
        self._bad = 0  # answers in a row that gave no kernel
        self._tries_seen = 0

    def simplifications(self, ask: Backward) -> Iterator[Proposal | Unusable]:
        """One answer at a time; each sees what became of those before it."""
        answers: list[str] = []
        for number in range(1, self.patience.answers + 1):
            extra = {
                "vocabulary": facts.vocabulary_facts(ask.kernel.source, _of_kernel(ask)),
                "steps": [facts.step_fact(s) for s in ask.steps],
                "refusals": [facts.refusal_fact(r) for r in ask.refusals if r.kind != "unsupported"],
                "answers": answers,
            }
            time_us, mode = ask.verdict.latency_us, ask.verdict.mode
            step = f"simplify {len(ask.steps) + 1}, answer {number}"
            answer = self._ask("simplify", step, ask.info, ask.target, ask.kernel, time_us, mode, extra)
            if answer is None:
                return
            given = self._simplification(answer, ask.kernel.source)
            answers.append(_told(answer, given))
            yield given
            if self._impatient(given):
                return
        self._stop.reason = f"the model gave {self.patience.answers} answers and none was accepted"

    def inverses(self, ask: Invert) -> Iterator[Proposal | Unsupported | Unusable]:
        """The move's own inverses; for a free move, the model's, from the simpler kernel and the intent alone."""
        if not is_free(ask.move):
            yield from self._moves.inverses(ask)
            return
        answers: list[str] = []
        for number in range(1, self.patience.inverses + 1):
            extra = {
                "intent": ask.intent,
                "wanted": facts.time_text(ask.optimised_us),
                "site": ask.function,
                "answers": [*answers, *(facts.stable(f) for f in ask.failures)],
            }
            step = f"put back {ask.move}, answer {number}"
            time_us = ask.simpler_us
            answer = self._ask("invert", step, ask.info, ask.target, ask.simpler, time_us, None, extra)
            if answer is None:
                return
            given = self._written(answer, ask.simpler.source, ask.move, "materialize", ask.intent)
            answers.append(_told(answer, given))
            yield given

    def improvement(self, ask: Forward) -> Improvement | Unusable | None:
        """The model's next kernel; told the three best-matching skills and those that nearly hold."""
        if self._stop.reason:
            return None
        extra = {
            "gates_left": ask.gates_left,
            "profile": facts.profile_facts(ask.verdict),
            "skills": facts.skill_facts(ask.candidates, ask.free),
            "nearly": facts.nearly_facts(ask.rejected),
            "vocabulary": facts.move_facts(),
            "answers": [facts.try_fact(t) for t in ask.tries],
        }
        step = f"improve, answer {len(ask.tries) + 1}"
        time_us, mode = ask.verdict.latency_us, ask.verdict.mode
        answer = self._ask("improve", step, ask.info, ask.target, ask.kernel, time_us, mode, extra)
        if answer is None:
            return None
        given = self._improvement(answer, ask)
        self._impatient(given)
        return given

    def stop(self) -> Stop:
        """Why it stopped, and the exchanges since the last call."""
        rows = self.client.ledger.rows
        stop = Stop(self._stop.reason, self._stop.budget, rows[self._told :])
        self._told = len(rows)
        return stop

    def close(self) -> None:
        """Close the client."""
        self.client.close()

    # ------------------------------------------------------------------ asking
    def _ask(
        self,
        prompt: str,
        step: str,
        info: TaskInfo,
        target: Target,
        kernel: Kernel,
        time_us: float | None,
        mode: Provenance | None,
        extra: dict[str, Any],
    ) -> Answer | None:
        """The model's answer, or None when it has nothing more or may not be asked (``stop`` says which)."""
        common: dict[str, Any] = {
            "form": self.client.form,
            "task": facts.task_facts(info),
            "target": {"name": target.name, "part": target.part},
            "kernel": facts.kernel_facts(kernel, time_us, mode),
            "sites": facts.site_facts(kernel.source),
            **extra,
        }
        system = self.prompts.render("system", common)
        user = self.prompts.render(prompt, common)
        try:
            answer = self.client.ask(step, kernel.source, system, user)
        except BudgetSpentError as spent:
            self._stop = Stop(str(spent), budget=True)
            return None
        if answer.outcome is Outcome.NOTHING:
            self._stop.reason = "the model has nothing more to propose"
            return None
        return answer

    def _impatient(self, given: Proposal | Improvement | Unusable) -> bool:
        self._bad = self._bad + 1 if isinstance(given, Unusable) else 0
        if self._bad >= self.patience.in_a_row:
            self._stop.reason = f"{self._bad} answers in a row gave no kernel to judge"
            return True
        return False

    # ----------------------------------------------------------------- reading
    def _simplification(self, answer: Answer, kernel: str) -> Proposal | Unusable:
        if not answer.outcome.usable:
            return Unusable(answer.outcome, answer.reason)
        if not answer.source:
            named = _vocabulary(answer.move)
            return _own_edit(answer, simplifications(named, kernel) if named else ())
        move = attributed(answer, kernel)
        given = self._written(answer, kernel, move, "simplify", answer.intent or answer.move)
        if isinstance(given, Proposal) and not is_free(move):
            own = [p for p in simplifications(move, kernel) if isinstance(p, Proposal)]
            near = [p for p in own if p.site.function == given.site.function] or own
            if near:  # the carriers as the move reads them off the optimised side
                return Proposal(move, "simplify", near[0].site, given.source, near[0].params, given.note)
        return given

    def _improvement(self, answer: Answer, ask: Forward) -> Improvement | Unusable:
        if not answer.outcome.usable:
            return Unusable(answer.outcome, answer.reason)
        by_name = {c.skill.name: c.skill for c in ask.candidates} | {s.name: s for s, _ in ask.free}
        skill = by_name.get(answer.skill)
        if not answer.source:
            return _own_improvement(answer, ask)
        move = skill.move if skill else _vocabulary(answer.move) or free_name(answer.intent or "unnamed")
        given = self._written(answer, ask.kernel.source, move, "materialize", answer.intent)
        if isinstance(given, Unusable):
            return given
        return Improvement(skill.name if skill else move, given, facts.expected(skill) if skill else None)

    def _written(self, answer: Answer, kernel: str, move: str, direction: Any, intent: str) -> Proposal | Unusable:
        """The proposal of an answer that gives code."""
        if not answer.outcome.usable:
            return Unusable(answer.outcome, answer.reason)
        if not answer.source:
            return Unusable(Outcome.NO_CODE, "this needs code: no move writes it")
        return Proposal(move, direction, located(answer.site, kernel), answer.source, {}, intent or answer.intent)


def attributed(answer: Answer, kernel: str) -> str:
    """The move that a simplification really takes out.

    The one named when its amount falls, else the one whose amount does (structural moves first), else a free move.
    """
    names = [m.name for m in all_moves()]
    before, after = amounts(kernel), amounts(answer.source)
    fallen = [name for name, b, a in zip(names, before, after, strict=True) if a < b]
    named = _vocabulary(answer.move)
    if named in fallen:
        return named
    return fallen[0] if fallen else free_name(answer.intent or answer.move)


def located(label: str, source: str) -> Site:
    """The site of a label in a text; without it, the site's function's, else the first kernel's."""
    every = sites(Module.parse(source))
    function = label.partition("@")[2].split(":")[0] if "@" in label else label
    for wanted in (
        [s for s in every if s.label == label],
        [s for s in every if s.function == function and s.kind is SiteKind.KERNEL],
        [s for s in every if s.function == function],
        [s for s in every if s.kind is SiteKind.KERNEL],
        every,
    ):
        if wanted:
            return wanted[0]
    return Site(kind=SiteKind.KERNEL, function="run", line=1, start=0, end=0, text="")


def _vocabulary(name: str) -> str:
    """A name as the vocabulary spells it, or "" when it is not of it."""
    spelt = name.strip().lower().replace("-", "_").replace(" ", "_")
    return spelt if any(m.name == spelt for m in all_moves()) else ""


def _own_edit(answer: Answer, found: Sequence[Proposal | Unsupported]) -> Proposal | Unusable:
    """A move named without code: the move's own edit, at the site named when it has one there."""
    own = [p for p in found if isinstance(p, Proposal)]
    if not own:
        reasons = [p.reason for p in found if isinstance(p, Unsupported)]
        return Unusable(Outcome.NO_CODE, reasons[0] if reasons else f"{answer.move or 'no move'} finds nothing here")
    same = [p for p in own if p.site.label == answer.site]
    return (same or own)[0]


def _own_improvement(answer: Answer, ask: Forward) -> Improvement | Unusable:
    """A skill or move named without code: the best of its own edits that was not judged yet."""
    move = _vocabulary(answer.move)
    mine = [c for c in ask.candidates if c.skill.name == answer.skill]
    mine = mine or [c for c in ask.candidates if move and c.skill.move == move]
    if mine:
        best = ([c for c in mine if c.proposal.site.label == answer.site] or mine)[0]
        return Improvement(best.skill.name, best.proposal, best.expected, best.unknown, best)
    if move:
        given = _own_edit(answer, materialisations(move, ask.kernel.source))
        return given if isinstance(given, Unusable) else Improvement(move, given)
    return Unusable(Outcome.NO_CODE, f"no code, and {answer.skill or answer.move or 'nothing'} writes none here")


def _of_kernel(ask: Backward) -> list[Any]:
    return [r for r in ask.refusals if r.kernel == ask.kernel.id and r.kind not in ("unsupported", "unusable")]


def _told(answer: Answer, given: Proposal | Unusable) -> str:
    """One earlier answer in a line of a prompt."""
    if isinstance(given, Unusable):
        return f"{given.outcome}: {given.reason}"
    what = answer.intent or answer.move
    return f"{given.move}: {what}" if what != given.move else what
