"""Training data: leaks first; then rows that follow from lineages, and a tiny model that trains on them."""

from __future__ import annotations

import copy
import json

import pytest
from fakes import SOURCE, FakeJudge, cost
from values import effect, skill

from klineage.errors import KLineageError
from klineage.export import training_data, write_dataset
from klineage.export.leaks import fingerprints, without_held_out
from klineage.induce import ProbePlan, induce
from klineage.model import Kernel
from klineage.store import open_store
from klineage.walk import walk

WRONG_BLOCK = "num_stages=2"


class KeepingJudge(FakeJudge):
    """A fake judge that keeps its verdicts, as the gate does."""

    def __init__(self, store, task="fake", **options) -> None:
        super().__init__(cost, **options)
        self.store = store
        self.info = self.info.model_copy(update={"name": task, "description": f"what {task} does"})

    def judge(self, kernel, incumbent=None):
        verdict = super().judge(kernel, incumbent)
        verdict = verdict.model_copy(update={"task": self.info.name, "task_id": self.info.id})
        self.store.put_kernel(kernel)
        self.store.put_verdict(verdict)
        return verdict


@pytest.fixture
def store(tmp_path):
    opened = open_store(str(tmp_path / "store.db"))
    yield opened
    opened.close()


@pytest.fixture
def judge(store):
    return KeepingJudge(store, wrong=lambda s: "case small: error 0.51 > allowed 0.1" if WRONG_BLOCK in s else "")


@pytest.fixture
def line(store, judge):
    line = walk(judge, store, Kernel(source=SOURCE))
    naive = store.get_kernel(line.naive)
    judge.judge(naive.derive(naive.source.replace("num_stages=1", WRONG_BLOCK), "skill software-pipelining"))
    return line


@pytest.fixture
def skills(store, judge, line):
    return induce([line], lambda _: judge, store, ProbePlan.light())


def made(kind, store, lines, skills, judge, held_out=(), kernels=()):
    return training_data(kind, store, lines, skills, lambda _: judge.info, held_out, kernels)


def test_unknown_kind_is_refused(store, line, skills, judge):
    with pytest.raises(KLineageError, match="unknown kind"):
        made("dpo", store, [line], skills, judge)


@pytest.mark.parametrize("kind", ["sft", "preference", "rl"])
def test_lineage_of_a_held_out_task_gives_nothing(store, line, skills, judge, kind):
    with pytest.raises(KLineageError, match="no lineage"):
        made(kind, store, [line], skills, judge, held_out=["fake"])


def test_kernel_shared_with_a_held_out_task_is_left_out_whatever_its_names(store, line, skills, judge):
    renamed = SOURCE.replace("cols", "lanes").replace("def copy", "def secret").replace("copy[", "secret[")
    with pytest.raises(KLineageError, match="no lineage"):
        made("sft", store, [line], skills, judge, held_out=["secret"], kernels=[renamed])
    other = KeepingJudge(store, "secret")
    other.judge(Kernel(source=renamed))  # known from its verdicts alone
    with pytest.raises(KLineageError, match="no lineage"):
        made("sft", store, [line], skills, judge, held_out=["secret"])


def test_what_a_held_out_task_taught_is_not_told(store, line, skills, judge):
    seen = effect(100.0, 150.0, context="sm_90/secret/bench")
    taught = skill("taught", sources=("secret", "fake"))
    partly = skill("partly", sources=("fake",), effects=(effect(), seen), scope=("sm_90/secret/bench",))
    (kept,) = without_held_out([taught, partly], ["secret"])
    assert kept.name == "partly" and seen not in kept.effects and kept.effects and kept.scope == ()
    data = made("rl", store, [line], [*skills, taught, partly], judge, held_out=["secret"])
    assert "secret" not in json.dumps(data.rows) and data.left_out["skills that a held-out task taught"] == 1


def test_fingerprints_see_structure_and_not_names():
    assert fingerprints(SOURCE) == fingerprints(SOURCE.replace("start", "begin").replace("x_ptr", "src"))
    assert fingerprints(SOURCE) != fingerprints(SOURCE.replace("cols < n", "cols <= n"))


def test_sft_goes_from_the_naive_end_to_the_expert(store, line, skills, judge):
    data = made("sft", store, [line], skills, judge)
    assert [r["level"] for r in data.rows] == sorted((r["level"] for r in data.rows), reverse=True)
    for row in data.rows:
        assert [m["role"] for m in row["messages"]] == ["system", "user", "assistant"]
    last = data.rows[-1]["messages"][-1]["content"]
    assert SOURCE.strip() in last and last.startswith("move: ")


def test_preference_pairs_follow_the_gate(store, line, skills, judge):
    for row in made("preference", store, [line], skills, judge).rows:
        assert row["reward_chosen"] > row["reward_rejected"]
        assert row["chosen"] != row["rejected"] and row["why_rejected"]
        assert "0.51" not in row["why_rejected"]


def test_rl_rows_are_transitions_with_rewards(store, line, skills, judge):
    rows = made("rl", store, [line], skills, judge).rows
    expert = [r for r in rows if r["move"] == "software_pipelining" and r["level"] >= 0]
    assert expert[0]["reward"] == pytest.approx(1.0)  # twice as fast
    refused = [r for r in rows if r["status"] == "rejected_numeric"]
    assert refused and all(r["reward"] == -1.0 and not r["label"] for r in refused)
    for row in rows:
        assert (
            store.get_kernel(row["state"]) and store.get_kernel(row["next_state"]) and store.get_verdict(row["verdict"])
        )


def test_card_says_what_was_held_out_and_where_kernels_come_from(store, line, skills, judge, tmp_path):
    data = made("rl", store, [line], skills, judge, held_out=["secret"])
    file, card = write_dataset(data, tmp_path / "out")
    rows = [json.loads(text) for text in file.read_text().splitlines()]
    assert len(rows) == len(data.rows)
    text = card.read_text()
    assert text.startswith("---\n") and "secret" in text.split("## Held out")[1] and "modelled" in text
    assert f"rows: {len(rows)}" in text


# ------------------------------------------------------------------------------------------------------- training


@pytest.fixture
def tiny(store, line, skills, judge, tmp_path):
    """(model, tokenizer) of random weights, its words those of the data."""
    pytest.importorskip("trl", reason="the train extra is not installed")
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    texts = [m["content"] for r in made("sft", store, [line], skills, judge).rows for m in r["messages"]]
    raw = Tokenizer(models.BPE(unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel()
    raw.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=600, special_tokens=["<unk>", "<pad>", "<eos>"]))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, unk_token="<unk>", pad_token="<pad>", eos_token="<eos>")
    tokenizer.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<eos>{% endfor %}"
    config = LlamaConfig(vocab_size=600, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
                         num_attention_heads=2, num_key_value_heads=2, pad_token_id=1, eos_token_id=2)  # fmt: skip
    return LlamaForCausalLM(config), tokenizer


@pytest.mark.parametrize("kind", ["sft", "preference"])
def test_a_tiny_model_trains_on_it(store, line, skills, judge, tmp_path, tiny, kind):
    from datasets import load_dataset
    from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

    file, _ = write_dataset(made(kind, store, [line], skills, judge), tmp_path / "data")
    rows = load_dataset("json", data_files=str(file), split="train", cache_dir=str(tmp_path / "cache"))
    model, tokenizer = tiny
    steps, longest = (4, 512) if kind == "sft" else (2, None)  # a pair cut to a short prompt would be dropped
    options = {"output_dir": str(tmp_path / "out"), "max_steps": steps, "per_device_train_batch_size": 1,
               "report_to": [], "save_strategy": "no", "logging_steps": 1, "learning_rate": 1e-2, "use_cpu": True,
               "max_length": longest, "bf16": False, "fp16": False, "disable_tqdm": True}  # fmt: skip
    trainer, config = (SFTTrainer, SFTConfig) if kind == "sft" else (DPOTrainer, DPOConfig)
    reference = {"ref_model": copy.deepcopy(model)} if kind == "preference" else {}
    trained = trainer(model=model, args=config(**options), train_dataset=rows, processing_class=tokenizer, **reference)
    trained.train()
    losses = [entry["loss"] for entry in trained.state.log_history if "loss" in entry]
    assert len(losses) == steps and all(0 < loss < 100 for loss in losses)
    if kind == "sft":
        assert losses[-1] < losses[0], "nothing was learned of the same few rows"
