"""A lineage as a tree from expert to naive: every step with what taking it away did."""

from __future__ import annotations

from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text
from rich.tree import Tree

from ..model.lineage import Lineage, Refusal, Step, WalkEnd
from .figures import effect_style, effect_text, time_text
from .spent import spent_table

ENDS = {
    WalkEnd.NAIVE: "the naive end: no move applies",
    WalkEnd.PROPOSER: "the proposer has nothing more: not the naive end",
    WalkEnd.PROPOSER_BUDGET: "stopped by the proposer's budget: not the naive end",
    WalkEnd.STEP_BUDGET: "stopped by the step budget: not the naive end",
    WalkEnd.GATE_BUDGET: "stopped by the gate budget: not the naive end",
    WalkEnd.TIME_BUDGET: "stopped by the time budget: not the naive end",
    WalkEnd.INTERRUPTED: "interrupted: walk again to go on from here",
}


class StepRow(NamedTuple):
    """One step ready to show. ``under`` is the number of the step it stands below (None: the expert)."""

    number: int
    under: int | None
    also_needs: tuple[int, ...]
    move: str
    carried: str
    intent: str
    where: str
    effect: str
    speedup: float
    outcome: str


def step_rows(lineage: Lineage) -> list[StepRow]:
    """Rows in the order walked. A step stands under the last step it needs; commuting steps are siblings."""
    return [_row(lineage, step) for step in lineage.steps]


def lineage_tree(lineage: Lineage, *, refused: bool = False) -> Tree:
    """The tree; with ``refused`` also what was tried on each kernel and refused, dimmed."""
    root = Tree(
        Text.assemble(
            (lineage.task, "bold"),
            f" on {lineage.target}: expert ",
            (lineage.expert[:12], "cyan"),
            f" {time_text(lineage.expert_us, lineage.mode)}",
        )
    )
    nodes: dict[int | None, Tree] = {None: root}
    kernels: dict[str, Tree] = {lineage.expert: root}
    for row, step in zip(step_rows(lineage), lineage.steps, strict=True):
        nodes[row.number] = nodes.get(row.under, root).add(step_text(row))
        kernels.setdefault(step.simpler, nodes[row.number])
    if refused:
        for refusal in lineage.refusals:
            kernels.get(refusal.kernel, root).add(refusal_text(refusal))
    root.add(
        Text.assemble(
            "end ",
            (lineage.naive[:12], "cyan"),
            f" {time_text(lineage.naive_us, lineage.mode)}, ×{lineage.naive_us / lineage.expert_us:.2f} the expert's; ",
            (ENDS[lineage.end], "" if lineage.end is WalkEnd.NAIVE else "yellow"),
        )
    )
    return root


def lineage_page(lineage: Lineage, *, refused: bool = False) -> RenderableType:
    """The tree, and when a model proposed, what it cost."""
    tree = lineage_tree(lineage, refused=refused)
    if not lineage.spent and not lineage.note:
        return tree
    parts: list[RenderableType] = [tree, Text(f"proposed by {lineage.proposer}; {lineage.note}".rstrip("; "), "dim")]
    return Group(*parts, spent_table(lineage.spent))


def step_text(row: StepRow) -> Text:
    """One step on one or two lines."""
    return Text.assemble(
        (f"{row.number + 1}. {row.move}", "bold"),
        f" {row.carried}" if row.carried else "",
        f" at {row.where}",
        (f"; also needs {', '.join(str(i + 1) for i in row.also_needs)}" if row.also_needs else "", "dim"),
        "\n   ",
        (row.effect, effect_style(row.speedup)),
        "; ",
        (row.outcome, "dim"),
    )


def refusal_text(refusal: Refusal) -> Text:
    """One refusal, dimmed."""
    return Text(f"refused {refusal.move} at {refusal.site}: {refusal.reason} ({refusal.kind})", style="dim")


def _row(lineage: Lineage, step: Step) -> StepRow:
    needs = sorted(i for i, j in lineage.edges if j == step.index)
    return StepRow(
        number=step.index,
        under=needs[-1] if needs else None,
        also_needs=tuple(needs[:-1]),
        move=step.move,
        carried=", ".join(f"{key}={value}" for key, value in step.params.items()),
        intent=step.intent,
        where=step.site.label,
        effect=effect_text(step.effects, step.speedup),
        speedup=step.speedup,
        outcome="skill" if step.is_skill else f"not a skill: {step.skill_refused or 'its inverse was not derived'}",
    )
