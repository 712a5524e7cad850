"""Straight-line value analysis: versions, equal values, dead statements, and names that read well again."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ._lanes import REDUCTIONS, accesses, has_effect, pointer_root
from ._lines import Line, atom, call_argument, names_loaded, rename, tl_name, unique

_VERSION = re.compile(r"__v\d+$")
_LOAD_HINTS = ("eviction_policy", "cache_modifier", "volatile")


@dataclass(frozen=True)
class Step:
    """A statement under analysis. ``inlined``: it stood in a loop that was opened."""

    line: Line
    augmented: bool = False
    inlined: bool = False


def base_name(name: str) -> str:
    """The name without its version."""
    return _VERSION.sub("", name)


def steps_of(lines: Iterable[Line], *, inlined: bool = False) -> list[Step]:
    """Lines as steps, ``x += e`` written out as ``x = x + e``."""
    return [_plain(line, inlined) for line in lines]


def _plain(line: Line, inlined: bool) -> Step:
    tree = line.tree
    if isinstance(tree, ast.AugAssign) and isinstance(tree.target, ast.Name):
        operator = line.text[len(tree.target.id) :].lstrip().split("=")[0]
        name = tree.target.id
        value = line.segment(tree.value)
        tight = operator in ("+", "*") and isinstance(tree.value, ast.Call | ast.Name | ast.Attribute | ast.Subscript)
        plain = operator == "+" and isinstance(tree.value, ast.BinOp) and isinstance(tree.value.op, ast.Mult | ast.Div)
        text = f"{name} = {name} {operator} {value if tight or plain else atom(value)}"
        return Step(line.with_text(text), True, inlined)
    return Step(line, False, inlined)


def pinned_names(lines: Sequence[Line]) -> set[str]:
    """Names that carry a value into or out of a compound statement that binds them: they keep their names."""
    pinned: set[str] = set()
    for index, line in enumerate(lines):
        if line.compound:
            earlier = {n for other in lines[:index] for n in other.writes}
            leaves = _always_returns(line)
            for name in line.writes:
                carried = name in earlier or _read_first(line, name)
                if carried or not (leaves or _killed(name, lines[index + 1 :])):
                    pinned.add(name)
    return pinned


def _always_returns(line: Line) -> bool:
    return isinstance(line.tree, ast.If) and not line.tree.orelse and isinstance(line.tree.body[-1], ast.Return)


def _killed(name: str, lines: Sequence[Line]) -> bool:
    """The next statement that mentions the name sets it anew (or none does)."""
    for line in lines:
        if name in line.reads:
            return line.compound and not _read_first(line, name)
        if name in line.writes:
            return not line.compound
    return True


def _read_first(line: Line, name: str) -> bool:
    """A compound statement may read the name before it sets it."""
    if isinstance(line.tree, ast.If):
        head, bodies = line.tree.test, [line.tree.body, line.tree.orelse]
    elif isinstance(line.tree, ast.For):
        head, bodies = line.tree.iter, [line.tree.body]
    else:
        return name in line.reads
    if name in names_loaded(head):
        return True
    for body in bodies:
        for statement in body:
            if name in names_loaded(statement):
                return True
            bound = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            if name in bound:
                if not isinstance(statement, ast.Assign | ast.AnnAssign):
                    return True
                break
    return False


def version(steps: Sequence[Step], pinned: set[str]) -> list[Step]:
    """Give every definition of an unpinned name a name of its own."""
    current: dict[str, str] = {}
    count: Counter[str] = Counter()
    done: list[Step] = []
    for step in steps:
        outside = current
        if step.line.compound:  # a name that it binds for itself is its own
            outside = {k: v for k, v in current.items() if k not in step.line.writes}
        line = rename(step.line, outside, stores=False)
        if not line.compound:
            fresh: dict[str, str] = {}
            for name in step.line.writes - pinned:
                count[name] += 1
                fresh[name] = f"{name}__v{count[name]}"
            line = rename(line, fresh, loads=False)
            current |= fresh
        done.append(replace(step, line=line))
    return done


def definitions(steps: Sequence[Step]) -> dict[str, ast.expr]:
    """Value expression of every version (and of names defined once)."""
    found: dict[str, ast.expr] = {}
    for step in steps:
        target, value = step.line.target, step.line.value
        if target is not None and value is not None and not step.line.compound:
            found.setdefault(target, value)
    return found


class Numbering:
    """Value numbers: two expressions with the same number have the same value."""

    def __init__(self, known: dict[str, ast.expr]) -> None:
        self.known = known
        self.names: dict[str, int] = {}
        self.table: dict[tuple[object, ...], int] = {}
        self.memory: Counter[str] = Counter()

    def _intern(self, key: tuple[object, ...]) -> int:
        return self.table.setdefault(key, len(self.table))

    def opaque(self, name: str) -> None:
        """The name holds a value nothing is known of."""
        self.names[name] = self._intern(("opaque", name, len(self.table)))

    def stored(self, roots: Iterable[str]) -> None:
        """Memory behind these pointers changed."""
        self.memory.update(roots)

    def of(self, node: ast.AST, *, other: bool = True) -> int:
        """The number of an expression; ``other=False`` ignores what masked-off lanes of the outermost load hold."""
        if isinstance(node, ast.Name):
            return self.names[node.id] if node.id in self.names else self._intern(("name", node.id))
        if isinstance(node, ast.Constant):
            value = node.value
            if isinstance(value, int | float) and not isinstance(value, bool):
                return self._intern(("number", float(value)))
            return self._intern(("constant", repr(value)))
        if tl_name(node) == "load" and isinstance(node, ast.Call):
            return self._load(node, other)
        parts: list[object] = [type(node).__name__]
        for name, child in ast.iter_fields(node):
            if name in ("ctx", "kind", "type_comment"):
                continue
            items: list[object] = list(child) if isinstance(child, list) else [child]  # pyright: ignore[reportUnknownArgumentType]
            parts += [self.of(item) if isinstance(item, ast.AST) else repr(item) for item in items]
        return self._intern(tuple(parts))

    def _load(self, call: ast.Call, other: bool) -> int:
        pointer = call.args[0]
        parts: list[object] = ["load", self.of(pointer), self.memory[pointer_root(pointer, self.known)]]
        mask = call_argument(call, "mask", 1)
        parts.append(None if mask is None else self.of(mask))
        fill = call_argument(call, "other", 2)
        if other:
            parts.append(None if fill is None else self.of(fill))
        parts += [self.of(k.value) for k in call.keywords if k.arg not in ("mask", "other", *_LOAD_HINTS)]
        return self._intern(tuple(parts))


def merge_equal(steps: Sequence[Step], pinned: set[str]) -> list[Step]:
    """Drop a definition whose value another name already holds, and use that name.

    A load is the same as an earlier one of the same address and mask when nothing was stored through that pointer in
    between, and when the values that masked-off lanes take agree or cannot reach a reduction.
    """
    known = definitions(steps)
    numbers = Numbering(known)
    same: dict[str, str] = {}
    holder: dict[int, str] = {}
    done: list[Step] = []
    for index, step in enumerate(steps):
        line = rename(step.line, same, stores=False)
        target, value = line.target, line.value
        if target is None or value is None or target in pinned or line.compound or has_effect(line):
            _, stored = accesses(line, known)
            numbers.stored(stored)
            for name in line.writes:
                numbers.opaque(name)
            done.append(replace(step, line=line))
            continue
        if isinstance(value, ast.Name) and value.id not in pinned:
            same[target] = value.id
            continue
        number = numbers.of(value)
        found = holder.get(number)
        loose = numbers.of(value, other=False) if tl_name(value) == "load" else number
        if found is None and loose != number and loose in holder:
            fill = call_argument(value, "other", 2) if isinstance(value, ast.Call) else None
            if fill is None or not _reaches_reduction(target, steps[index + 1 :]):
                found = holder[loose]
        if found is not None and not isinstance(value, ast.Constant):
            same[target] = found
            continue
        numbers.names[target] = number
        if not isinstance(value, ast.Constant):
            holder[number] = target
            holder.setdefault(loose, target)
        done.append(replace(step, line=line))
    return done


def _reaches_reduction(name: str, steps: Sequence[Step]) -> bool:
    reached = {name}
    for step in steps:
        tree = step.line.tree
        for node in ast.walk(tree):
            reduces = isinstance(node, ast.Call) and tl_name(node) in REDUCTIONS
            if reduces and names_loaded(node) & reached:
                return True
        if step.line.reads & reached:
            if step.line.compound:
                return True
            reached |= step.line.writes
    return False


def drop_dead(steps: Sequence[Step], live: set[str]) -> list[Step]:
    """Remove definitions that nothing reads (statements with effects stay). ``live``: names read afterwards."""
    wanted = set(live)
    kept: list[Step] = []
    for step in reversed(steps):
        line = step.line
        if not line.compound and line.writes and not has_effect(line) and not line.writes & wanted:
            continue
        wanted |= line.reads
        kept.append(step)
    return kept[::-1]


def pretty(steps: Sequence[Step], pinned: set[str], taken: Iterable[str] = ()) -> list[Line]:
    """Names without versions where lifetimes allow it, and ``x = x + e`` back to ``x += e``."""
    last: dict[str, int] = {}
    for index, step in enumerate(steps):
        for name in step.line.reads:
            last[name] = index
    used = {n for s in steps for n in (*s.line.reads, *s.line.writes)} | set(taken) | pinned
    chosen: dict[str, str] = {}
    holder: dict[str, str] = {}  # plain name -> version that holds it
    done: list[Line] = []
    for index, step in enumerate(steps):
        line = rename(step.line, chosen, stores=False)
        fresh: dict[str, str] = {}
        for name in sorted(step.line.writes - pinned) if not line.compound else ():
            base = base_name(name)
            owner = holder.get(base, base)
            if last.get(owner, -1) > index:
                base = unique(base, used | set(chosen.values()))
            fresh[name] = base
            holder[base] = name
        line = rename(line, fresh, loads=False)
        chosen |= fresh
        done.append(_augment(line) if step.augmented else line)
    return done


def _augment(line: Line) -> Line:
    target, value = line.target, line.value
    symbols: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
    if isinstance(value, ast.BinOp) and isinstance(value.left, ast.Name) and value.left.id == target:
        symbol = symbols.get(type(value.op))
        if symbol is not None:
            return line.with_text(f"{target} {symbol}= {line.segment(value.right)}")
    return line
