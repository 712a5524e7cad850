"""What a model is told, as plain facts that prompts and workspaces lay out.

Figures are rounded: the same situation must give the same words on another day, so that a record can be replayed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..model import CaseRole, Kernel, Provenance, Refusal, Site, Skill, Standing, Step, TaskInfo, Verdict
from ..model.optimize import Try
from ..moves import Proposal, Unsupported, all_moves
from ..surface import Module, sites
from .cached import is_free, simplifications
from .protocol import Candidate, Rejected

BEST_SKILLS = 3
NEARLY = 3
_ERROR = re.compile(r"(?:row \d+: )?error (\S+) > allowed (\S+)(?: \(\d+ of \d+ rows\))?")


def task_facts(info: TaskInfo) -> dict[str, Any]:
    """Name, description and bench cases."""
    bench = [", ".join(f"{k}={v}" for k, v in c.params.items()) for c in info.with_role(CaseRole.BENCH)]
    return {"name": info.name, "description": info.description, "bench": bench}


def kernel_facts(kernel: Kernel, time_us: float | None, mode: Provenance | None) -> dict[str, Any]:
    """Text and time."""
    return {"source": kernel.source.strip("\n"), "time": time_text(time_us), "mode": str(mode or "")}


def site_facts(source: str) -> list[dict[str, str]]:
    """Label and first line of every site."""
    return [{"label": s.label, "text": s.text.splitlines()[0][:100]} for s in sites(Module.parse(source))]


def vocabulary_facts(source: str, refusals: Sequence[Refusal] = ()) -> list[dict[str, Any]]:
    """Every move: what it is, where it could be taken out of this kernel, and what was refused."""
    found: list[dict[str, Any]] = []
    for move in all_moves():
        proposed = simplifications(move.name, source)
        here = [p.site.label for p in proposed if isinstance(p, Proposal)]
        refused = [p.reason for p in proposed if isinstance(p, Unsupported)]
        refused += [stable(r.reason) for r in refusals if r.move == move.name and r.reason not in refused]
        found.append({"name": move.name, "title": move.title, "here": here, "refused": list(dict.fromkeys(refused))})
    return found


def move_facts() -> list[dict[str, Any]]:
    """Every move with what must hold for it."""
    return [{"name": m.name, "title": m.title, "holds": [c.statement for c in m.conditions]} for m in all_moves()]


def step_fact(step: Step) -> str:
    """One step of the walk so far."""
    return f"{step.move}: {step.intent} ({step.speedup:.2f}x slower without it)"


def refusal_fact(refusal: Refusal) -> str:
    """One refusal."""
    where = f" at {refusal.site}" if refusal.site else ""
    return f"{refusal.move or 'an answer'}{where}: {stable(refusal.reason)} ({refusal.kind})"


def try_fact(t: Try) -> str:
    """One try of the search so far."""
    return f"{t.skill}{f' at {t.site}' if t.site else ''}: {t.decision}: {stable(t.reason)}"


def profile_facts(verdict: Verdict) -> list[str]:
    """Times, what decides them with the model's terms, and what each launch was compiled to."""
    lines: list[str] = []
    for t in verdict.times:
        floor = f"; least possible by the task's work {time_text(t.roofline_us)}" if t.roofline_us else ""
        lines.append(f"{t.case}: {time_text(t.latency.value)} ({t.latency.provenance}){floor}")
        for launch in t.launches:
            terms = sorted(launch.terms, key=lambda term: -term.time_us)[:4]
            shown = ", ".join(f"{term.name} {time_text(term.time_us)}" for term in terms)
            lines.append(f"{launch.kernel}: {time_text(launch.time_us)}, decided by {launch.bound} ({shown})")
    for r in verdict.launches:
        lines.append(
            f"{r.kernel}: grid {'x'.join(map(str, r.grid))}, {r.num_warps} warps, {r.num_stages} stages, "
            f"{r.registers} registers, {r.smem_bytes} bytes of shared memory, {r.spill_bytes} bytes spilt, "
            f"occupancy {r.occupancy.fraction:.0%} limited by {r.occupancy.limiter}"
        )
    return lines


def skill_facts(
    candidates: Sequence[Candidate], free: Sequence[tuple[Skill, Site]], limit: int = BEST_SKILLS
) -> list[dict[str, Any]]:
    """The best-matching skills whose preconditions hold, anchored in this kernel's code."""
    found: dict[str, tuple[Skill, list[Site], tuple[str, ...]]] = {}
    for c in candidates:
        place = found.setdefault(c.skill.name, (c.skill, [], c.unknown))
        if c.proposal.site not in place[1]:
            place[1].append(c.proposal.site)
    for skill, site in free:
        found.setdefault(skill.name, (skill, [], ()))[1].append(site)
    best = sorted(found.values(), key=lambda item: -expected(item[0]))[:limit]
    return [_skill_fact(skill, anchored, unknown) for skill, anchored, unknown in best]


def nearly_facts(rejected: Sequence[Rejected], limit: int = NEARLY) -> list[dict[str, Any]]:
    """Skills with the fewest preconditions that do not hold, and these."""
    lacking = sorted((r for r in rejected if r.missing), key=lambda r: (len(r.missing), -expected(r.skill)))
    by_skill: dict[str, Rejected] = {}
    for r in lacking:
        by_skill.setdefault(r.skill.name, r)
    return [
        {"name": r.skill.name, "effect": effect_text(r.skill), "site": r.site, "missing": list(r.missing)}
        for r in list(by_skill.values())[:limit]
    ]


def effect_text(skill: Skill) -> str:
    """What a skill brought, with provenance and where it did harm."""
    every = (*skill.effects, *skill.negative)
    if not every:
        return "none known"
    low, high = min(e.speedup for e in every), max(e.speedup for e in every)
    kinds = "/".join(sorted({str(e.provenance) for e in every}))
    text = f"{expected(skill):.2f}x expected ({kinds}), {low:.2f}x to {high:.2f}x over {len(every)} contexts"
    if skill.negative:
        worst = min(skill.negative, key=lambda e: e.speedup)
        text += f"; did harm in {len(skill.negative)}, worst {worst.speedup:.2f}x in {worst.context}"
    return text


def expected(skill: Skill) -> float:
    """The expected speedup; 1 when no effect is known."""
    return skill.expected_speedup if skill.effects or skill.negative else 1.0


def time_text(time_us: float | None) -> str:
    """A time to three digits."""
    return "unknown" if time_us is None else f"{time_us:.3g} us"


def stable(reason: str) -> str:
    """A reason without the digits that fresh random inputs change."""
    return _ERROR.sub(_grade, reason)


def _grade(found: re.Match[str]) -> str:
    try:
        far = float(found.group(1)) > 10 * float(found.group(2))
    except ValueError:
        far = True
    return f"error {'far' if far else 'just'} above what is allowed"


def _skill_fact(skill: Skill, anchored: Sequence[Site], unknown: Sequence[str]) -> dict[str, Any]:
    known = [p for p in skill.preconditions if p.statement not in unknown]
    return {
        "name": skill.name,
        "move": "" if is_free(skill.move) else skill.move,
        "intent": skill.intent,
        "anchors": [f"`{s.label}` {s.text.splitlines()[0][:80]}" for s in anchored[:4]],
        "carriers": [f"{name} = {', '.join(values[:4])}" for name, values in skill.carriers.items()],
        "effect": effect_text(skill),
        "conditions": [f"{p.statement}{'' if p.standing is Standing.ASSUMED else f' ({p.standing})'}" for p in known],
        "unknown": list(unknown),
        "risks": list(dict.fromkeys(f"{stable(r.what)[:160]} ({r.kind})" for r in skill.risks))[:3],
        "executable": not is_free(skill.move),
    }
