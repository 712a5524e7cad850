"""Answers read: each way to be wrong has its own outcome, and none raises."""

from __future__ import annotations

import json

import pytest
from fakes import SOURCE
from hypothesis import given
from hypothesis import strategies as st

from klineage.llm import Outcome, read_answer

NEW = SOURCE.replace("num_stages=3", "num_stages=1")
BLOCK = f"```python\n{NEW}```"
HEAD = "move: software_pipelining\nintent: one stage\nsite: launch@run:18\n"


def edit(find: str, replace: str) -> str:
    return f"<<<<< FIND\n{find}\n=====\n{replace}\n>>>>> REPLACE\n"


LINE = "    y = torch.empty_like(x)"

WRONG = [
    pytest.param("", "stop", Outcome.EMPTY, id="empty"),
    pytest.param("<think>hm, let me see</think>", "stop", Outcome.EMPTY, id="only thought"),
    pytest.param("I'm sorry, I can't help with that.", "stop", Outcome.REFUSED, id="refusal"),
    pytest.param("x", "content_filter", Outcome.REFUSED, id="filtered"),
    pytest.param(HEAD + "```python\nimport torch", "length", Outcome.TRUNCATED, id="cut"),
    pytest.param(HEAD + "```python\nimport torch", "stop", Outcome.MALFORMED, id="unclosed block"),
    pytest.param("<<<<< FIND\nabc", "stop", Outcome.MALFORMED, id="unclosed edit"),
    pytest.param('{"move": ', "stop", Outcome.MALFORMED, id="bad JSON"),
    pytest.param('{"edits": [{"find": ""}]}', "stop", Outcome.MALFORMED, id="JSON that does not fit"),
    pytest.param("The kernel is fine as it is, I think.", "stop", Outcome.NO_CODE, id="words only"),
    pytest.param(f"{BLOCK}\nor\n```python\nx = 1\n```", "stop", Outcome.SEVERAL_BLOCKS, id="two code blocks"),
    pytest.param(edit("not there", "x"), "stop", Outcome.EDIT_DOES_NOT_APPLY, id="edit of nothing"),
    pytest.param(edit("x", "y"), "stop", Outcome.EDIT_DOES_NOT_APPLY, id="edit of many places"),
    pytest.param("```python\ndef run(:\n```", "stop", Outcome.SYNTAX_ERROR, id="not Python"),
    pytest.param(f"```python\n# the same\n{SOURCE}```", "stop", Outcome.UNCHANGED, id="unchanged but for a comment"),
    pytest.param(edit(LINE, LINE + "  # done"), "stop", Outcome.UNCHANGED, id="edit that changes nothing"),
    pytest.param("nothing: yes", "stop", Outcome.NOTHING, id="nothing more"),
]


@pytest.mark.parametrize(("text", "finish", "outcome"), WRONG)
def test_answer_that_gives_no_kernel(text, finish, outcome):
    answer = read_answer(SOURCE, text, None, finish)
    assert answer.outcome is outcome
    assert not answer.outcome.usable
    assert answer.reason or outcome is Outcome.NOTHING


RIGHT = [
    pytest.param(HEAD + BLOCK, Outcome.OK, id="as asked"),
    pytest.param("**Move:** software_pipelining\nSite: `launch@run:18`\n" + BLOCK, Outcome.OK, id="marked up"),
    pytest.param(f"Sure! Here it is:\n{HEAD}{BLOCK}\nHope it helps.", Outcome.PROSE, id="prose round the code"),
    pytest.param(f"{HEAD}{BLOCK}\nagain\n{BLOCK}", Outcome.PROSE, id="the same block twice"),
    pytest.param(HEAD + edit("num_warps=8, num_stages=3", "num_warps=8, num_stages=1"), Outcome.EDIT_DOES_NOT_APPLY,
                 id="edit of half a line"),  # FIND blocks hold whole lines
    pytest.param(NEW, Outcome.OK, id="bare code"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "outcome"), RIGHT)
def test_answer_with_code(text, outcome):
    answer = read_answer(SOURCE, text, None, "stop")
    assert answer.outcome is outcome
    if outcome.usable:
        assert "num_stages=1" in answer.source


def test_fields_are_read_from_text():
    answer = read_answer(SOURCE, HEAD + BLOCK, None, "stop")
    assert (answer.move, answer.intent, answer.site) == ("software_pipelining", "one stage", "launch@run:18")


def test_move_named_without_code_is_usable_and_leaves_the_edit_to_the_move():
    answer = read_answer(SOURCE, "move: warps\nintent: default warps\n", None, "stop")
    assert answer.outcome is Outcome.OK and answer.source == "" and answer.move == "warps"


ARGUMENTS = [
    pytest.param({"intent": "x", "source": NEW}, Outcome.OK, id="source"),
    pytest.param({"intent": "x", "source": BLOCK}, Outcome.OK, id="source in a fence"),
    pytest.param({"intent": "x", "source": f"Here:\n{BLOCK}"}, Outcome.PROSE, id="prose in the string"),
    pytest.param(
        {"intent": "x", "edits": [{"find": "num_stages=3", "replace": "num_stages=1"}]}, Outcome.OK, id="edit"
    ),
    pytest.param({"move": "none", "intent": "x"}, Outcome.NO_CODE, id="nothing at all"),
    pytest.param({"move": None, "intent": "x", "source": SOURCE}, Outcome.UNCHANGED, id="null and unchanged"),
    pytest.param({"nothing": True}, Outcome.NOTHING, id="nothing more"),
    pytest.param({"edits": "all of it"}, Outcome.MALFORMED, id="wrong type"),
]


@pytest.mark.parametrize(("arguments", "outcome"), ARGUMENTS)
@pytest.mark.parametrize("form", ["tool", "json text", "json block"])
def test_structured_answer(arguments, outcome, form):
    text = json.dumps(arguments)
    if form == "tool":
        answer = read_answer(SOURCE, "", text, "tool_call")
    else:
        if form == "json block" and "```" in text:
            pytest.skip("a fence cannot stand in a fence")
        answer = read_answer(SOURCE, text if form == "json text" else f"```json\n{text}\n```", None, "stop")
    assert answer.outcome is outcome


@given(st.text(alphabet='`<>={}"\n movepython:#defrunx()', max_size=300))
def test_no_text_raises(text):
    assert read_answer(SOURCE, text, None, "stop").outcome in Outcome
