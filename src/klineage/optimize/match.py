"""Which skills apply to a kernel, where, and why the others do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import KernelError, KLineageError
from ..model import Case, LaunchReport, Site, SiteKind, Skill, SkillStatus, Target
from ..moves import Context, Proposal, Unsupported, family, holds, kernel_of, move
from ..propose import Candidate, Rejected
from ..propose.cached import is_free
from ..surface import Module, sites


@dataclass(frozen=True)
class Situation:
    """What a kernel is matched in: its text, where it will run, and its compiled launches by case."""

    source: str
    target: Target
    cases: tuple[Case, ...]
    reports: dict[str, tuple[LaunchReport, ...]]
    checked: bool = True  # whether moves test their own soundness conditions


def match(skills: Sequence[Skill], situation: Situation) -> tuple[list[Candidate], list[Rejected]]:
    """Candidates, best expected effect first (a skill's own order among its proposals), and the rejected skills."""
    module = Module.parse(situation.source)
    candidates: list[Candidate] = []
    rejected: list[Rejected] = []
    alike: dict[str, tuple[list[_Fit], list[_Refusal]]] = {}
    for skill in skills:
        if skill.status is SkillStatus.DEMOTED:
            rejected.append(Rejected(skill, "", f"demoted: {skill.status_reason}"))
            continue
        facts = _facts(skill)
        if facts.where not in alike:
            alike[facts.where] = _sites_of(skill, module, situation)
        fits, refusals = alike[facts.where]
        candidates += [Candidate(skill, proposal, facts.expected, unknown) for proposal, unknown in fits]
        rejected += [Rejected(skill, *refusal) for refusal in refusals]
    candidates.sort(key=lambda c: -c.expected)
    return candidates, rejected


_Fit = tuple[Proposal, tuple[str, ...]]  # and the statements that no case could tell
_Refusal = tuple[str, str, tuple[str, ...]]  # site, reason, statements that do not hold


@dataclass(frozen=True)
class _Facts:
    """What matching asks of a skill, worked out once: skills with the same ``where`` hold in the same places."""

    skill: Skill  # held, so that its identity is not used again
    where: str
    expected: float


_KNOWN: dict[int, _Facts] = {}  # by identity
_MOST_KNOWN = 1 << 17


def _facts(skill: Skill) -> _Facts:
    known = _KNOWN.get(id(skill))
    if known is None:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        conditions = [(p.predicate, sorted(p.args.items()), p.statement) for p in skill.preconditions]
        where = repr((skill.move, sorted(skill.carriers.items()), skill.anchors, conditions))
        known = _KNOWN[id(skill)] = _Facts(skill, where, skill.expected_speedup)
    return known


def _sites_of(skill: Skill, module: Module, situation: Situation) -> tuple[list[_Fit], list[_Refusal]]:
    fits: list[_Fit] = []
    refusals: list[_Refusal] = []
    if is_free(skill.move):
        why = "no move writes it: a model must (--model)"
        return [], [(s.label, why, ()) for s in _free_sites(skill, module)]
    try:
        proposals = list(move(skill.move).materialize(module, skill.carriers, checked=situation.checked))
    except KernelError as error:
        return [], [("", f"the edit was not applied: {error.message}", ())]
    except KLineageError as error:
        return [], [("", error.message, ())]
    except Exception as error:  # kernels come from anywhere: one that a move cannot read must not end a run
        what = f"{type(error).__name__}: {error}"
        return [], [("", f"the move cannot read this kernel ({what})", ())]
    families = {a.removeprefix("family:") for a in skill.anchors if a.startswith("family:")}
    for proposal in proposals:
        site = proposal.site
        if families and site is not None and family(module, kernel_of(module, site)) not in families:
            continue  # not anchored here: nothing was refused
        if isinstance(proposal, Unsupported):
            refusals.append((proposal.site.label if proposal.site else "", proposal.reason, ()))
            continue
        broken, unknown = _conditions(skill, module, proposal, situation)
        if broken:
            refusals.append((proposal.site.label, f"does not hold: {'; '.join(broken)}", tuple(broken)))
        else:
            fits.append((proposal, tuple(unknown)))
    return fits, refusals


def _conditions(skill: Skill, module: Module, proposal: Proposal, situation: Situation) -> tuple[list[str], list[str]]:
    """Statements of preconditions broken in some case, and of those no case could tell."""
    broken: list[str] = []
    unknown: list[str] = []
    for precondition in skill.preconditions:
        told: list[bool] = []
        for case in situation.cases or (None,):
            reports = situation.reports.get(case.name, ()) if case is not None else ()
            context = Context(module, proposal.site, proposal.params, situation.target, case, reports, proposal.source)
            answer = holds(precondition, context)
            if answer is not None:
                told.append(answer)
        if not told:
            unknown.append(precondition.statement)
        elif not all(told):
            broken.append(precondition.statement)
    return broken, unknown


def _free_sites(skill: Skill, module: Module) -> list[Site]:
    """Kernels of the skill's family: where a skill that no move writes is anchored."""
    families = {a.removeprefix("family:") for a in skill.anchors if a.startswith("family:")}
    kernels = [s for s in sites(module) if s.kind is SiteKind.KERNEL and s.function in module.kernels]
    return [s for s in kernels if not families or family(module, s.function) in families]


def match_free(skills: Sequence[Skill], situation: Situation) -> list[tuple[Skill, Site]]:
    """Skills whose materialiser is a model, at each kernel where none of their preconditions is broken."""
    module = Module.parse(situation.source)
    found: list[tuple[Skill, Site]] = []
    for skill in skills:
        if not is_free(skill.move) or skill.status is SkillStatus.DEMOTED:
            continue
        for site in _free_sites(skill, module):
            proposal = Proposal(skill.move, "materialize", site, situation.source)
            if not _conditions(skill, module, proposal, situation)[0]:
                found.append((skill, site))
    return found
