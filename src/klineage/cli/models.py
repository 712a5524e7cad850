"""Options that choose who proposes: the moves, or a model."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ..propose.make import ProposerChoice


class ProposerKind(StrEnum):
    """Who proposes."""

    MOVES = "moves"
    LLM = "llm"


_PANEL = "Model as proposer (needs the llm extra)"

ProposerOption = Annotated[
    ProposerKind | None,
    typer.Option("--proposer", help="Who proposes. [default: moves; llm with --model or --replay]", show_default=False),
]
ModelOption = Annotated[
    str | None,
    typer.Option("--model", help="provider:name. The key comes from the environment.", rich_help_panel=_PANEL),
]
BaseUrlOption = Annotated[
    str | None, typer.Option("--base-url", help="The server's address, for any that speaks the provider's format.",
                             rich_help_panel=_PANEL)
]  # fmt: skip
PromptsOption = Annotated[
    Path | None, typer.Option("--prompts", help="A folder of prompts of your own.", rich_help_panel=_PANEL)
]
RecordOption = Annotated[
    Path | None,
    typer.Option("--record", help="Where exchanges are kept. [default: exchanges/ beside the store]",
                 show_default=False, rich_help_panel=_PANEL),
]  # fmt: skip
ReplayOption = Annotated[
    Path | None,
    typer.Option("--replay", help="Answer from this record alone; nothing is asked.", rich_help_panel=_PANEL),
]
ExchangesOption = Annotated[
    int, typer.Option("--exchanges", min=1, help="Most questions to the model.", rich_help_panel=_PANEL)
]
TokensOption = Annotated[
    int | None, typer.Option("--tokens", min=1, help="Most tokens, in and out.", rich_help_panel=_PANEL)
]
MoneyOption = Annotated[
    float | None, typer.Option("--money", min=0, help="Most money, by --prices.", rich_help_panel=_PANEL)
]
PricesOption = Annotated[
    Path | None,
    typer.Option("--prices", help='TOML: ["provider:name"] input = output = per million.', rich_help_panel=_PANEL),
]
WaitOption = Annotated[
    float, typer.Option("--wait", min=0, help="Longest time (s) to wait for the model in all.", rich_help_panel=_PANEL)
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", min=0.1, help="Longest time (s) for one answer.", rich_help_panel=_PANEL)
]
AnswerOption = Annotated[
    int, typer.Option("--answer-tokens", min=16, help="Most tokens of one answer.", rich_help_panel=_PANEL)
]


def chosen_proposer(
    proposer: ProposerKind | None, model: str | None, base_url: str | None, prompts: Path | None, record: Path | None,
    replay: Path | None, exchanges: int, tokens: int | None, money: float | None, prices: Path | None, wait: float,
    timeout: float, answer_tokens: int,
) -> ProposerChoice | None:  # fmt: skip
    """The choice that the options make, or None for the moves.

    Raises KLineageError for options that contradict each other.
    """
    from ..errors import KLineageError

    if proposer is ProposerKind.MOVES and (model or replay):
        raise KLineageError("--proposer moves asks no model", "leave out --model and --replay")
    if proposer is ProposerKind.LLM and not (model or replay):
        raise KLineageError("--proposer llm needs a model", "give --model provider:name")
    if not (model or replay):
        return None
    if record and replay:
        raise KLineageError("--replay asks nothing, so there is nothing to record", "leave out --record")
    from ..llm import LlmBudget
    from ..propose.make import ProposerChoice

    budget = LlmBudget(exchanges, tokens, money, wait)
    return ProposerChoice(model, base_url, prompts, record, replay, prices, budget, timeout, answer_tokens)
