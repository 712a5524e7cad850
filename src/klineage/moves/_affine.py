"""Tile addresses taken apart: base + rows * stride + columns * stride, with the bounds that masks give."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ._lines import Line, atom, call_argument, sections, tl_name
from ._masks import Kernel, terms
from ._row_kinds import COLUMN, ROW, column_subscript


@dataclass(frozen=True)
class Axis:
    """One dimension of a tile: ``block`` indices from ``start`` on, below ``length``, ``stride`` elements apart."""

    start: str
    block: str
    length: str
    stride: str


@dataclass(frozen=True)
class Tile:
    """A two-dimensional access. ``axes`` are rows, then columns."""

    base: str
    root: str  # the pointer parameter
    axes: tuple[Axis, Axis]

    @property
    def turned(self) -> bool:
        """The rows are the contiguous dimension."""
        return self.axes[0].stride == "1" and self.axes[1].stride != "1"


@dataclass(frozen=True)
class Walk:
    """A pointer that a loop advances: ``name += step`` once a round; ``count`` is the number of the round."""

    name: str
    step: ast.expr
    count: str


def walks(lines: Sequence[Line]) -> dict[str, Walk]:
    """Pointers advanced by loops whose counter runs from 0 (by the tile, or by one)."""
    found: dict[str, Walk] = {}
    for line in lines:
        tree = line.tree
        if (
            not isinstance(tree, ast.For)
            or not isinstance(tree.target, ast.Name)
            or not isinstance(tree.iter, ast.Call)
        ):
            continue
        args = tree.iter.args
        counter = tree.target.id
        count = f"{counter} // {atom(ast.unparse(args[2]))}" if len(args) == 3 else counter
        for inner in sections(line)[0].lines:
            if (
                isinstance(inner.tree, ast.AugAssign)
                and isinstance(inner.tree.op, ast.Add)
                and inner.target is not None
            ):
                found[inner.target] = Walk(inner.target, inner.tree.value, count)
    return found


def tile_of(call: ast.Call, facts: Kernel, moved: Mapping[str, Walk], params: Sequence[str]) -> Tile | None:
    """The tile that a load or store reads or writes; None when the address is not plain."""
    position = 2 if tl_name(call) == "store" else 1
    bases: list[ast.expr] = []
    parts: dict[str, tuple[ast.expr, str]] = {}
    steps: list[Walk] = []
    if not _take_apart(call.args[0], facts, moved, bases, parts, steps) or set(parts) != {ROW, COLUMN} or not bases:
        return None
    root = next((b.id for b in bases if isinstance(b, ast.Name) and b.id in params), None)
    if root is None:
        return None
    ordered = [b for b in bases if isinstance(b, ast.Name) and b.id == root] + [
        b for b in bases if not (isinstance(b, ast.Name) and b.id == root)
    ]
    mask = call_argument(call, "mask", position)
    bounds = terms(mask, facts) if mask is not None else []
    axes: list[Axis] = []
    for mark in (ROW, COLUMN):
        index, stride = parts[mark]
        axis = _axis(index, stride, mark, bounds, steps, facts)
        if axis is None:
            return None
        axes.append(axis)
    return Tile(" + ".join(ast.unparse(b) for b in ordered), root, (axes[0], axes[1]))


def _take_apart(
    node: ast.expr,
    facts: Kernel,
    moved: Mapping[str, Walk],
    bases: list[ast.expr],
    parts: dict[str, tuple[ast.expr, str]],
    steps: list[Walk],
) -> bool:
    """Sort the summands of an address into scalars and the two dimensions; False when one fits nowhere."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        sides = (node.left, node.right)
        return all(_take_apart(s, facts, moved, bases, parts, steps) for s in sides)
    if isinstance(node, ast.Name) and node.id in moved:
        steps.append(moved[node.id])
        value = facts.starts.get(node.id)
        return value is not None and _take_apart(value, facts, {}, bases, parts, steps)
    if isinstance(node, ast.Name) and node.id in facts.values and _has_range(facts.values[node.id], facts):
        return _take_apart(facts.values[node.id], facts, moved, bases, parts, steps)
    mark, index, stride = _dimension(node, facts)
    if mark is not None and index is not None:
        if mark in parts:
            return False
        parts[mark] = (index, stride)
        return True
    if _has_range(node, facts):
        return False
    bases.append(node)
    return True


def _has_range(node: ast.AST, facts: Kernel) -> bool:
    for n in ast.walk(node):
        if tl_name(n) == "arange":
            return True
        if isinstance(n, ast.Name) and n.id in facts.values and _has_range(facts.values[n.id], facts):
            return True
    return False


def _dimension(node: ast.expr, facts: Kernel) -> tuple[str | None, ast.expr | None, str]:
    """(ROW or COLUMN, index vector, stride) of ``x[:, None] * stride`` and the like."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for vector, stride in ((node.left, node.right), (node.right, node.left)):
            mark = column_subscript(vector)
            if mark is not None and isinstance(vector, ast.Subscript):
                return mark, vector.value, ast.unparse(stride)
    mark = column_subscript(node)
    if mark is not None and isinstance(node, ast.Subscript):
        inner = node.value
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mult):  # (x * stride)[:, None]
            for vector, stride in ((inner.left, inner.right), (inner.right, inner.left)):
                if _has_range(vector, facts) and not _has_range(stride, facts):
                    return mark, vector, ast.unparse(stride)
        return mark, inner, "1"
    return None, None, ""


def _axis(
    index: ast.expr, stride: str, mark: str, bounds: Sequence[ast.expr], steps: Sequence[Walk], facts: Kernel
) -> Axis | None:
    plain, length = _unwrapped(index, facts)
    found = _start(plain, facts)
    if found is None:
        return None
    start, block = found
    for step in steps:
        if ast.unparse(step.step) in _advances(block, stride):
            offset = _times(step.count, block)
            start = offset if start == "0" else f"{start} + {offset}"
    length = length or _bound(index, mark, bounds, facts)
    return None if length is None else Axis(start, block, length, stride)


def _times(count: str, block: str) -> str:
    return count.removesuffix(f" // {block}") if count.endswith(f" // {block}") else f"{count} * {block}"


def _advances(block: str, stride: str) -> set[str]:
    if stride == "1":
        return {block}
    return {f"{block} * {stride}", f"{stride} * {block}"}


def _unwrapped(node: ast.expr, facts: Kernel) -> tuple[ast.expr, str | None]:
    """``x % n`` keeps indices below n by wrapping: (x, "n")."""
    if isinstance(node, ast.Name) and node.id in facts.values:
        return _unwrapped(facts.values[node.id], facts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return node.left, ast.unparse(node.right)
    return node, None


def _start(node: ast.expr, facts: Kernel) -> tuple[str, str] | None:
    """(start, block) of ``start + tl.arange(0, block)``."""
    summands = _summands(node, facts)
    ranges = [s for s in summands if tl_name(s) == "arange" and isinstance(s, ast.Call)]
    if len(ranges) != 1:
        return None
    block = call_argument(ranges[0], "end", 1)
    rest = [s for s in summands if s is not ranges[0]]
    if block is None or any(_has_range(s, facts) for s in rest):
        return None
    return " + ".join(ast.unparse(s) for s in rest) or "0", ast.unparse(block)


def _summands(node: ast.expr, facts: Kernel) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_summands(node.left, facts), *_summands(node.right, facts)]
    if isinstance(node, ast.Name) and node.id in facts.values and _has_range(facts.values[node.id], facts):
        return _summands(facts.values[node.id], facts)
    if isinstance(node, ast.Call) and tl_name(node) in ("multiple_of", "max_contiguous"):
        return _summands(node.args[0], facts)
    return [node]


def _bound(index: ast.expr, mark: str, bounds: Sequence[ast.expr], facts: Kernel) -> str | None:
    """The length that a mask gives to an index vector."""
    wanted = _ranges(index, facts)
    for term in bounds:
        if not isinstance(term, ast.Compare) or len(term.ops) != 1 or not isinstance(term.ops[0], ast.Lt):
            continue
        left = term.left
        if column_subscript(left) != mark or not isinstance(left, ast.Subscript):
            continue
        if _ranges(left.value, facts) == wanted:
            right = term.comparators[0]
            minus = isinstance(right, ast.BinOp) and isinstance(right.op, ast.Sub)  # offs < K - k * BLOCK
            return ast.unparse(right.left) if minus and isinstance(right, ast.BinOp) else ast.unparse(right)
    return None


def _ranges(node: ast.expr, facts: Kernel) -> set[str]:
    return {ast.unparse(s) for s in _summands(_unwrapped(node, facts)[0], facts) if tl_name(s) == "arange"}
