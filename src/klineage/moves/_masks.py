"""Masks as conjunctions of bounds, each bound with the dimension it belongs to."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..surface.pyast import parse_ast
from ._lines import Line, call_argument, names_loaded, rewrite, tl_name, walk_lines


@dataclass(frozen=True)
class Dimension:
    """A bound ``index < length`` where the index runs over whole tiles of ``block`` from a multiple of it."""

    length: str
    block: str

    @property
    def flag(self) -> str:
        """Name of the constexpr that says the length is a multiple of the block."""
        letters = "".join(c if c.isalnum() else "_" for c in self.length).strip("_").upper()
        return f"EVEN_{letters or 'N'}"


@dataclass(frozen=True)
class Kernel:
    """What masks are read against: definitions made once, loop counters with their steps, constexprs.

    ``starts``: the first value of names that are only added to afterwards.
    """

    values: Mapping[str, ast.expr]
    steps: Mapping[str, str]
    constexprs: frozenset[str]
    starts: Mapping[str, ast.expr]


def kernel_facts(lines: Sequence[Line], constexprs: frozenset[str]) -> Kernel:
    """Definitions and loop counters of a body, inner blocks included."""
    values: dict[str, ast.expr] = {}
    again: set[str] = set()
    steps: dict[str, str] = {}
    starts: dict[str, ast.expr] = {}
    plain: dict[str, int] = {}
    for line in walk_lines(lines):
        if isinstance(line.tree, ast.For) and isinstance(line.tree.target, ast.Name):
            step = _step(line.tree.iter)
            if step is not None:
                steps[line.tree.target.id] = step
        if line.compound:
            continue
        target, value = line.target, line.value
        if target is not None and value is not None and not isinstance(line.tree, ast.AugAssign):
            starts.setdefault(target, value)
            plain[target] = plain.get(target, 0) + 1
        for name in line.writes:
            if name in values and target is not None and value is not None and same(values[name], value):
                continue  # the same definition in another block
            if name in values or name in again or name != target or isinstance(line.tree, ast.AugAssign):
                again.add(name)
            elif value is not None:
                values[name] = value
    order = {n: i for i, n in enumerate(values)}
    once: dict[str, ast.expr] = {}
    for name, value in values.items():  # what reads itself or a later name goes round in a circle
        if name not in again and all(order.get(n, -1) < order[name] for n in names_loaded(value)):
            once[name] = value
    return Kernel(once, steps, constexprs, {n: v for n, v in starts.items() if plain[n] == 1})


def same(left: ast.AST, right: ast.AST) -> bool:
    """Equal code."""
    return ast.dump(left) == ast.dump(right)


def _step(node: ast.expr) -> str | None:
    """The step of ``range(0, n, step)``; "1" for a counted range from 0; None otherwise."""
    if not isinstance(node, ast.Call) or tl_name(node) not in ("range", "static_range"):
        return None
    args = node.args
    zero = len(args) < 2 or (isinstance(args[0], ast.Constant) and args[0].value == 0)
    if not zero:
        return None
    return ast.unparse(args[2]) if len(args) == 3 else "1"


def terms(node: ast.expr, facts: Kernel) -> list[ast.expr]:
    """The bounds that a mask is the conjunction of (names of masks looked through)."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
        return [*terms(node.left, facts), *terms(node.right, facts)]
    if isinstance(node, ast.Name) and node.id in facts.values:
        return terms(facts.values[node.id], facts)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in facts.values:
        inner = terms(facts.values[node.value.id], facts)
        return [ast.Subscript(t, node.slice, ast.Load()) for t in inner]
    return [node]


def dimension(term: ast.expr, facts: Kernel) -> Dimension | None:
    """The dimension of a bound, None when it is no ``index < length`` over whole tiles."""
    if isinstance(term, ast.Subscript):
        return dimension(term.value, facts)
    if not isinstance(term, ast.Compare) or len(term.ops) != 1 or not isinstance(term.ops[0], ast.Lt):
        return None
    left, right = term.left, term.comparators[0]
    summands = [*_summands(left, facts)]
    if isinstance(right, ast.BinOp) and isinstance(right.op, ast.Sub):  # offs < n - start
        summands += _summands(right.right, facts)
        right = right.left
    ranges = [s for s in summands if tl_name(s) == "arange"]
    if len(ranges) != 1 or not isinstance(ranges[0], ast.Call):
        return None
    block = call_argument(ranges[0], "end", 1)
    if not isinstance(block, ast.Name) or block.id not in facts.constexprs:
        return None
    rest = [s for s in summands if s is not ranges[0]]
    if not all(_multiple(s, block.id, facts) for s in rest):
        return None
    return Dimension(ast.unparse(right), block.id)


def _summands(node: ast.expr, facts: Kernel) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_summands(node.left, facts), *_summands(node.right, facts)]
    if isinstance(node, ast.Subscript):
        return _summands(node.value, facts)
    if isinstance(node, ast.Name) and node.id in facts.values:
        return _summands(facts.values[node.id], facts)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "to":
        return _summands(node.func.value, facts)
    if tl_name(node) in ("multiple_of", "max_contiguous") and isinstance(node, ast.Call):
        return _summands(node.args[0], facts)
    return [node]


def _multiple(node: ast.expr, block: str, facts: Kernel) -> bool:
    """The value is surely a multiple of the block."""
    if isinstance(node, ast.Name):
        return node.id == block or facts.steps.get(node.id) == block
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _multiple(node.left, block, facts) or _multiple(node.right, block, facts)
    return isinstance(node, ast.Constant) and node.value == 0


# ---------------------------------------------------------------------------------------------- accesses
def masked_calls(line: Line) -> list[ast.Call]:
    """Loads and stores of a statement that carry a mask."""
    found: list[ast.Call] = []
    for node in ast.walk(line.tree):
        if isinstance(node, ast.Call) and tl_name(node) in ("load", "store") and _mask_of(node) is not None:
            found.append(node)
    return found


def _mask_of(call: ast.Call) -> ast.expr | None:
    return call_argument(call, "mask", 2 if tl_name(call) == "store" else 1)


def dimensions(line: Line, facts: Kernel) -> list[Dimension]:
    """Dimensions that the masks of a statement bound."""
    found: list[Dimension] = []
    for call in masked_calls(line):
        mask = _mask_of(call)
        for term in terms(mask, facts) if mask is not None else ():
            known = dimension(term, facts)
            if known is not None and known not in found:
                found.append(known)
    return found


def without(line: Line, dropped: Iterable[Dimension], facts: Kernel) -> Line:
    """The statement with its masks free of some dimensions."""
    gone = set(dropped)

    def change(node: ast.AST, at: Line) -> str | None:
        mask = _mask_of(node) if isinstance(node, ast.Call) and tl_name(node) in ("load", "store") else None
        if mask is None or not isinstance(node, ast.Call):
            return None
        every = terms(mask, facts)
        kept = [t for t in every if dimension(t, facts) not in gone]
        if len(kept) == len(every):
            return None
        text = " & ".join(_bracketed(t) for t in kept) if len(kept) > 1 else "".join(ast.unparse(t) for t in kept)
        return _with_mask(at, node, text)

    return rewrite(line, change)


def _bracketed(node: ast.expr) -> str:
    text = ast.unparse(node)
    return f"({text})" if isinstance(node, ast.Compare | ast.BinOp | ast.BoolOp) else text


def _with_mask(line: Line, call: ast.Call, mask: str) -> str:
    """The call's text with another mask; "" removes it, and the value of masked-off lanes with it."""
    position = 2 if tl_name(call) == "store" else 1
    parts: list[str] = []
    for index, arg in enumerate(call.args):
        if index == position and mask:
            parts.append(f"mask={mask}")
        elif index < position:
            parts.append(line.segment(arg))
        elif index > position and mask:
            parts.append(f"other={line.segment(arg)}")
    for keyword in call.keywords:
        if keyword.arg == "mask":
            parts += [f"mask={mask}"] if mask else []
        elif keyword.arg != "other" or mask:
            parts.append(f"{keyword.arg}={line.segment(keyword.value)}")
    return f"{line.segment(call.func)}({', '.join(parts)})"


def bare(line: Line) -> str:
    """The statement without masks and fill values, for comparison."""

    def change(node: ast.AST, at: Line) -> str | None:
        masked = isinstance(node, ast.Call) and tl_name(node) in ("load", "store") and _mask_of(node) is not None
        return _with_mask(at, node, "") if masked and isinstance(node, ast.Call) else None

    return ast.unparse(parse_ast(rewrite(line, change).text))


def mask_weight(line: Line, facts: Kernel) -> int:
    """How many bounds the masks of a statement have."""
    masks = [m for c in masked_calls(line) if (m := _mask_of(c)) is not None]
    return sum(len(terms(m, facts)) for m in masks)
