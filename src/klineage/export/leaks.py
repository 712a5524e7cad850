"""Keeping held-out operators out of training data."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import lru_cache

from ..model import Skill, content_hash
from ..surface.pyast import parse_ast


@lru_cache(maxsize=4096)
def fingerprints(source: str) -> frozenset[str]:
    """Fingerprints of a module's compiled kernels, whatever names they use for anything."""
    try:
        tree = parse_ast(source)
    except SyntaxError:
        return frozenset()
    jitted = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(d) for d in node.decorator_list)
    ]
    return frozenset(content_hash(_nameless(node)) for node in jitted)


def without_held_out(skills: Sequence[Skill], held_out: Sequence[str]) -> list[Skill]:
    """Skills that no held-out task taught, without what was learned of them on held-out tasks."""
    out = set(held_out)
    kept: list[Skill] = []
    for skill in skills:
        if out & set(skill.sources):
            continue  # its carriers and conditions cannot be told apart by source
        clean = {
            "effects": tuple(e for e in skill.effects if not _names(e.context, out)),
            "negative": tuple(e for e in skill.negative if not _names(e.context, out)),
            "risks": tuple(r for r in skill.risks if not _names(r.case, out)),
            "scope": tuple(s for s in skill.scope if not _names(s, out)),
        }
        kept.append(skill.model_copy(update=clean))
    return kept


def _names(context: str, held_out: set[str]) -> bool:
    """Whether a context ("sm_90/task/case") is one of a held-out task."""
    return bool(held_out & set(context.split("/")))


def _nameless(function: ast.FunctionDef) -> str:
    """The function's body with its own names numbered in order of appearance, annotations and docstrings dropped."""
    copy = parse_ast(ast.unparse(function)).body[0]
    names: dict[str, str] = {}
    own = {n.id for n in ast.walk(copy) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    own |= {a.arg for a in ast.walk(copy) if isinstance(a, ast.arg)}
    for node in ast.walk(copy):
        if isinstance(node, ast.Name) and node.id in own:
            node.id = names.setdefault(node.id, f"v{len(names)}")
        elif isinstance(node, ast.arg):
            node.arg = names.setdefault(node.arg, f"v{len(names)}")
            node.annotation = None
    body = getattr(copy, "body", [])
    statements = [s for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    return "\n".join(ast.dump(s) for s in statements)
