"""One-pass row code cut into loops over tiles: one loop per level of reductions, and one for the stores."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..surface import Module
from ..surface.pyast import parse_ast
from ._lanes import accesses, has_effect, is_lane, lane_names, mixes_lanes, reduction_calls
from ._lines import (
    Line,
    Section,
    assemble,
    call_argument,
    calls_of,
    indent,
    join,
    names_loaded,
    sections,
    splice,
    tl_name,
    walk_lines,
)
from ._tile_prepare import CannotTileError, Row, resolve_dtypes, row_lanes, separate_names, split_reductions
from ._values import pinned_names

_START = {"sum": "0.0", "max": 'float("-inf")', "min": 'float("inf")'}


@dataclass
class _Item:
    """A statement with its part in the plan."""

    line: Line
    kind: str  # "scalar", "lane", "reduce", "store", "nested"
    uses: list[int] = field(default_factory=list[int])  # items whose values it reads
    level: int = 0  # lane: loops that must come before; scalar: loops that must be finished
    operation: str = ""  # of a reduction


def tile_row(module: Module, lines: Sequence[Line], row: Row) -> list[Line]:
    """The statements of a one-pass row kernel as loops over tiles.

    Raises CannotTileError when the code mixes lanes, or reads again what it has overwritten.
    """
    lines = list(lines)
    taken = {n for line in walk_lines(lines) for n in (*line.reads, *line.writes)}
    return _tile(module, lines, row, outer=[], taken=taken)


def _tile(module: Module, lines: list[Line], row: Row, outer: list[Line], taken: set[str]) -> list[Line]:
    lines = resolve_dtypes(lines, row, outer)
    lines = split_reductions(lines, row, outer, taken)
    lines = separate_names(lines, row, outer, taken)
    items = _classify(module, lines, row, outer)
    _set_levels(items, row)
    return _emit(module, items, row, outer, taken)


# ---------------------------------------------------------------------------------------------- plan
def _classify(module: Module, lines: Sequence[Line], row: Row, outer: Sequence[Line]) -> list[_Item]:
    lanes = row_lanes(lines, row, outer)
    items: list[_Item] = []
    last: dict[str, int] = {}
    for index, line in enumerate(lines):
        item = _Item(line, _kind(module, line, lanes, row))
        if item.kind == "reduce" and isinstance(line.value, ast.Call):
            item.operation = tl_name(line.value)
            if item.operation not in _START:
                raise CannotTileError(
                    f"the reduction {item.operation or ast.unparse(line.value.func)} has no running form here"
                )
        item.uses = sorted({last[n] for n in line.reads if n in last})
        if item.kind == "scalar" and any(items[u].kind == "lane" for u in item.uses):
            raise CannotTileError(f"{', '.join(sorted(line.writes))} needs the whole row outside a loop")
        items.append(item)
        for name in line.writes:
            last[name] = index
    return items


def _kind(module: Module, line: Line, lanes: set[str], row: Row) -> str:
    if line.compound:
        inside = any(is_lane(n, lanes, row.block) for n in ast.walk(line.tree) if isinstance(n, ast.expr))
        if not inside:
            return "scalar"
        header = line.tree.test if isinstance(line.tree, ast.If) else None
        if header is not None and is_lane(header, lanes, row.block):
            raise CannotTileError("a branch depends on lanes")
        return "nested"
    mixed = mixes_lanes(module, line.tree, lanes, row.block)
    if mixed is not None:
        raise CannotTileError(f"{mixed} mixes the row's lanes")
    if any(isinstance(n, ast.Subscript) and is_lane(n.value, lanes, row.block) for n in ast.walk(line.tree)):
        raise CannotTileError("the tile has two dimensions")
    value = line.value
    if value is None:
        return "scalar"
    if isinstance(value, ast.Attribute) and value.attr == "dtype" and is_lane(value.value, lanes, row.block):
        return "lane"
    if reduction_calls(value, lanes, row.block):
        return "reduce"
    if isinstance(line.tree, ast.Expr) or has_effect(line):
        return "store" if is_lane(value, lanes, row.block) else "scalar"
    lane = is_lane(value, lanes, row.block) or bool(line.writes & lanes and isinstance(line.tree, ast.AugAssign))
    if not lane and line.reads & lanes:
        raise CannotTileError(f"{', '.join(sorted(line.writes))} needs the whole row outside a loop")
    return "lane" if lane else "scalar"


def _set_levels(items: list[_Item], row: Row) -> None:
    """Level of a lane or reduction: the loop it can first stand in. Of a scalar: the loops that come before it."""
    last_effect = 0
    seen: dict[str, int] = {}
    for item in items:
        levels = [items[u].level + (1 if items[u].kind == "reduce" else 0) for u in item.uses]
        level = max(levels, default=0)
        if item.kind in ("scalar", "nested"):
            ordered = has_effect(item.line) or bool(calls_of(item.line.tree, "load"))
            level = max([level, last_effect if ordered else 0, *(seen.get(n, 0) for n in item.line.writes)])
            if has_effect(item.line) or item.kind == "nested":
                last_effect = level
            for name in item.line.writes:
                seen[name] = level
        item.level = level
    if any(items[u].level for i in items for u in i.uses if i.line.writes & names_loaded(parse_ast(row.length))):
        raise CannotTileError("the row's length comes from a reduction")
    _place_effects(items)


def _place_effects(items: list[_Item]) -> None:
    """All stores of lanes go in the last loop that needs one; what follows them follows that loop."""
    stores = [i for i in items if i.kind == "store"]
    if not stores:
        return
    final = max(i.level for i in stores)
    for item in stores:
        item.level = final
    after = items.index(stores[0])
    known = _values(items)
    stored: set[str] = set()
    for index, item in enumerate(items):
        if item.kind == "store":
            stored |= accesses(item.line, known)[1]
        elif index > after and item.kind in ("scalar", "nested") and _ordered(item):
            item.level = max(item.level, final + 1)
        elif item.kind == "reduce" and item.level > final and _loads(items, index, known) & stored:
            raise CannotTileError("a later pass would read what this one has overwritten")
    for index, item in enumerate(items):
        late = index > after and item.kind == "lane"
        before = {r for i in items[:index] if i.kind == "store" for r in accesses(i.line, known)[1]}
        if late and accesses(item.line, known)[0] & before and any(i.kind == "reduce" for i in items[index:]):
            raise CannotTileError("the row is read back after it was stored")


def _values(items: list[_Item]) -> dict[str, ast.expr]:
    known: dict[str, ast.expr] = {}
    for item in items:
        target, value = item.line.target, item.line.value
        if target is not None and value is not None:
            known[target] = value
    return known


def _ordered(item: _Item) -> bool:
    return has_effect(item.line) or item.kind == "nested"


def _loads(items: list[_Item], index: int, known: dict[str, ast.expr]) -> set[str]:
    roots: set[str] = set()
    for i in _closure(items, [index]):
        roots |= accesses(items[i].line, known)[0]
    return roots


def _closure(items: list[_Item], seeds: Sequence[int]) -> list[int]:
    """The seeds and every lane definition they need, in order."""
    wanted: set[int] = set()
    stack = list(seeds)
    while stack:
        index = stack.pop()
        if index in wanted:
            continue
        wanted.add(index)
        stack += [u for u in items[index].uses if items[u].kind == "lane"]
    return sorted(wanted)


# ---------------------------------------------------------------------------------------------- emission
def _emit(module: Module, items: list[_Item], row: Row, outer: list[Line], taken: set[str]) -> list[Line]:
    levels = [i.level for i in items if i.kind in ("reduce", "store")]
    loops = max(levels, default=-1) + 1
    done: list[Line] = []
    shown: set[int] = set()
    deepest = max([loops, *(i.level for i in items)])
    for level in range(deepest + 1):
        for index, item in enumerate(items):
            if item.level == level and item.kind == "scalar":
                done.append(item.line)
            elif item.level == level and item.kind == "nested":
                done.append(_nested(module, items, index, row, outer, taken))
        seeds = [n for n, i in enumerate(items) if i.kind in ("reduce", "store") and i.level == level]
        if seeds:
            done += _loop(items, seeds, row, outer, shown)
    return done


def _loop(items: list[_Item], seeds: list[int], row: Row, outer: list[Line], shown: set[int]) -> list[Line]:
    starts = [
        Line(f"{items[s].line.target} = {_START[items[s].operation]}") for s in seeds if items[s].kind == "reduce"
    ]
    body: list[Line] = []
    chosen = _closure(items, seeds)
    for index in chosen:
        item = items[index]
        line = _shift(item.line, row)
        if item.kind == "reduce":
            line = _running(line, item.operation)
        body.append(line.bare() if index in shown else Line(line.text, tuple(r for r in line.lead if r)))
        shown.add(index)
    body = [*_outer_lanes(body, row, outer), *body]
    loop = Line(f"for {row.counter} in range(0, {row.length}, {row.block}):\n{indent(join(body))}")
    return [*starts, loop]


def _outer_lanes(body: Sequence[Line], row: Row, outer: Sequence[Line]) -> list[Line]:
    """Lane definitions of enclosing blocks that the tile needs."""
    needed = {n for line in body for n in line.reads}
    lanes = lane_names(outer, row.block)
    chosen: list[Line] = []
    for line in reversed(outer):
        if not line.compound and line.writes & needed & lanes and line.value is not None:
            chosen.append(_shift(line.bare(), row))
            if not isinstance(line.tree, ast.AugAssign) and line.target not in line.reads:
                needed -= line.writes
            needed |= line.reads
    return chosen[::-1]


def _shift(line: Line, row: Row) -> Line:
    """Column numbers of a tile: ``tl.arange(0, BLOCK)`` --> ``start + tl.arange(0, BLOCK)``."""
    edits: list[tuple[ast.AST, str]] = []
    for call in calls_of(line.tree, "arange"):
        size = call_argument(call, "end", 1)
        if isinstance(size, ast.Name) and size.id == row.block:
            text = f"{row.counter} + {line.segment(call)}"
            edits.append((call, text if call is line.value else f"({text})"))
    return line.with_text(splice(line.text, edits)) if edits else line


def _running(line: Line, operation: str) -> Line:
    value = line.value
    if value is None:
        raise CannotTileError("not a reduction")
    text = line.segment(value)
    if operation == "sum":
        return line.with_text(f"{line.target} += {text}")
    name = {"max": "tl.maximum", "min": "tl.minimum"}[operation]
    return line.with_text(f"{line.target} = {name}({line.target}, {text})")


def _nested(module: Module, items: list[_Item], index: int, row: Row, outer: list[Line], taken: set[str]) -> Line:
    line = items[index].line
    lanes = lane_names([*outer, *(i.line for i in items)], row.block)
    vectors = line.writes & lanes & pinned_names([i.line for i in items])
    if vectors:
        raise CannotTileError(f"{', '.join(sorted(vectors))} is a row vector set in a branch or loop")
    around = [*outer, *(i.line for i in items[:index])]
    parts: list[Section] = []
    for section in sections(line):
        parts.append(Section(section.header, tuple(_tile(module, list(section.lines), row, around, taken))))
    return Line(assemble(parts).text, line.lead)
