"""Options that choose a model, and the commands for agents and exports: bad combinations are one line, status 2."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from values import lineage, skill

from klineage.cli.app import run
from klineage.cli.models import ProposerKind, chosen_proposer
from klineage.errors import KLineageError
from klineage.store import open_store

LIMITS = {"exchanges": 60, "tokens": None, "money": None, "prices": None, "wait": 3600.0, "timeout": 180.0,
          "answer_tokens": 8192}  # fmt: skip


def chosen(**options):
    named = {"proposer": None, "model": None, "base_url": None, "prompts": None, "record": None, "replay": None}
    return chosen_proposer(**{**named, **LIMITS, **options})


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        pytest.param({"proposer": ProposerKind.MOVES, "model": "openai:x"}, "asks no model", id="moves with a model"),
        pytest.param({"proposer": ProposerKind.LLM}, "needs a model", id="llm without one"),
        pytest.param({"replay": "r", "record": "s"}, "nothing to record", id="replay and record"),
    ],
)
def test_options_that_contradict_each_other(options, words):
    with pytest.raises(KLineageError, match=words):
        chosen(**options)


def test_nothing_said_is_the_moves():
    assert chosen() is None and chosen(proposer=ProposerKind.MOVES) is None


def test_limits_reach_the_proposer():
    choice = chosen(model="openai:x", tokens=5, money=1.5, exchanges=3)
    assert (choice.budget.tokens, choice.budget.money, choice.budget.exchanges) == (5, 1.5, 3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["agent", "status", "softmax"], "klineage agent start softmax", id="status of nothing"),
        pytest.param(["skills", "export", "--format", "pdf"], "pdf", id="unknown format"),
        pytest.param(["export", "sft"], "klineage walk", id="no lineage"),
        pytest.param(["mcp", "--http", "99999"], "65535", id="no port"),
    ],
)
def test_bad_input_is_one_line(arguments, words, capsys):
    assert run(arguments) == 2
    error = capsys.readouterr().err.strip()
    assert words in error and "Traceback" not in error


def test_walk_with_a_model_and_no_key_says_so_before_any_work():
    code = ["-c", "from klineage.cli.app import main; main()", "walk", "rms_norm", "--model", "anthropic:x"]
    done = subprocess.run([sys.executable, *code], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "ANTHROPIC_API_KEY" in done.stderr and "walk rms_norm ..." not in done.stderr


def test_skills_and_data_are_written_where_asked(tmp_path, capsys):
    store = open_store(str(tmp_path / "s.db"))
    store.put_skills([skill("warps-row", move="warps")])
    store.put_lineage(lineage().model_copy(update={"task": "softmax"}))
    store.close()
    assert run(["skills", "export", "--format", "json", "--out", "out", "--store", "s.db", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == ["out/skills.json"]
    assert run(["export", "rl", "--store", "s.db"]) == 2  # softmax is held out
    assert "no lineage" in capsys.readouterr().err
