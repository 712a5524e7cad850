"""What optimisation, recovery and the quickstart came to: before, after, and why each step was taken or refused."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ..model.base import Provenance
from ..model.optimize import OptimizeReport, QuickstartReport, RecoverReport, Try, VerifyReport
from .figures import time_text
from .lineage import lineage_tree
from .skills import STATUS_STYLE, skills_table
from .spent import spent_table


def tries_table(tries: Sequence[Try], mode: Provenance) -> Table:
    """Every try in order."""
    table = Table(header_style="bold", caption=f"times are {mode}", caption_justify="left")
    for name in ("", "skill", "at", "decision", "before", "after", "why"):
        table.add_column(name, justify="right" if name in ("", "before", "after") else "left", overflow="fold")
    for t in tries:
        decision = Text(t.decision, "green" if t.decision == "kept" else "dim")
        after = "" if t.after_us is None else time_text(t.after_us)
        table.add_row(str(t.index + 1), t.skill, t.site, decision, time_text(t.before_us), after, t.reason)
    return table


def optimize_page(report: OptimizeReport) -> RenderableType:
    """Before and after, then every try."""
    kept = sum(t.decision == "kept" for t in report.tries)
    head = Text.assemble(
        (report.task, "bold"),
        f" on {report.target}: {time_text(report.start_us)} → {time_text(report.best_us)}, ",
        (f"×{report.speedup:.2f}", "bold green" if report.speedup > 1.02 else "bold"),
        f" ({report.mode}); {kept} of {len(report.tries)} tries kept",
        f"; {report.end}" if report.end else "",
        _left(report.skills),
    )
    kernels = Text(f"kernel {report.start_kernel} → {report.best_kernel}", style="dim")
    parts: list[RenderableType] = [tries_table(report.tries, report.mode)] if report.tries else []
    if report.spent:
        parts.append(spent_table(report.spent))
    return Group(head, kernels, *parts)


def _left(skills: str) -> str:
    return "" if skills == "full" else f"; skills: {skills}"


def recover_page(report: RecoverReport) -> RenderableType:
    """The fraction of the expert's speed, then every try."""
    head = Text.assemble(
        (report.task, "bold"),
        f" on {report.target}: naive {time_text(report.naive_us)} → recovered {time_text(report.recovered_us)}, expert "
        f"{time_text(report.expert_us)}: ",
        (f"{report.fraction:.1%} of the expert's speed", "bold"),
        f" ({report.mode})",
        _left(report.skills),
    )
    return Group(head, *([tries_table(report.tries, report.mode)] if report.tries else []))


def verify_page(report: VerifyReport) -> RenderableType:
    """A line per operator: before, after, its vendor, the skills that were kept; then how each skill stands."""
    table = Table(header_style="bold", title=f"{len(report.operators)} held-out operators on {report.target}")
    for name in ("operator", "naive", "best", "speed-up", "vendor", "best / vendor", "kept"):
        left = name in ("operator", "kept")
        table.add_column(name, justify="left" if left else "right", overflow="fold")
    for o in report.operators:
        r = o.report
        if r is None:
            table.add_row(o.task, "", "", "", "", "", Text(o.reason, "red"))
            continue
        share = f"{r.best_us / r.vendor_us:.2f}" if r.vendor_us else ""
        vendor = time_text(r.vendor_us) if r.vendor_us else ""
        gains = ", ".join(f"{t.skill} ×{t.before_us / t.after_us:.2f}" for t in o.kept if t.after_us)
        table.add_row(o.task, time_text(r.start_us), time_text(r.best_us), f"×{r.speedup:.2f}", vendor, share, gains)
    mean = f"geometric mean ×{report.speedup:.2f}; " if report.speedup else ""
    tail = Text(f"{mean}done in {report.wall_s:.0f} s; every time above is {report.mode}", style="bold")
    stands = Table(header_style="bold", title="the skills after it")
    for name in ("skill", "status", "why"):
        stands.add_column(name, overflow="fold")
    for skill in report.skills:
        stands.add_row(skill.name, Text(str(skill.status), STATUS_STYLE[skill.status]), skill.status_reason)
    return Group(table, stands, tail)


def quickstart_page(report: QuickstartReport, *, refused: bool = False) -> RenderableType:
    """Lineages, skills and improved kernels, in the order they came about."""
    parts: list[RenderableType] = [Rule("1. Expert kernels walked to their naive end")]
    parts += [lineage_tree(lineage, refused=refused) for lineage in report.lineages]
    parts += [Rule("2. Skills induced from the steps"), skills_table(report.skills)]
    if report.recovered:
        parts += [Rule("3. Naive ends brought back by skills alone"), *map(recover_page, report.recovered)]
    parts += [Rule("Kernels never walked, optimised by the skills"), *map(optimize_page, report.optimized)]
    parts.append(Text(f"done in {report.wall_s:.0f} s; every time above is {report.mode}", style="bold"))
    return Group(*parts)
