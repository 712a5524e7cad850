"""A verdict as a page: cases, launches, and the model's arithmetic for a person to argue with."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..model.verdict import CaseResult, CaseTime, LaunchReport, Status, Verdict
from .figures import bytes_text, time_text

MIX_SHOWN = 8  # most frequent instructions in the launches table


def verdict_line(verdict: Verdict) -> Text:
    """Status, time with provenance, reason."""
    style = "green" if verdict.accepted else "yellow" if verdict.status in _UNDECIDED else "red"
    text = Text.assemble((str(verdict.status), f"bold {style}"))
    if verdict.latency_us is not None:
        text.append(f"  {time_text(verdict.latency_us, verdict.mode)}")
    if verdict.reason:
        text.append(f"  {verdict.reason}")
    return text


def verdict_page(verdict: Verdict) -> RenderableType:
    """The whole judgement."""
    e = verdict.environment
    launched = f"launched by {verdict.launched_by}; " if verdict.launched_by else ""
    parts: list[RenderableType] = [
        verdict_line(verdict),
        Text(
            f"task {verdict.task} ({verdict.task_id}), kernel {verdict.kernel}, target {e.target}, "
            f"triton {e.triton}, torch {e.torch}; {launched}verdict {verdict.id}",
            style="dim",
        ),
    ]
    if verdict.cases:
        parts.append(cases_table(verdict.cases))
    if verdict.launches:
        parts.append(launches_table(verdict.launches))
    parts += [time_block(time) for time in verdict.times]
    if verdict.cases and verdict.blind_spots:  # they qualify results; a kernel that never ran has none
        parts.append(Text("Not seen in this mode:", style="bold yellow"))
        parts += [Text(f"  {spot}", style="dim") for spot in verdict.blind_spots]
    return Group(*parts)


def cases_table(cases: Sequence[CaseResult]) -> Table:
    """Correctness case by case; errors are relative to the reference row's maximum."""
    table = Table(title="Correctness", title_justify="left", header_style="bold")
    for name in ("case", "passed", "error", "allowed", "reason"):
        table.add_column(name, justify="right" if name in ("error", "allowed") else "left", overflow="fold")
    for case in cases:
        passed = Text("yes", "green") if case.passed else Text("no", "red")
        table.add_row(case.case, passed, _relative(case.error), _relative(case.allowed), case.reason)
    return table


def launches_table(launches: Sequence[LaunchReport]) -> Table:
    """What each launch was compiled to; nothing in it is modelled."""
    table = Table(title="Launches, as compiled", title_justify="left", header_style="bold")
    columns = ("kernel", "grid", "warps", "stages", "regs", "smem", "spills", "occupancy", "instructions")
    for name in columns:
        table.add_column(
            name, justify="left" if name in ("kernel", "grid", "instructions") else "right", overflow="fold"
        )
    for launch in launches:
        spills = Text(bytes_text(launch.spill_bytes), "red" if launch.spill_bytes else "")
        occupancy = f"{launch.occupancy.fraction:.0%} ({launch.occupancy.limiter})"
        table.add_row(
            launch.kernel, "x".join(map(str, launch.grid)), str(launch.num_warps), str(launch.num_stages),
            str(launch.registers), bytes_text(launch.smem_bytes), spills, occupancy, _mix(launch.sass),
        )  # fmt: skip
    return table


def time_block(time: CaseTime) -> RenderableType:
    """One bench case: its time, then every term of every launch with its arithmetic."""
    head = Text.assemble((f"Time of {time.case}: ", "bold"), str(time.latency))
    if time.interval_us:
        head.append(f" [{time.interval_us[0]:.4g}, {time.interval_us[1]:.4g}]")
    if time.roofline_us is not None:
        head.append(f", least possible by the task's work {time_text(time.roofline_us)} (modelled)")
    for vendor, us in time.vendor_us.items():
        head.append(f", {vendor} {time_text(us)}")
    if not time.launches:
        return head
    table = Table(box=None, header_style="bold", padding=(0, 2, 0, 2))
    for name in ("launch", "term", "time", "how"):
        table.add_column(name, justify="right" if name == "time" else "left", overflow="fold")
    for launch in time.launches:
        table.add_row(launch.kernel, Text("total", "bold"), time_text(launch.time_us), f"decided by {launch.bound}")
        for term in launch.terms:
            style = "bold" if term.name == launch.bound else ""
            table.add_row("", Text(term.name, style), time_text(term.time_us), term.how)
    return Group(head, table)


_UNDECIDED = (Status.INCONCLUSIVE, Status.INFRA_ERROR)


def _relative(value: float | None) -> str:
    return "" if value is None else f"{value:.2e}"


def _mix(sass: dict[str, int]) -> str:
    shown = sorted(((n, op) for op, n in sass.items() if op != "total"), key=lambda pair: (-pair[0], pair[1]))
    words = [f"{op} {count}" for count, op in shown[:MIX_SHOWN] if count]
    return " ".join([*words, f"of {sass['total']}"] if "total" in sass else words)
