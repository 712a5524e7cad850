"""Asking a model over the wire: faults first, then answers, in both formats; keys, budgets, record and replay."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("pydantic_ai", reason="the llm extra is not installed")

from fakes import SOURCE
from model_server import ModelServer, Turn, fail, propose, say

from klineage.errors import EnvironmentLackError, KLineageError
from klineage.llm import BudgetSpentError, Client, LlmBudget, Outcome, Prompts, Record, UnseenPromptError, load_prices
from klineage.llm.providers import choose

KEY = "sk-very-secret-0123456789"
EDIT = {"intent": "one stage", "edits": [{"find": ", num_stages=3", "replace": ""}]}


@pytest.fixture(autouse=True)
def keys(monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, KEY)


@pytest.fixture(params=["openai", "anthropic", "google"])
def provider(request):
    return request.param


def client_of(server: ModelServer, provider: str = "openai", waits: list[float] | None = None, **options) -> Client:
    address = server.address + ("/v1" if provider == "openai" else "")
    sleep = waits.append if waits is not None else lambda _: None
    return Client(choose(f"{provider}:some-model", address), sleep=sleep, **options)


def ask(client: Client, user: str = "the prompt"):
    try:
        return client.ask("simplify 1, answer 1", SOURCE, "the rules", user)
    finally:
        client.close()


FAULTS = [
    pytest.param("429", Outcome.RATE_LIMITED, id="rate limit"),
    pytest.param("500", Outcome.SERVER_ERROR, id="server error"),
    pytest.param("cut", Outcome.CONNECTION, id="cut stream"),
    pytest.param("slow", Outcome.TIMED_OUT, id="slow"),
    pytest.param("400", Outcome.REQUEST_REFUSED, id="bad request"),
    pytest.param("bad_json", Outcome.BAD_RESPONSE, id="bad JSON"),
]


@pytest.mark.parametrize(("fault", "outcome"), FAULTS)
def test_fault_that_stays_is_an_outcome_after_the_retries(provider, fault, outcome):
    with ModelServer([fail(fault)], slow_s=1.0) as server:
        client = client_of(server, provider, retries=1, timeout_s=0.3 if fault == "slow" else 20.0)
        answer = ask(client)
    assert answer.outcome is outcome
    again = 1 if fault in ("400", "bad_json") else 2  # what will not pass is not asked again
    assert len(server.requests) == again
    (row,) = client.ledger.rows
    assert (row.outcome, row.requests) == (outcome, again)


@pytest.mark.parametrize("fault", ["429", "500", "cut"])
def test_fault_that_passes_is_retried(provider, fault):
    with ModelServer([fail(fault), say("nothing: yes")]) as server:
        assert ask(client_of(server, provider)).outcome is Outcome.NOTHING
    assert len(server.requests) == 2


def test_rate_limit_is_waited_out_as_long_as_asked():
    waits: list[float] = []
    with ModelServer([fail("429", retry_after="7"), say("nothing: yes")]) as server:
        ask(client_of(server, waits=waits))
    assert waits == [7.0]


def test_a_wait_of_an_hour_is_not_waited():
    waits: list[float] = []
    with ModelServer([fail("429", retry_after="3600"), say("nothing: yes")]) as server:
        assert ask(client_of(server, waits=waits)).outcome is Outcome.RATE_LIMITED
    assert waits == []


@pytest.mark.parametrize(("fault", "words"), [("401", "does not take the key"), ("404", "does not know")])
def test_what_no_retry_mends_is_one_error_without_the_key(provider, fault, words):
    with ModelServer([fail(fault)]) as server, pytest.raises(KLineageError, match=words) as raised:
        ask(client_of(server, provider))
    assert KEY not in str(raised.value)
    assert len(server.requests) == 1


def test_missing_key_is_told_before_anything_is_sent(monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    with pytest.raises(EnvironmentLackError, match="ANTHROPIC_API_KEY"):
        Client(choose("anthropic:some-model"))


@pytest.mark.parametrize(("provider", "module"), [("openai", "pydantic_ai.models.openai"), ("anthropic", "anthropic")])
def test_missing_extra_is_one_line_with_the_command(monkeypatch, provider, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(EnvironmentLackError, match=r"pip install 'klineage\[llm\]'"):
        Client(choose(f"{provider}:some-model")).ask("x", SOURCE, "the rules", "the prompt")


@pytest.mark.parametrize("name", ["gpt-x", "nobody:x", "openai:", ":x"])
def test_model_that_is_no_provider_and_name_is_refused(name):
    with pytest.raises(KLineageError, match="not provider:name"):
        choose(name)


def test_address_with_credentials_is_never_shown():
    with pytest.raises(KLineageError) as raised:
        choose("openai:x", f"ftp://user:{KEY}@host/v1")
    assert KEY not in str(raised.value)


def test_tool_call_is_read_in_both_formats(provider):
    with ModelServer([propose(**EDIT)]) as server:
        answer = ask(client_of(server, provider))
    assert answer.outcome is Outcome.OK and "num_stages" not in answer.source
    assert answer.intent == "one stage"


def test_the_schema_is_sent_where_the_provider_knows_tools():
    with ModelServer([propose(**EDIT)]) as server:
        ask(client_of(server, "anthropic"))
    (tool,) = server.requests[0]["tools"]
    assert tool["name"] == "propose" and "edits" in tool["input_schema"]["properties"]


def test_cut_answer_is_truncated_and_filtered_one_refused(provider):
    with ModelServer([say("```python\nimport", finish="length")]) as server:
        assert ask(client_of(server, provider)).outcome is Outcome.TRUNCATED
    with ModelServer([say("I", finish="content_filter")]) as server:
        assert ask(client_of(server, provider)).outcome is Outcome.REFUSED


# ---------------------------------------------------------------------------------------------------- budgets


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        pytest.param(LlmBudget(exchanges=1), "1 exchanges", id="exchanges"),
        pytest.param(LlmBudget(tokens=1200), "1,200 tokens", id="tokens"),
        pytest.param(LlmBudget(money=0.003), "0.003", id="money"),
        pytest.param(LlmBudget(seconds=1e-9), "waiting", id="time"),
    ],
)
def test_spent_budget_ends_the_asking(tmp_path, budget, words):
    (tmp_path / "prices.toml").write_text('["openai:some-model"]\ninput = 1.0\noutput = 10.0\n')
    with ModelServer([say("nothing: yes")]) as server:
        client = client_of(server, budget=budget, prices=load_prices(tmp_path / "prices.toml"))
        client.ask("one", SOURCE, "the rules", "first")
        with pytest.raises(BudgetSpentError, match=words):
            client.ask("two", SOURCE, "the rules", "second")
        client.close()
    assert len(server.requests) <= 1
    if budget.seconds and budget.seconds > 1:
        assert client.ledger.rows[0].cost == pytest.approx(0.003)


def test_answers_are_kept_within_what_is_left_of_the_tokens():
    with ModelServer([say("nothing: yes")]) as server:
        ask(client_of(server, budget=LlmBudget(tokens=1000)))
    sent = server.requests[0]
    assert 0 < (sent.get("max_tokens") or sent["max_completion_tokens"]) <= 1000


def test_money_without_a_price_is_refused_before_anything_is_sent():
    with ModelServer([say("")]) as server, pytest.raises(KLineageError, match="price of openai:some-model"):
        client_of(server, budget=LlmBudget(money=1.0))


@pytest.mark.parametrize("text", ["[", '["openai:x"]\ninput = -1\noutput = 1', '["openai:x"]\ninput = 1'])
def test_prices_that_cannot_be_read_are_one_error(tmp_path, text):
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(KLineageError, match="prices"):
        load_prices(tmp_path / "p.toml")


# ----------------------------------------------------------------------------------------- record and replay


def test_unseen_prompt_in_a_replay_fails(tmp_path):
    client = Client(choose("openai:some-model"), record=Record(tmp_path, replay_only=True))
    with pytest.raises(UnseenPromptError, match="replay: the prompt"):
        client.ask("improve, answer 1", SOURCE, "the rules", "never asked")


def test_replay_answers_without_a_key_or_a_server(tmp_path, monkeypatch):
    kept: list[str] = []
    with ModelServer([propose(**EDIT)]) as server:
        first = ask(client_of(server, record=Record(tmp_path), keep=kept.append))
    monkeypatch.delenv("OPENAI_API_KEY")
    client = Client(choose("openai:some-model", server.address + "/v1"), record=Record(tmp_path, replay_only=True))
    assert client.ask("x", SOURCE, "the rules", "the prompt") == first
    (row,) = client.ledger.rows
    assert (row.requests, row.input_tokens) == (0, 0) and (row.cost or 0.0) == 0.0
    assert len(kept) == 1 and row.exchange in kept[0]


def test_failure_is_replayed_but_asked_again_when_live(tmp_path):
    with ModelServer([fail("500"), say("nothing: yes")]) as server:
        assert ask(client_of(server, record=Record(tmp_path), retries=0)).outcome is Outcome.SERVER_ERROR
        again = Client(choose("openai:some-model", server.address + "/v1"), record=Record(tmp_path, replay_only=True))
        assert ask(again).outcome is Outcome.SERVER_ERROR
        assert ask(client_of(server, record=Record(tmp_path))).outcome is Outcome.NOTHING


def test_exchange_that_was_changed_is_refused(tmp_path):
    with ModelServer([say("nothing: yes")]) as server:
        ask(client_of(server, record=Record(tmp_path)))
    (file,) = tmp_path.glob("*.json")
    file.write_text(file.read_text().replace("the prompt", "another prompt"))
    client = Client(choose("openai:some-model"), record=Record(tmp_path, replay_only=True), form="text")
    with pytest.raises(KLineageError, match="was changed"):
        ask(client)


def test_no_key_in_what_is_kept_even_when_the_server_repeats_it(tmp_path):
    kept: list[str] = []
    with ModelServer([fail("500"), Turn(text=f"nothing: yes {KEY}")]) as server:
        ask(client_of(server, record=Record(tmp_path), keep=kept.append, retries=0))
        ask(client_of(server, record=Record(tmp_path), keep=kept.append, retries=0))
    assert any(KEY in h["authorization"] for h in server.headers), "the key was never used"
    assert len(kept) == 2
    assert not [text for text in [*kept, *(f.read_text() for f in tmp_path.iterdir())] if KEY in text]


# ---------------------------------------------------------------------------------------------------- prompts


def test_prompt_of_an_unknown_name_is_refused(tmp_path):
    (tmp_path / "simplfy.md.j2").write_text("x")
    with pytest.raises(KLineageError, match="stands for no prompt"):
        Prompts(tmp_path)


def test_prompt_that_wants_an_unknown_fact_is_one_error_with_its_line(tmp_path):
    (tmp_path / "simplify.md.j2").write_text("a\n{{ nonsense }}\n")
    with pytest.raises(KLineageError, match=r"simplify.md.j2.*nonsense"):
        Prompts(tmp_path).render("simplify", {})


def test_a_prompt_of_ones_own_stands_for_the_shipped_one(tmp_path):
    (tmp_path / "simplify.md.j2").write_text("mine: {{ task.name }}")
    assert Prompts(tmp_path).render("simplify", {"task": {"name": "t"}}) == "mine: t\n"
