"""What asking a model cost, request by request."""

from __future__ import annotations

from collections.abc import Iterable

from .base import Frozen


class Spent(Frozen):
    """One exchange with a model. ``cost`` is None when the user gave no price; a replayed exchange cost nothing."""

    step: str  # what it was for, e.g. "simplify 3, try 1"
    model: str  # "provider:name"
    outcome: str  # see klineage.llm.outcome.Outcome
    requests: int  # sent over the wire, retries included; 0 when it came from the record
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float | None = None  # in the currency of the user's price table
    seconds: float = 0.0
    exchange: str = ""  # hash of the prompt: the name of the exchange in the record


def total(spent: Iterable[Spent]) -> Spent | None:
    """The sum of several exchanges, or None without any; its cost is None when no exchange had a price."""
    rows = list(spent)
    if not rows:
        return None
    costs = [s.cost for s in rows if s.cost is not None]
    return Spent(
        step=f"{len(rows)} exchanges",
        model=rows[0].model,
        outcome=f"{sum(s.outcome == 'ok' for s in rows)} ok",
        requests=sum(s.requests for s in rows),
        input_tokens=sum(s.input_tokens for s in rows),
        output_tokens=sum(s.output_tokens for s in rows),
        cost=sum(costs) if costs else None,
        seconds=sum(s.seconds for s in rows),
    )
