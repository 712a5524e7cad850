"""A model's answer read into a value: intent, site, edit. Every way to be wrong has its own outcome; none raises."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field, ValidationError

from ..errors import KernelError
from ..model import Frozen
from ..surface import Module
from ..surface.pyast import parse_ast
from ..surface.query import normal
from .outcome import Outcome

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})[ \t]*([\w+-]*)[^\n]*\n(.*?)^[ \t]*\1[ \t]*$", re.MULTILINE | re.DOTALL)
_EDIT = re.compile(r"^<{5,} ?FIND[ \t]*\n(.*?)^={5,}[ \t]*\n(.*?)^>{5,} ?REPLACE[ \t]*$", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^[ \t>*#-]*\**(move|intent|site|skill|nothing)\**[ \t]*:[ \t*]*(.*?)[ \t*`]*$", re.I | re.M)
_THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_REFUSAL = re.compile(
    r"\b(I(?:'m| am)? (?:can(?:no|')t|cannot|won't|will not|unable|not able|sorry)|I must decline|as an AI\b)", re.I
)
_NONE = frozenset({"", "none", "null", "n/a", "-", "no"})


class Edit(Frozen):
    """One replacement: ``find`` must occur exactly once in the kernel's text."""

    find: str = Field(min_length=1, description="Text of the kernel to replace; must occur exactly once")
    replace: str = Field(description="What to put in its place")


class Proposed(Frozen):
    """The structured answer. Give ``source`` or ``edits``; with neither, the named move or skill writes the edit."""

    move: str = Field("", description="A move of the vocabulary, or empty when none fits the intent")
    intent: str = Field("", description="One line in words: what is changed and why")
    site: str = Field("", description="The label of the site, from the list given")
    skill: str = Field("", description="The skill applied, if any")
    source: str = Field("", description="The whole new module, as plain Python text")
    edits: tuple[Edit, ...] = Field((), description="Or replacements in the kernel's text")
    nothing: bool = Field(False, description="True when there is nothing more to propose")


@dataclass(frozen=True)
class Answer:
    """What an exchange came to. ``source`` is the new module text when the outcome is usable and code was given."""

    outcome: Outcome
    reason: str = ""
    move: str = ""
    intent: str = ""
    site: str = ""
    skill: str = ""
    source: str = ""  # "" with a usable outcome: the named move or skill is to write the edit


def read_answer(kernel: str, text: str, arguments: str | Mapping[str, Any] | None, finish: str | None) -> Answer:
    """Read an answer to a request about ``kernel``.

    ``arguments`` are those of the answer's tool call, ``finish`` the provider's reason for ending ("stop", "length",
    "content_filter", "tool_call", ...).
    """
    if finish == "length":
        return Answer(Outcome.TRUNCATED, "the answer was cut at the limit of tokens")
    if finish == "content_filter":
        return Answer(Outcome.REFUSED, "the provider's filter stopped the answer")
    if arguments is not None:
        return _of_data(kernel, arguments)
    text = _THOUGHT.sub("", text).strip()
    if not text:
        return Answer(Outcome.EMPTY, "the answer is empty")
    if text.startswith("{"):
        return _of_data(kernel, text)
    return _of_text(kernel, text)


def apply_edits(kernel: str, edits: tuple[Edit, ...]) -> str | None:
    """The text after every replacement in order, or None when one of them does not occur exactly once."""
    for edit in edits:
        if kernel.count(edit.find) != 1:
            return None
        kernel = kernel.replace(edit.find, edit.replace)
    return kernel


def checked(answer: Answer, kernel: str) -> Answer:
    """The answer with its code looked at: what is not Python, or is the kernel again, is not usable."""
    if not answer.outcome.usable or not answer.source:
        return answer
    try:
        parse_ast(answer.source)
        Module.parse(answer.source)
    except (SyntaxError, ValueError, RecursionError) as error:
        line = getattr(error, "lineno", None) or 1
        return replace(answer, outcome=Outcome.SYNTAX_ERROR, reason=f"line {line}: {getattr(error, 'msg', error)}")
    except KernelError as error:
        return replace(answer, outcome=Outcome.SYNTAX_ERROR, reason=error.message)
    if normal(answer.source) == normal(kernel):
        return replace(answer, outcome=Outcome.UNCHANGED, reason="the kernel came back as it was")
    return answer


def _of_data(kernel: str, arguments: str | Mapping[str, Any]) -> Answer:
    try:
        data = json.loads(arguments) if isinstance(arguments, str) else dict(arguments)
        proposed = Proposed.model_validate({k: v for k, v in data.items() if v is not None})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return Answer(Outcome.MALFORMED, f"{where}: {first['msg']}")
    except (ValueError, AttributeError, TypeError) as error:
        return Answer(Outcome.MALFORMED, f"not a JSON object: {error}")
    named = Answer(Outcome.OK, "", _name(proposed.move), proposed.intent.strip(), proposed.site.strip())
    named = replace(named, skill=_name(proposed.skill))
    if proposed.nothing:
        return replace(named, outcome=Outcome.NOTHING, reason=proposed.intent)
    if proposed.edits:
        return _edited(named, kernel, proposed.edits)
    if not proposed.source.strip():
        return _uncoded(named)
    blocks = _blocks(proposed.source)
    if blocks:  # a fence inside the string: the same rules as for text
        return _coded(named, kernel, proposed.source, blocks)
    return checked(replace(named, source=_ended(proposed.source)), kernel)


def _of_text(kernel: str, text: str) -> Answer:
    blocks, edits = _blocks(text), _EDIT.findall(text)
    outside = _EDIT.sub("", _FENCE.sub("", text))
    fields: dict[str, str] = {}
    for name, value in _FIELD.findall(outside):
        fields.setdefault(name.lower(), value)
    named = Answer(Outcome.OK, "", _name(fields.get("move", "")), fields.get("intent", ""), fields.get("site", ""))
    named = replace(named, skill=_name(fields.get("skill", "")))
    if edits:
        return _edited(named, kernel, tuple(Edit(find=f, replace=r) for f, r in edits if f))
    json_blocks = [body for language, body in blocks if language == "json"]
    if len(json_blocks) == 1 and len(blocks) == 1:
        return _of_data(kernel, json_blocks[0])
    if blocks:
        return _coded(named, kernel, text, blocks)
    if re.search(r"^[ \t]*(`{3,}|~{3,}|<{5,} ?FIND)", text, re.MULTILINE):
        return replace(named, outcome=Outcome.MALFORMED, reason="a code block is never closed")
    if fields.get("nothing", "no").strip().lower() in ("yes", "true"):
        return replace(named, outcome=Outcome.NOTHING, reason=named.intent)
    if _REFUSAL.search(text):
        return replace(named, outcome=Outcome.REFUSED, reason=_first_line(text))
    if "def " in text and _parses(outside):
        return checked(replace(named, source=_ended(outside)), kernel)
    return _uncoded(named)


def _coded(named: Answer, kernel: str, text: str, blocks: list[tuple[str, str]]) -> Answer:
    if len({normal(body) for _, body in blocks}) > 1:
        return replace(named, outcome=Outcome.SEVERAL_BLOCKS, reason=f"{len(blocks)} code blocks")
    rest = _FIELD.sub("", _FENCE.sub("", text)).strip()
    outcome = Outcome.PROSE if rest else Outcome.OK
    return checked(replace(named, outcome=outcome, source=_ended(blocks[0][1])), kernel)


def _edited(named: Answer, kernel: str, edits: tuple[Edit, ...]) -> Answer:
    source = apply_edits(kernel, edits)
    if source is None:
        counts = ", ".join(f"{kernel.count(e.find)}x {_first_line(e.find)!r}" for e in edits)
        return replace(named, outcome=Outcome.EDIT_DOES_NOT_APPLY, reason=f"each text must occur once: {counts}")
    return checked(replace(named, source=_ended(source)), kernel)


def _uncoded(named: Answer) -> Answer:
    """No code: fine when a move or skill is named, which then writes the edit itself."""
    if named.move or named.skill:
        return named
    return replace(named, outcome=Outcome.NO_CODE, reason="neither code nor an edit nor the name of a move or skill")


def _blocks(text: str) -> list[tuple[str, str]]:
    return [(language.lower(), body) for _, language, body in _FENCE.findall(text)]


def _name(value: str) -> str:
    bare = value.strip().strip("`\"'")
    return "" if bare.lower() in _NONE else bare


def _ended(source: str) -> str:
    return source.strip("\n") + "\n"


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[0][:120] if lines else ""


def _parses(text: str) -> bool:
    try:
        parse_ast(text)
    except (SyntaxError, ValueError):
        return False
    return True
