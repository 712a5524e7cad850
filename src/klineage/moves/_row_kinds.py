"""Kinds of values in a kernel over rows: scalars, one value per row, one per column, and whole tiles."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from ._lanes import REDUCTIONS
from ._lines import Line, call_argument, sections, splice, tl_name

SCALAR, ROW, COLUMN, TILE = "scalar", "row", "column", "tile"


def joined(*kinds: str) -> str:
    """The kind of an elementwise result."""
    known = {k for k in kinds if k != SCALAR}
    if not known:
        return SCALAR
    return known.pop() if len(known) == 1 else TILE


@dataclass(frozen=True)
class Shapes:
    """``rows``: the constexpr (or None) whose range runs over rows; every other ``tl.arange`` runs over columns."""

    rows: str | None = None

    def kind(self, node: ast.AST, names: Mapping[str, str]) -> str:
        """The kind of an expression."""
        if isinstance(node, ast.Name):
            return names.get(node.id, SCALAR)
        if isinstance(node, ast.Attribute) and node.attr in ("dtype", "element_ty", "shape"):
            return SCALAR
        if isinstance(node, ast.Call):
            found = self._call(node, names)
            if found is not None:
                return found
        return joined(
            *(self.kind(c, names) for c in ast.iter_child_nodes(node) if isinstance(c, ast.expr | ast.keyword))
        )

    def _call(self, call: ast.Call, names: Mapping[str, str]) -> str | None:
        name = tl_name(call)
        if name == "arange":
            size = call_argument(call, "end", 1)
            rows = isinstance(size, ast.Name) and size.id == self.rows
            return ROW if rows else COLUMN
        if name in ("zeros", "full") and call.args:
            shape = call.args[0]
            sizes = [ast.unparse(e) for e in shape.elts] if isinstance(shape, ast.Tuple | ast.List) else []
            if len(sizes) == 2:
                return TILE
            return ROW if sizes == [self.rows] else COLUMN if sizes else None
        if name in REDUCTIONS and call.args:
            return {TILE: ROW, COLUMN: SCALAR}.get(self.kind(call.args[0], names), SCALAR)
        return None

    def after(self, line: Line, names: dict[str, str]) -> dict[str, str]:
        """Kinds of names after a statement (loops to a fixed point)."""
        if line.compound:
            current = dict(names)
            for _ in range(4):
                before = dict(current)
                for section in sections(line):
                    for inner in section.lines:
                        new = self.after(inner, current)
                        current = {n: joined(new.get(n, SCALAR), before.get(n, SCALAR)) for n in {*new, *before}}
                if current == before:
                    break
            return current
        value = line.value
        if value is None or not line.writes:
            return names
        kind = self.kind(value, names)
        if isinstance(line.tree, ast.AugAssign) and line.target is not None:
            kind = joined(kind, names.get(line.target, SCALAR))
        return {**names, **dict.fromkeys(line.writes, kind)}


def rebuilt(line: Line, node: ast.AST, parts: Mapping[ast.AST, str]) -> str:
    """Text of a node with some nodes below it replaced (they must not nest)."""
    whole = line.text
    start = whole.encode()
    inner = splice(whole, list(parts.items())).encode()
    if isinstance(node, ast.stmt):
        return inner.decode()
    head = len(splice(whole, [(node, "")]).encode())
    begin = _start(whole, node)
    tail = head - begin
    return inner[begin : len(inner) - tail].decode() if start else ""


def _start(text: str, node: ast.AST) -> int:
    row, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    rows = text.encode().split(b"\n")
    return sum(len(r) + 1 for r in rows[: row - 1]) + column


def axis_of(call: ast.Call) -> ast.expr | None:
    """The axis argument of a reduction."""
    return call_argument(call, "axis", 1)


def column_subscript(node: ast.AST) -> str | None:
    """ROW for ``x[:, None]``, COLUMN for ``x[None, :]``, else None."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Tuple) or len(node.slice.elts) != 2:
        return None
    first, second = node.slice.elts
    if isinstance(first, ast.Slice) and isinstance(second, ast.Constant) and second.value is None:
        return ROW
    if isinstance(second, ast.Slice) and isinstance(first, ast.Constant) and first.value is None:
        return COLUMN
    return None
