"""Skills as files that agents load: one short page each, and an index of the whole library in a few hundred tokens."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import KLineageError
from ..library import skill_to_text
from ..model import Skill, Standing
from ..moves import move
from ..propose.cached import is_free
from ..propose.facts import effect_text, expected, stable

MOST_LINES = 150
NAME_LENGTH = 64
DESCRIPTION_LENGTH = 1024
INDEX_SKILLS = 40
INDEX_NAME = "triton-optimisation-index"
Pages = dict[str, str]  # path below the folder -> text


def export_skills(skills: Sequence[Skill], form: str, folder: Path) -> list[Path]:
    """Write skills in one of ``FORMATS`` below ``folder`` and return the paths written.

    Raises KLineageError for an unknown format, without skills, or when the folder cannot be written.
    """
    if form not in FORMATS:
        raise KLineageError(f"unknown format {form!r}", f"choose one of {', '.join(FORMATS)}")
    if not skills:
        raise KLineageError("no skill is known", "run: klineage walk TASK, then klineage induce")
    written: list[Path] = []
    try:
        for name, text in FORMATS[form](sorted(skills, key=lambda s: s.name)).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written.append(path)
    except OSError as error:
        raise KLineageError(f"cannot write below {folder}: {error.strerror}", "choose another folder") from error
    return written


def skill_index(skills: Sequence[Skill]) -> str:
    """One line a skill, best first: name, expected effect, what it does."""
    best = sorted(skills, key=lambda s: -expected(s))
    lines = [f"- {slug(s.name)} ({expected(s):.2f}x): {_cut(s.intent, 60)}" for s in best[:INDEX_SKILLS]]
    if len(best) > INDEX_SKILLS:
        lines.append(f"- and {len(best) - INDEX_SKILLS} more: klineage skills list")
    return "\n".join(lines)


def skill_page(skill: Skill) -> str:
    """One skill: what, when it is sound, what it brought, what went wrong, how to check. At most 150 lines."""
    parts = [f"# {skill.intent}", _summary(skill)]
    parts += [_section("When it is sound", [_condition(p.statement, p) for p in skill.preconditions], 20)]
    if skill.requires:
        parts.append(_section("Do these first, where they apply", [f"`{name}`" for name in skill.requires], 10))
    parts.append(_section("Where it applies", list(skill.anchors), 10))
    carriers = [f"`{name}`: {', '.join(f'`{v}`' for v in values[:6])}" for name, values in skill.carriers.items()]
    parts.append(_section("What carries it (values that worked)", carriers, 10))
    parts.append(_code(skill))
    effects = [f"{e.speedup:.2f}x in {e.context} ({e.provenance})" for e in skill.effects]
    parts.append(_section("Effect", effects, 12))
    harm = [f"{e.speedup:.2f}x in {e.context} ({e.provenance})" for e in skill.negative]
    parts.append(_section("Where it did harm", harm, 8))
    risks = list(dict.fromkeys(f"{_cut(stable(r.what), 200)} ({r.kind})" for r in skill.risks))
    parts.append(_section("What broke when a condition did not hold", risks, 6))
    parts.append(_check(skill))
    return _limited("\n\n".join(p for p in parts if p))


def slug(name: str) -> str:
    """A name as agents' formats want it: lower case, digits and single hyphens, at most 64 characters."""
    bare = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:NAME_LENGTH].strip("-")
    return bare or "skill"


# ------------------------------------------------------------------------------------------------------- formats


def _agent_skills(skills: Sequence[Skill]) -> Pages:
    return {**_skill_folders(skills, ""), f"{INDEX_NAME}/SKILL.md": _index_skill(skills)}


def _claude_plugin(skills: Sequence[Skill]) -> Pages:
    from .. import __version__

    manifest = {
        "name": "klineage",
        "version": __version__,
        "description": "Optimisations of Triton kernels learned from expert ones, each with conditions and effects",
    }
    server = {"mcpServers": {"klineage": {"command": "klineage", "args": ["mcp"]}}}
    return {
        ".claude-plugin/plugin.json": json.dumps(manifest, indent=2) + "\n",
        ".mcp.json": json.dumps(server, indent=2) + "\n",
        **_skill_folders(skills, "skills/"),
        f"skills/{INDEX_NAME}/SKILL.md": _index_skill(skills),
    }


def _codex(skills: Sequence[Skill]) -> Pages:
    return {
        "AGENTS.md": f"# Triton kernels\n\n{_how_to_use('.agents/skills/NAME/SKILL.md')}\n\n{skill_index(skills)}\n",
        ".codex/config.toml": '[mcp_servers.klineage]\ncommand = "klineage"\nargs = ["mcp"]\n',
        **_skill_folders(skills, ".agents/skills/"),
    }


def _markdown(skills: Sequence[Skill]) -> Pages:
    pages = {f"{name}.md": skill_page(s) for name, s in _named(skills).items()}
    return {"INDEX.md": f"# Skills\n\n{_how_to_use('NAME.md')}\n\n{skill_index(skills)}\n", **pages}


def _json(skills: Sequence[Skill]) -> Pages:
    data = {"index": skill_index(skills).splitlines(), "skills": [s.model_dump(mode="json") for s in skills]}
    return {"skills.json": json.dumps(data, indent=2, ensure_ascii=False) + "\n"}


FORMATS: dict[str, Callable[[Sequence[Skill]], Pages]] = {
    "agent-skill": _agent_skills,
    "claude-plugin": _claude_plugin,
    "codex": _codex,
    "markdown": _markdown,
    "json": _json,
}


# --------------------------------------------------------------------------------------------------------- parts


def _named(skills: Sequence[Skill]) -> dict[str, Skill]:
    """Skills by the name of their folder. Raises KLineageError when two would share one."""
    named: dict[str, Skill] = {}
    for skill in skills:
        name = slug(skill.name)
        if name in named or name == INDEX_NAME:
            raise KLineageError(f"skills {skill.name} and {named[name].name if name in named else name} share a name")
        named[name] = skill
    return named


def _skill_folders(skills: Sequence[Skill], root: str) -> Pages:
    pages: Pages = {}
    for name, skill in _named(skills).items():
        use = f"Use when optimising a Triton kernel: {_when(skill)}." if _when(skill) else ""
        description = _cut(f"{skill.intent}. {use} {effect_text(skill)}.", DESCRIPTION_LENGTH)
        head = _front(name, description, {"move": skill.move, "status": str(skill.status), "id": skill.id})
        pages[f"{root}{name}/SKILL.md"] = _limited(f"{head}\n{skill_page(skill)}")
        pages[f"{root}{name}/skill.toml"] = skill_to_text(skill)
    return pages


def _index_skill(skills: Sequence[Skill]) -> str:
    description = (
        "Index of optimisations of Triton kernels learned from expert kernels. Use when a Triton kernel is to be made "
        "faster and you want to know which optimisations pay, and when."
    )
    return f"{_front(INDEX_NAME, description, {})}\n# Index\n\n{_how_to_use('NAME')}\n\n{skill_index(skills)}\n"


def _front(name: str, description: str, metadata: dict[str, str]) -> str:
    lines = ["---", f"name: {name}", f"description: {json.dumps(' '.join(description.split()), ensure_ascii=False)}"]
    if metadata:
        lines += ["metadata:", *(f"  {key}: {json.dumps(value)}" for key, value in metadata.items())]
    return "\n".join([*lines, "---"])


def _how_to_use(where: str) -> str:
    return (
        f"Expected speedups, best first; read {where} before you use one: it says when it is sound and where it did "
        "harm. Judge every candidate: `klineage gate TASK KERNEL.py`."
    )


def _summary(skill: Skill) -> str:
    reason = f" ({skill.status_reason})" if skill.status_reason else ""
    sources = ", ".join(skill.sources)
    return f"Effect: {effect_text(skill)}. Status: {skill.status}{reason}. Learned from: {sources}."


def _when(skill: Skill) -> str:
    return "; ".join(p.statement for p in skill.preconditions[:4])


def _condition(statement: str, precondition: object) -> str:
    standing = getattr(precondition, "standing", Standing.ASSUMED)
    if standing is Standing.PROVEN:
        return f"{statement} (proven: breaking it was rejected, verdict {getattr(precondition, 'counterexample', '')})"
    if standing is Standing.BOUNDED:
        return f"{statement} (bound found by a sweep of {len(getattr(precondition, 'sweep', ()))} contexts)"
    return f"{statement} (assumed)"


def _code(skill: Skill) -> str:
    """Before and after, from the move's own page."""
    if is_free(skill.move):
        return "## Code\n\nNo move of the vocabulary writes this optimisation; the intent above is all there is."
    document = inspect.getdoc(type(move(skill.move))) or ""
    block = re.search(r"```python\n.*?```", document, re.DOTALL)
    lines = block.group(0).splitlines() if block else []
    return "## Before --> after\n\n" + "\n".join(lines[:40] + (["```"] if len(lines) > 40 else [])) if lines else ""


def _check(skill: Skill) -> str:
    lines = [
        "## How to check",
        "",
        "- `klineage gate TASK KERNEL.py`: correctness on every shape, and the time with its terms.",
        f"- `klineage skills explain {skill.name}`: every condition, effect and verdict.",
    ]
    if not is_free(skill.move):
        lines.append("- `klineage optimize TASK --kernel KERNEL.py`: applied where it holds, kept where it pays.")
    return "\n".join(lines)


def _section(title: str, items: list[str], most: int) -> str:
    if not items:
        return f"## {title}\n\n- none known"
    shown = [f"- {_cut(item, 240)}" for item in items[:most]]
    if len(items) > most:
        shown.append(f"- and {len(items) - most} more")
    return f"## {title}\n\n" + "\n".join(shown)


def _cut(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 3].rstrip() + "..."


def _limited(text: str) -> str:
    lines = text.strip().splitlines()
    return "\n".join(lines if len(lines) <= MOST_LINES else [*lines[: MOST_LINES - 1], "..."]) + "\n"
