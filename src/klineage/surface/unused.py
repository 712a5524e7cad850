"""Assignments nobody reads, and module-level definitions the entry does not reach."""

from __future__ import annotations

import ast

from .names import global_names
from .package import statement_keys
from .program import Program
from .prune import removal
from .purity import pure
from .pytext import SCOPES, Edit

_ASSIGNMENTS = ast.Assign | ast.AnnAssign | ast.AugAssign


def dead_assignments(program: Program) -> list[Edit]:
    """Remove assignments without effect to names that are never read (reads by such assignments do not count)."""
    edits: list[Edit] = []
    for name, function in program.functions.items():
        kernel = name in program.kernels
        removable: dict[int, ast.stmt] = {
            id(s): s
            for s in ast.walk(function)
            if isinstance(s, _ASSIGNMENTS) and _targets(s) and s.value and pure(s.value, program, kernel)
        }
        dead = _dead_names(function, removable)
        for owner in ast.walk(function):
            for field in ("body", "orelse", "finalbody"):
                block = getattr(owner, field, None)
                if not isinstance(block, list) or not block or not isinstance(block[0], ast.stmt):
                    continue
                gone = [s for s in block if id(s) in removable and _targets(s) <= dead]
                over = [s for s in block if s not in gone and id(s) in removable and _overwritten(s, block, function)]
                edits += _block(program, block, [s for s in block if s in gone or s in over])
    return edits


def _overwritten(statement: ast.stmt, block: list[ast.stmt], function: ast.FunctionDef) -> bool:
    """True when a name is assigned again, later in the same block, before anything can read it."""
    names = _targets(statement)
    if len(names) != 1 or isinstance(statement, ast.AugAssign):
        return False
    (name,) = names
    inner = [n for n in ast.walk(function) if isinstance(n, SCOPES) and n is not function]
    if any(isinstance(n, ast.Try) for n in ast.walk(function)) or any(_reads(n, name) for n in inner):
        return False
    for later in block[block.index(statement) + 1 :]:
        if _reads(later, name) or any(isinstance(n, ast.Break | ast.Continue) for n in ast.walk(later)):
            return False
        if isinstance(later, ast.Assign) and any(name in _names(t) for t in later.targets):
            return True
    return False


def _reads(node: ast.AST, name: str) -> bool:
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and part.id == name and not isinstance(part.ctx, ast.Store):
            return True
        if isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name) and part.target.id == name:
            return True
    return False


def _names(target: ast.expr) -> set[str]:
    parts = target.elts if isinstance(target, ast.Tuple) else [target]
    return {p.id for p in parts if isinstance(p, ast.Name)}


def _block(program: Program, block: list[ast.stmt], gone: list[ast.stmt]) -> list[Edit]:
    if gone and len(gone) == len(block):
        return [removal(program.text, gone[0], block, gone)]
    return [removal(program.text, s, block, [s]) for s in gone]


def _targets(statement: ast.stmt) -> set[str]:
    """Names a statement assigns, empty when it assigns anything else."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]  # type: ignore[attr-defined]
    names: set[str] = set()
    for target in targets:
        for part in target.elts if isinstance(target, ast.Tuple) else [target]:
            if not isinstance(part, ast.Name):
                return set()
            names.add(part.id)
    return names


def _dead_names(function: ast.FunctionDef, removable: dict[int, ast.stmt]) -> set[str]:
    """Names read only by removable assignments of dead names: the largest such set."""
    assigned = {n for s in removable.values() for n in _targets(s)}
    shared = {n for g in ast.walk(function) if isinstance(g, ast.Global | ast.Nonlocal) for n in g.names}
    readers: dict[str, list[set[str] | None]] = {}
    _read(function, None, removable, readers)
    dead = assigned - shared
    while True:
        alive = {name for name in dead if any(into is None or not into <= dead for into in readers.get(name, []))}
        if not alive:
            return dead
        dead -= alive


def _read(
    node: ast.AST, into: set[str] | None, removable: dict[int, ast.stmt], readers: dict[str, list[set[str] | None]]
) -> None:
    if id(node) in removable:
        into = _targets(removable[id(node)])
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
        readers.setdefault(node.id, []).append(into)
    if isinstance(node, ast.AugAssign) and id(node) not in removable and isinstance(node.target, ast.Name):
        readers.setdefault(node.target.id, []).append(None)
    for child in ast.iter_child_nodes(node):
        _read(child, into, removable, readers)


def unreachable(program: Program) -> list[Edit]:
    """Remove module-level statements whose names the entry does not need, and imports that are not used."""
    body = program.text.tree.body
    needed = _needed(program)
    edits: list[Edit] = []
    for statement in body:
        keys = statement_keys(statement)
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            continue
        if isinstance(statement, ast.Import | ast.ImportFrom):
            edits += _import(program, statement, needed)
        elif keys and not keys & needed and _definition(statement):
            edits.append(_whole(program, statement))
    return edits


def _definition(statement: ast.stmt) -> bool:
    return isinstance(
        statement, ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign | ast.AugAssign | ast.If | ast.Try
    )


def _needed(program: Program) -> set[str]:
    """Names (and dotted names, for submodule imports) that the entry and bare statements reach."""
    body = program.text.tree.body
    needed = {program.entry}
    todo = [s for s in body if not statement_keys(s) and not isinstance(s, ast.Import | ast.ImportFrom)]
    done: set[int] = set()
    while True:
        todo += [s for s in body if id(s) not in done and statement_keys(s) & needed]
        todo = [s for s in todo if id(s) not in done and not isinstance(s, ast.Import | ast.ImportFrom)]
        if not todo:
            return needed
        for statement in todo:
            done.add(id(statement))
            needed |= {n.id for n in global_names(statement)}
        todo = []


def _import(program: Program, statement: ast.Import | ast.ImportFrom, needed: set[str]) -> list[Edit]:
    kept = [a for a in statement.names if a.name == "*" or (a.asname or a.name.split(".")[0]) in needed]
    if len(kept) == len(statement.names):
        return []
    if not kept:
        return [_whole(program, statement)]
    names = ", ".join(ast.unparse(a) for a in kept)
    if isinstance(statement, ast.Import):
        return [Edit(*program.text.span(statement), f"import {names}")]
    return [Edit(*program.text.span(statement), f"from {'.' * statement.level}{statement.module or ''} import {names}")]


def _whole(program: Program, statement: ast.stmt) -> Edit:
    """A module-level statement with its comments and the smaller of the gaps around it. The file's header stays."""
    text = program.text
    last = after = statement.end_lineno or statement.lineno
    first = text.comment_above(statement)
    if first == 1:
        first = text.first_line(statement)
    before = first
    while after < text.line_count and not text.line_text(after + 1).strip():
        after += 1
    while before > 1 and not text.line_text(before - 1).strip():
        before -= 1
    if after - last > first - before:
        return Edit(text.at(before), text.at(last + 1), "")
    return Edit(text.at(first), text.at(after + 1), "")
