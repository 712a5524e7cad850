"""A proposer from what the user chose."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ..errors import KLineageError
from ..llm import Client, Exchange, LlmBudget, Prompts, Record, load_prices
from ..llm.providers import choose
from .llm import LlmProposer
from .protocol import Proposer
from .vocabulary import MovesProposer

RECORD = "exchanges"  # folder of the record, beside the store


class Evidence(Protocol):
    """The part of a store that keeps exchanges (see ``klineage.store.base.Store``)."""

    @property
    def location(self) -> str:
        """Path or URL."""
        ...

    def put_artifact(self, data: bytes, kind: str = "") -> str:
        """Keep bytes by their hash."""
        ...


@dataclass(frozen=True)
class ProposerChoice:
    """Who proposes. ``model`` is "provider:name"; None means the moves, unless a record is replayed."""

    model: str | None = None
    base_url: str | None = None
    prompts: Path | None = None
    record: Path | None = None  # default: beside the store
    replay: Path | None = None
    prices: Path | None = None
    budget: LlmBudget = field(default_factory=LlmBudget)
    timeout_s: float = 180.0
    max_tokens: int = 8192


def make_proposer(choice: ProposerChoice | None, evidence: Evidence) -> Proposer:
    """The proposer chosen. Every exchange of a model is kept as an artifact of the store and in the record's folder.

    Raises KLineageError (and its kinds) for a model that cannot be asked: unknown provider, no key, no price, ...
    """
    if choice is None or (choice.model is None and choice.replay is None):
        return MovesProposer()
    prompts = Prompts(choice.prompts)
    record = Record(choice.replay or choice.record or record_folder(evidence), replay_only=choice.replay is not None)
    model, form = (choice.model, None) if choice.replay is None else _recorded(record, choice.model)
    client = Client(
        choose(model or "", choice.base_url),
        choice.budget,
        record,
        load_prices(choice.prices) if choice.prices else None,
        keep=lambda text: evidence.put_artifact(text.encode(), "exchange"),
        timeout_s=choice.timeout_s,
        max_tokens=choice.max_tokens,
        form=form,
    )
    return LlmProposer(client, prompts)


def record_folder(evidence: Evidence) -> Path:
    """Where exchanges are recorded when the user names no folder."""
    place = evidence.location
    if "://" in place or place == ":memory:":
        return Path(".klineage") / RECORD
    return Path(place).parent / RECORD


def _recorded(record: Record, wanted: str | None) -> tuple[str, str]:
    """The one model of a record (or the one wanted), and how it was asked."""
    files = sorted(record.folder.glob("*.json")) if record.folder else []
    exchanges = [Exchange.model_validate_json(f.read_text(encoding="utf-8")) for f in files]
    found = sorted({(e.model, e.form) for e in exchanges if wanted in (None, e.model)})
    if len({model for model, _ in found}) != 1:
        models = sorted({e.model for e in exchanges})
        raise KLineageError(
            f"the record {record.folder} holds {', '.join(models) or 'no model'}", "name one with --model"
        )
    return found[0]
