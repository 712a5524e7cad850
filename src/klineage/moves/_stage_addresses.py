"""Addresses of lifted stages: where they come from, and whether they follow the elements of a contiguous tensor."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence

from ._elementwise import bound_in, name_of
from ._flow import canonical
from ._host_values import Shape
from ._products import strip_casts
from ._spaces import COL, FLAT, ROW
from ._stages import Stage


def row_major(address: ast.expr, bases: Sequence[str], passed: Mapping[str, str], shape: Shape) -> bool:
    """Whether an address is a base plus the element's position in a contiguous tensor of the shape."""
    left = {ROW: canonical(shape[1]), COL: "1"}
    seen_base = False
    for term in summands(address):
        parts = [strip_casts(f) for f in factors(strip_casts(term))]
        symbol = next((name_of(f) for f in parts if name_of(f) in (ROW, COL, FLAT)), "")
        rest = [f for f in parts if name_of(f) != symbol]
        if not symbol and name_of(term) in bases and not seen_base:
            seen_base = True
        elif symbol == FLAT and not rest and len(left) == 2:
            left = {}
        elif symbol in left and len(rest) <= 1:
            step = "1" if not rest else passed.get(name_of(rest[0]), ast.unparse(rest[0]))
            if step != left.pop(symbol):
                return False
        else:
            return False
    return seen_base and not left


def summands(node: ast.expr) -> list[ast.expr]:
    """The terms of a sum, casts left out."""
    node = strip_casts(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*summands(node.left), *summands(node.right)]
    return [node]


def opened(stage: Stage, node: ast.expr) -> ast.expr:
    """An expression with the stage's names that are bound once opened."""
    values: dict[str, list[ast.expr]] = {}
    for statement in stage.statements:
        for n in ast.walk(statement):
            if isinstance(n, ast.Assign):
                values.setdefault(name_of(n.targets[0]), []).append(n.value)
            elif isinstance(n, ast.AugAssign):
                values.setdefault(name_of(n.target), []).extend([n.value, n.value])

    class Open(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            found = values.get(node.id, [])
            return opened(stage, found[0]) if len(found) == 1 and node.id not in names_in(found[0]) else node

    found = Open().visit(copy.deepcopy(node))
    assert isinstance(found, ast.expr)
    return found


def reaches(stage: Stage, load: ast.Call, pointers: set[str]) -> bool:
    """Whether a load's address may come from one of the pointers."""
    tainted: set[str] = set(pointers)
    bindings = [n for s in stage.statements for n in ast.walk(s) if isinstance(n, ast.Assign | ast.AugAssign)]
    for _ in bindings:
        tainted |= {t for n in bindings if names_in(n.value) & tainted for t in bound_in([n])}
    return bool(names_in(load.args[0]) & tainted)


def names_in(node: ast.AST) -> set[str]:
    """All names below a node."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def factors(node: ast.expr) -> list[ast.expr]:
    """The factors of a product."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*factors(node.left), *factors(node.right)]
    return [node]
