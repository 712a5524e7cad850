"""Skills as a table, and one skill as a page with everything it rests on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..model.lineage import Effect
from ..model.skill import Precondition, Skill, SkillStatus, Standing
from .figures import effect_style, provenance_of, time_text

STATUS_STYLE = {SkillStatus.VERIFIED: "green", SkillStatus.HYPOTHESIS: "yellow", SkillStatus.DEMOTED: "red"}


class SkillRow(NamedTuple):
    """One line of the table."""

    name: str
    move: str
    status: str
    speedup: str
    contexts: int
    harmful: int
    conditions: str
    sources: str


def skill_rows(skills: Iterable[Skill]) -> list[SkillRow]:
    """Rows, greatest expected effect first."""
    return [_row(s) for s in sorted(skills, key=lambda s: (-_expected(s), s.name))]


def skills_table(skills: Sequence[Skill]) -> Table:
    """The table of a library."""
    table = Table(title=f"{len(skills)} skills", header_style="bold")
    for name, justify in (("skill", "left"), ("status", "left"), ("expected", "right"), ("pays / harms", "right"),
                          ("preconditions", "left"), ("learned from", "left")):  # fmt: skip
        table.add_column(name, justify=justify, overflow="fold")  # pyright: ignore[reportArgumentType]
    for row in skill_rows(skills):
        status = Text(row.status, STATUS_STYLE[SkillStatus(row.status)])
        table.add_row(row.name, status, row.speedup, f"{row.contexts} / {row.harmful}", row.conditions, row.sources)
    return table


def skill_page(skill: Skill) -> RenderableType:
    """Everything known of one skill, each figure with its provenance."""
    head = Text.assemble(
        (skill.name, "bold"), "  ", (str(skill.status), STATUS_STYLE[skill.status]), f"  {skill.status_reason}"
    )
    carried = [f"{name}: {', '.join(worked)}" for name, worked in skill.carriers.items()]
    return Group(
        head,
        Text(skill.intent),
        _section("Move", [skill.move, *(f"needs {move} first" for move in skill.requires)]),
        _section("Where it applies", skill.anchors),
        _section("Values that worked", carried),
        _section("Preconditions", [precondition_text(p) for p in skill.preconditions]),
        _section("Effects", [], effects_table(skill.effects)),
        _section("Contexts in which it did harm", [], effects_table(skill.negative)),
        _section("Risks", [f"{r.what} ({r.kind}; case {r.case}; verdict {r.verdict})" for r in skill.risks]),
        _section("Scope", skill.scope),
        _section("Learned from", skill.sources),
        _section("Evidence", [f"{len(skill.evidence)} verdicts: {' '.join(skill.evidence)}"]),
    )


def precondition_text(precondition: Precondition) -> str:
    """The statement with how it is known and what shows it."""
    arguments = ", ".join(f"{key}={value}" for key, value in precondition.args.items())
    text = f"{precondition.statement} [{precondition.predicate}({arguments})]: {precondition.standing}"
    if precondition.standing is Standing.PROVEN:
        text += f", counter-example: verdict {precondition.counterexample}"
    if precondition.sweep:
        text += ", sweep: " + ", ".join(f"{context} ×{speedup:.2f}" for context, speedup in precondition.sweep)
    return text


def effects_table(effects: Sequence[Effect]) -> Table | None:
    """One line per context, or None without effects."""
    if not effects:
        return None
    table = Table(header_style="bold", box=None, padding=(0, 2, 0, 0))
    for name in ("context", "without", "with", "speedup", "provenance"):
        table.add_column(name, justify="left" if name in ("context", "provenance") else "right")
    for e in effects:
        interval = f" [{e.interval[0]:.3f}, {e.interval[1]:.3f}]" if e.interval else ""
        speedup = Text(f"×{e.speedup:.2f}{interval}", effect_style(e.speedup))
        table.add_row(e.context, time_text(e.simpler_us), time_text(e.optimised_us), speedup, str(e.provenance))
    return table


def _section(title: str, lines: Iterable[str], body: RenderableType | None = None) -> RenderableType:
    """A titled block; an empty one says so, since what is not known matters as much."""
    parts: list[RenderableType] = [Text(line) for line in lines]
    if body is not None:
        parts.append(body)
    return Group(Text(title, "bold"), Padding(Group(*(parts or [Text("none", "dim")])), (0, 0, 0, 2)))


def _expected(skill: Skill) -> float:
    """The expected speedup; 1 when no effect is known."""
    return skill.expected_speedup if skill.effects or skill.negative else 1.0


def _row(skill: Skill) -> SkillRow:
    counts = {standing: sum(p.standing is standing for p in skill.preconditions) for standing in Standing}
    return SkillRow(
        name=skill.name,
        move=skill.move,
        status=str(skill.status),
        speedup=f"×{_expected(skill):.2f} ({provenance_of((*skill.effects, *skill.negative))})",
        contexts=len(skill.effects),
        harmful=len(skill.negative),
        conditions=", ".join(f"{count} {standing}" for standing, count in counts.items() if count) or "none",
        sources=", ".join(skill.sources),
    )
