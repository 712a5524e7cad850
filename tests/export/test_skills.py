"""Exported skills: refused input first; then every format valid, short, and with all that a skill rests on."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from values import effect, skill

from klineage.errors import KLineageError
from klineage.export import FORMATS, export_skills, skill_index
from klineage.export.skills import MOST_LINES, slug
from klineage.model import Precondition, Risk, Standing

skills_ref = pytest.importorskip("skills_ref", reason="skills-ref is not installed")


def rich(name: str = "one-pass-row-row", **changes):
    """A skill with more of everything than a page can hold."""
    many = {
        "move": "one_pass_row",
        "intent": "Hold a whole row in registers: \"quotes\", colons: and 'all'",
        "effects": tuple(effect(100.0, 100.0 + i, context=f"sm_90/task/case{i}") for i in range(1, 60)),
        "negative": tuple(effect(100.0, 90.0 - i, context=f"sm_80/task/case{i}") for i in range(20)),
        "risks": tuple(Risk(what=f"broke {i} " + "x" * 300, case="c", verdict="v", kind="numeric") for i in range(30)),
        "preconditions": (
            Precondition(predicate="p", statement="the row fits", standing=Standing.PROVEN, counterexample="c0ffee"),
            *(Precondition(predicate="p", statement=f"condition {i}") for i in range(40)),
        ),
        "requires": ("tile_size",),
    }
    return skill(name, **{**many, **changes})


def text_of(paths: list[Path], name: str) -> str:
    return next(p for p in paths if p.name == name).read_text()


def test_without_skills_there_is_nothing_to_write(tmp_path):
    with pytest.raises(KLineageError, match="no skill is known"):
        export_skills([], "json", tmp_path)


def test_unknown_format_is_refused(tmp_path):
    with pytest.raises(KLineageError, match="unknown format"):
        export_skills([rich()], "pdf", tmp_path)


def test_two_names_that_give_one_folder_are_refused(tmp_path):
    with pytest.raises(KLineageError, match="share a name"):
        export_skills([rich("a_b"), rich("a-b")], "agent-skill", tmp_path)


def test_folder_that_is_a_file_is_one_error(tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(KLineageError, match="cannot write"):
        export_skills([rich()], "json", tmp_path / "out")


@pytest.mark.parametrize("form", ["agent-skill", "claude-plugin", "codex"])
def test_skill_folders_are_valid_and_short(tmp_path, form):
    skills = [rich(), rich("Free:Unroll__by four", move="free:unroll-by-four"), skill("x" * 90, move="warps")]
    pages = [p for p in export_skills(skills, form, tmp_path) if p.name == "SKILL.md"]
    assert len(pages) >= 3
    for page in pages:
        assert skills_ref.validate(page.parent) == []
        assert len(page.read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize("form", sorted(FORMATS))
def test_every_format_holds_conditions_effect_risks_and_how_to_check(tmp_path, form):
    paths = export_skills([rich()], form, tmp_path)
    text = "\n".join(p.read_text() for p in paths)
    for part in ("the row fits", "c0ffee", "modelled", "broke 0", "sm_80/task/case0", "one-pass-row-row"):
        assert part in text
    if form != "json":
        assert "klineage gate" in text and "-->" in text and "`tile_size`" in text


def test_index_of_forty_skills_is_a_few_hundred_tokens():
    skills = [rich(f"skill-number-{i}", effects=(effect(100.0, 100.0 + i),), negative=()) for i in range(60)]
    index = skill_index(skills)
    assert len(index.splitlines()) == 41 and "20 more" in index
    assert index.startswith("- skill-number-59 (1.59x)"), "the best does not come first"
    short = skill_index([rich(f"skill-{i}", intent="Warps per program") for i in range(20)])
    assert len(short) / 4 < 400  # about four characters a token


def test_plugin_and_codex_name_the_server(tmp_path):
    plugin = export_skills([rich()], "claude-plugin", tmp_path / "plugin")
    assert json.loads(text_of(plugin, "plugin.json"))["name"] == "klineage"
    assert json.loads(text_of(plugin, ".mcp.json"))["mcpServers"]["klineage"]["args"] == ["mcp"]
    codex = export_skills([rich()], "codex", tmp_path / "codex")
    assert tomllib.loads(text_of(codex, "config.toml"))["mcp_servers"]["klineage"]["command"] == "klineage"


@pytest.mark.parametrize(("name", "made"), [("A__b", "a-b"), ("-x-", "x"), ("free:x y", "free-x-y"), ("§", "skill")])
def test_names_are_those_that_agents_take(name, made):
    assert slug(name) == made
