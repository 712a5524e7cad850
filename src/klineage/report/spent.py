"""What asking a model cost, step by step."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from ..model.spend import Spent, total


def spent_table(spent: Sequence[Spent]) -> Table:
    """One line per exchange and their sum. "recorded" exchanges came from the record and cost nothing."""
    table = Table(
        title=f"Asked of {spent[0].model}" if spent else "Asked of nobody", header_style="bold", title_justify="left"
    )
    for name in ("step", "outcome", "requests", "tokens in", "tokens out", "cost", "seconds", "exchange"):
        table.add_column(name, justify="left" if name in ("step", "outcome", "exchange") else "right", overflow="fold")
    for row in spent:
        table.add_row(*_cells(row, "recorded" if row.requests == 0 else str(row.requests)))
    whole = total(spent)
    if whole is not None:
        table.add_section()
        table.add_row(*_cells(whole, str(whole.requests)), style="bold")
    return table


def _cells(row: Spent, requests: str) -> list[str]:
    cost = "no price" if row.cost is None else f"{row.cost:.4f}"
    tokens = (f"{row.input_tokens:,}", f"{row.output_tokens:,}")
    return [row.step, row.outcome, requests, *tokens, cost, f"{row.seconds:.1f}", row.exchange[:12]]
