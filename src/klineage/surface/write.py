"""The text of a slice: imports, then definitions in an order that can be executed, each in its own formatting."""

from __future__ import annotations

import ast
import heapq
from collections.abc import Iterable

from .package import ModuleFile
from .pytext import Edit
from .reach import Slicer, Symbol, Unit


def write_module(slicer: Slicer, last: ModuleFile | None) -> str:
    """All units of a slice as one module; the units of ``last`` (an adapter) come at the end."""
    names = slicer.symbol_names()
    units = _ordered(slicer, last)
    parts = [_imports(names, units)]
    previous: Unit | None = None
    for unit in units:
        parts.append(_gap(previous, unit) + _text(unit, names))
        previous = unit
    return "".join(parts).lstrip("\n")


def _imports(names: dict[Symbol, str], units: list[Unit]) -> str:
    used = {s for unit in units for s in unit.needs if s.statement}
    whole: set[str] = set()
    single: set[str] = set()
    for symbol in used:
        words = symbol.statement.split()
        name = names[symbol]
        bound = words[-1].split(".")[0] if words[0] == "import" and name == words[-1].split(".")[0] else words[-1]
        text = symbol.statement if name == bound else f"{symbol.statement} as {name}"
        (whole if words[0] == "import" else single).add(text)
    future = any(_has_future(unit.module) for unit in units)
    groups = ["from __future__ import annotations\n"] if future else []
    plain = "".join(f"{line}\n" for line in sorted(whole))
    grouped = "".join(f"{line}\n" for line in sorted(single))
    return "\n".join([*groups, *(g for g in (plain, grouped) if g)])


def _has_future(module: ModuleFile) -> bool:
    return any(
        isinstance(s, ast.ImportFrom) and s.module == "__future__" and any(a.name == "annotations" for a in s.names)
        for s in module.text.tree.body
    )


def _gap(previous: Unit | None, unit: Unit) -> str:
    """Blank lines between two definitions: two around functions and classes, none inside a run of constants."""
    large = (ast.FunctionDef, ast.ClassDef, ast.If, ast.Try, ast.With, ast.For)
    if isinstance(unit.node, large) or isinstance(previous and previous.node, large):
        return "\n\n"
    return "\n" if previous is None else ""


def _text(unit: Unit, names: dict[Symbol, str]) -> str:
    text = unit.module.text
    first, last = text.comment_above(unit.node), unit.node.end_lineno or unit.node.lineno
    begin, end = text.at(first), text.at(last + 1)
    edits: list[Edit] = []
    for reference in unit.references:
        new = names[reference.symbol]
        old = text.data[reference.start : reference.end].decode()
        if old != new:
            edits.append(Edit(reference.start, reference.end, new))
    edits += _renamed_definitions(unit, names)
    for start, stop, imported in unit.replaced:
        lines = [f"{local} = {names[s]}" for local, s in imported if local != names[s]]
        edits.append(Edit(start, stop, "; ".join(lines) or "pass"))
    columns = unit.node.col_offset
    if columns == 0 and not edits:
        return text.data[begin:end].decode().rstrip("\n") + "\n"
    changed = type(text)(text.apply(edits)) if edits else text
    # edits never add or remove line ends, unless an import in parentheses went: then the unit is shorter
    removed = sum(text.data[e.start : e.end].count(b"\n") - e.text.count("\n") for e in edits if begin <= e.start < end)
    return changed.outdented(first, last - removed, columns).rstrip("\n") + "\n"


def _renamed_definitions(unit: Unit, names: dict[Symbol, str]) -> Iterable[Edit]:
    """``def``, ``class`` and their names are no expressions: found by their text."""
    text = unit.module.text
    inner = ast.walk(unit.node) if isinstance(unit.node, ast.If | ast.Try | ast.With) else (unit.node,)
    for node in inner:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            new = names.get(Symbol(unit.module.name, node.name), node.name)
            if new != node.name and (node is unit.node or Symbol(unit.module.name, node.name) in unit.defines):
                keyword = b"class" if isinstance(node, ast.ClassDef) else b"def"
                start = text.data.index(keyword, text.span(node)[0]) + len(keyword)
                start = text.data.index(node.name.encode(), start)
                yield Edit(start, start + len(node.name.encode()), new)


def _ordered(slicer: Slicer, last: ModuleFile | None) -> list[Unit]:
    """Units so that what is needed while importing comes first; otherwise helpers before users, source order."""
    units = list(slicer.units.values())
    rank = _module_ranks(units, last)
    owners = {symbol: slicer.defining(symbol) for unit in units for symbol in unit.needs if not symbol.statement}
    before: dict[int, set[int]] = {id(u): set() for u in units}
    for unit in units:
        for earlier in _needed_first(unit, owners):
            if earlier is not unit and not (earlier.module is unit.module and _line(earlier) > _line(unit)):
                before[id(unit)].add(id(earlier))
    order: list[Unit] = []
    waiting = {id(u): u for u in units}
    while waiting:
        ready = [u for u in waiting.values() if not before[id(u)] & waiting.keys()] or list(waiting.values())
        chosen = heapq.nsmallest(1, ready, key=lambda u: (rank[u.module.name], _line(u)))[0]
        order.append(chosen)
        del waiting[id(chosen)]
    return order


def _line(unit: Unit) -> tuple[int, int]:
    return unit.node.lineno, unit.node.col_offset


def _needed_first(unit: Unit, owners: dict[Symbol, list[Unit]]) -> Iterable[Unit]:
    """Units needed to execute ``unit``: what it reads at once, and what functions it calls at once read later."""
    seen: dict[int, Unit] = {}
    todo = [u for symbol in unit.eager for u in owners.get(symbol, [])]
    for symbol in unit.defines:  # rebinding and item assignment follow the definition
        todo += [u for u in owners.get(symbol, []) if _line(u) < _line(unit)]
    while todo:
        current = todo.pop()
        if id(current) in seen or current is unit:
            continue
        seen[id(current)] = current
        todo += [u for symbol in current.needs for u in owners.get(symbol, [])]
    return seen.values()


def _module_ranks(units: list[Unit], last: ModuleFile | None) -> dict[str, int]:
    """Modules in post-order of use from the last unit's module, so that helpers stand above their users."""
    uses: dict[str, list[str]] = {}
    for unit in units:
        mine = uses.setdefault(unit.module.name, [])
        for symbol in unit.needs:
            if not symbol.statement and symbol.module not in mine:
                mine.append(symbol.module)
    ranks: dict[str, int] = {}

    def visit(name: str, path: frozenset[str]) -> None:
        for other in sorted(uses.get(name, [])):
            if other not in path and other not in ranks:
                visit(other, path | {name})
        ranks.setdefault(name, len(ranks))

    for start in ([last.name] if last is not None else []) + list(uses):
        visit(start, frozenset({start}))
    if last is not None:
        ranks[last.name] = len(ranks) + 1
    return ranks
