"""Compact text for agents: a task, a verdict, skills, a lineage. Few tokens, nothing left to guess."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from ..model import Case, CaseRole, Lineage, Provenance, Skill, Standing, TaskInfo, Verdict
from ..model.optimize import Try
from ..propose import Candidate, Rejected
from ..propose.facts import effect_text, nearly_facts, profile_facts, skill_facts, stable, time_text
from ..report.lineage import ENDS, step_rows

CONTRACT = """\
The contract of a kernel:
- One self-contained Python module: its imports, its `@triton.jit` kernels, its launchers, and `run(...)`, which takes
  the task's inputs in order and returns the result.
- The answer comes from the kernels: no torch operator that computes it, no I/O, no threads, no clocks, no state kept
  between calls, no patching.
- Right on every shape of the task, tails and non-contiguous inputs included; inputs stay as they were.
- The gate decides: policy, compile for the target, correctness against an fp64 oracle, time. A kernel is kept when it
  is accepted and at least 1% faster than the best so far."""


def task_text(info: TaskInfo, target: str, mode: Provenance, inputs: Sequence[str] = ()) -> str:
    """What a task asks for."""
    checks, bench = info.with_role(CaseRole.CHECK), info.with_role(CaseRole.BENCH)
    lines = [f"task {info.name}: {info.description}", f"target {target}; times are {mode}"]
    if inputs:
        lines.append(f"run({', '.join(inputs)})")
    lines.append("timed on: " + "; ".join(_case(c) for c in bench))
    lines.append("checked on: " + "; ".join(_case(c) for c in checks))
    if info.in_place:
        lines.append(f"inputs that may be overwritten: {', '.join(map(str, info.in_place))}")
    return "\n".join(lines)


def verdict_text(verdict: Verdict, incumbent: Verdict | None = None) -> str:
    """A verdict in a few lines: status, time, what decides it, what failed."""
    head = f"{verdict.status}"
    if verdict.latency_us is not None:
        head += f", {time_text(verdict.latency_us)} ({verdict.mode})"
        if incumbent is not None and incumbent.latency_us:
            head += f", {incumbent.latency_us / verdict.latency_us:.2f}x the best so far"
    lines = [head, *([verdict.reason] if verdict.reason else [])]
    failed = [c for c in verdict.cases if not c.passed]
    lines += [f"failed {c.case}: {c.reason}" for c in failed[:3] if c.reason and c.reason not in verdict.reason]
    if len(failed) > 3:
        lines.append(f"and {len(failed) - 3} more cases of {len(verdict.cases)}")
    if verdict.latency_us is not None:
        lines += profile_facts(verdict)
    lines.append(f"kernel {verdict.kernel}, verdict {verdict.id}")
    return "\n".join(lines)


def matches_text(candidates: Sequence[Candidate], rejected: Sequence[Rejected], limit: int = 3) -> str:
    """The skills that hold in a kernel, anchored in its code, and those that nearly do."""
    lines: list[str] = []
    for skill in skill_facts(candidates, (), limit):
        lines.append(f"{skill['name']}: {skill['intent']}. {skill['effect']}")
        lines += [f"  at {anchor}" for anchor in skill["anchors"]]
        lines += [f"  carried by {carrier}" for carrier in skill["carriers"]]
        lines += [f"  cannot be checked here: {unknown}" for unknown in skill["unknown"]]
        lines += [f"  risk: {risk}" for risk in skill["risks"]]
    lines = lines or ["no skill holds here"]
    for skill in nearly_facts(rejected):
        lines.append(f"nearly: {skill['name']} at {skill['site']}; missing: {'; '.join(skill['missing'])}")
    return "\n".join(lines)


def skill_text(skill: Skill) -> str:
    """One skill: what, where, when it is sound, what it brought, what went wrong."""
    lines = [
        f"{skill.name} ({skill.status}): {skill.intent}",
        f"move {skill.move}; learned from {', '.join(skill.sources)}",
    ]
    lines.append(f"effect: {effect_text(skill)}")
    lines.append("anchors: " + ", ".join(skill.anchors))
    lines += [f"carrier {name}: {', '.join(values[:6])}" for name, values in skill.carriers.items()]
    if skill.requires:
        lines.append("after: " + ", ".join(skill.requires))
    for p in skill.preconditions:
        shown = f", counter-example verdict {p.counterexample}" if p.standing is Standing.PROVEN else ""
        lines.append(f"needs: {p.statement} ({p.standing}{shown})")
    risks = {stable(r.what): f"risk: {stable(r.what)[:200]} ({r.kind}, {r.case})" for r in skill.risks}
    lines += list(risks.values())[:4]
    lines += [f"harm: {e.speedup:.2f}x in {e.context} ({e.provenance})" for e in skill.negative[:4]]
    return "\n".join(lines)


def lineage_text(lineage: Lineage) -> str:
    """A lineage, one line a step, expert first."""
    lines = [
        f"{lineage.task} on {lineage.target}: expert {lineage.expert} {time_text(lineage.expert_us)} ({lineage.mode})"
    ]
    for row in step_rows(lineage):
        under = "" if row.under is None else f" after {row.under + 1}"
        carried = f" [{row.carried}]" if row.carried else ""
        lines.append(f"{row.number + 1}.{under} {row.move}{carried} at {row.where}: {row.effect}; {row.outcome}")
    lines.append(f"end {lineage.naive} {time_text(lineage.naive_us)}: {ENDS[lineage.end]}")
    return "\n".join(lines)


def tries_text(tries: Sequence[Try]) -> str:
    """The verdict history, one line a try."""
    rows: list[str] = []
    for t in tries:
        after = "" if t.after_us is None else f" {time_text(t.after_us)}"
        rows.append(f"{t.index + 1}. {t.decision}{after}: {t.skill or 'no intent given'}: {t.reason}")
    return "\n".join(rows) or "nothing submitted yet"


def diff_text(before: str, after: str) -> str:
    """What an edit changes, as a unified diff with little context."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "before", "after", n=1, lineterm="")
    return "\n".join(lines)


def _case(case: Case) -> str:
    return " ".join(f"{k}={v}" for k, v in case.params.items())
