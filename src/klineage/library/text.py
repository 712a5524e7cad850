"""A skill as text that a person reviews in git: TOML with one line per effect, risk and sweep.

Read back by ``tomllib``. Fields that hold their default are left out, so that a diff shows what changed.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from ..model.skill import Skill

WIDTH = 110
_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
_ONE_LINE_EACH = ("effects", "negative", "risks", "preconditions")


def skill_to_text(skill: Skill) -> str:
    """The text of a skill's file. ``tomllib.loads`` of it, validated as a Skill, is the skill again."""
    # "none" fields cannot be written in TOML and all default to None, so leaving defaults out covers them
    data = {"name": skill.name, "status": str(skill.status), **skill.model_dump(mode="json", exclude_defaults=True)}
    lists = {key: data.pop(key) for key in _ONE_LINE_EACH if key in data}
    carriers: Mapping[str, Any] = data.pop("carriers")
    evidence: list[str] = data.pop("evidence")
    lines = [f"{key} = {_folded(value)}" for key, value in data.items()]
    for key in ("effects", "negative", "risks"):
        if key in lists:
            lines += [f"{key} = [", *(f"  {_value(item)}," for item in lists[key]), "]"]
    lines.append(f"evidence = {_folded(evidence)}")
    lines += ["", "[carriers] # parameter = values that worked"]
    lines += [f"{_key(name)} = {_folded(values)}" for name, values in carriers.items()]
    for precondition in lists.get("preconditions", ()):
        lines += ["", "[[preconditions]]"]
        lines += [f"{key} = {_folded(value)}" for key, value in precondition.items()]
    return _always_listed(skill, lines) + "\n"


def _always_listed(skill: Skill, lines: list[str]) -> str:
    """Required lists that are empty still need a line; they go before the first table."""
    empty = [name for name in ("preconditions", "effects") if not getattr(skill, name)]
    written = {line.split(" = ", 1)[0] for line in lines} | {"preconditions" if skill.preconditions else ""}
    at = lines.index("[carriers] # parameter = values that worked") - 1
    return "\n".join(lines[:at] + [f"{name} = []" for name in empty if name not in written] + lines[at:])


def _folded(value: Any) -> str:
    """A value, a list too long for one line folded over several."""
    line = _value(value)
    if not isinstance(value, list) or len(line) <= WIDTH - 20:
        return line
    items = [_value(item) for item in value]
    if all(len(item) < WIDTH // 2 and " " not in item for item in items):
        body = textwrap.wrap(", ".join(items) + ",", WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    else:
        body = [f"{item}," for item in items]
    return "\n".join(["[", *(f"  {line}" for line in body), "]"])


def _value(value: Any) -> str:
    """One value in TOML on one line."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)  # inf, -inf and nan are TOML words
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(str(k))} = {_value(v)}" for k, v in value.items() if v is not None)
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    raise TypeError(f"{type(value).__name__} has no form in a skill's file")


def _key(name: str) -> str:
    return name if name and set(name) <= _BARE else _string(name)


def _string(text: str) -> str:
    """A TOML basic string; JSON's escapes are TOML's, but for DEL, which TOML wants escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
