"""Exchanges recorded with a real small model (gemma3-270m under llama.cpp), replayed without a key or a server."""

from pathlib import Path

import pytest

pytest.importorskip("pydantic_ai", reason="the llm extra is not installed")

from klineage.llm.client import Client
from klineage.llm.outcome import Outcome
from klineage.llm.providers import choose
from klineage.llm.record import Exchange, Record, UnseenPromptError, prompt_hash

RECORDED = Path(__file__).parent / "recorded"
FILES = sorted(RECORDED.glob("*.json"))


def replayed(exchange: Exchange, user: str):
    client = Client(choose(exchange.model), record=Record(RECORDED, replay_only=True), form=exchange.form)
    try:
        return client.ask("improve, answer 1", "def run(x):\n    return x\n", exchange.system, user)
    finally:
        client.close()


@pytest.mark.parametrize("path", FILES, ids=[f.stem[:8] for f in FILES])
def test_recorded_rubbish_gives_no_kernel(path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    exchange = Exchange.model_validate_json(path.read_text())
    assert prompt_hash(exchange.model, exchange.system, exchange.user, exchange.form) == path.stem
    answer = replayed(exchange, exchange.user)
    assert answer.outcome is Outcome.TRUNCATED  # it repeated itself until it was cut
    assert not answer.source
    with pytest.raises(UnseenPromptError):
        replayed(exchange, exchange.user + " ")


def test_there_are_recordings():
    assert len(FILES) >= 2
