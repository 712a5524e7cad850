"""Elementwise stages: code that makes each output element from values at the same index, apart from how it is indexed.

A stage is lifted out of a kernel by putting symbols in place of its index arithmetic (``ROW__``, ``COL__``, ``FLAT__``
and, for lanes inside the bounds, ``MASK__``), and written into another kernel with that kernel's own texts. What is
lifted is a whitelist: names, constants, operators, elementwise functions, loads and stores.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ._elementwise import bound_in, elementwise, function_name, live_in, name_of, short, without_dead
from ._flow import Flow
from ._lines import call_argument
from ._spaces import COL, FLAT, MASK, ROW, SYMBOLS, Space

_HINTS = ("multiple_of", "max_contiguous", "max_constancy")
_MEMORY_KEYWORDS = frozenset(("mask", "other", "eviction_policy", "cache_modifier"))


class NotAStageError(Exception):
    """The code is not an elementwise stage; the message says why, for an Unsupported."""


@dataclass(frozen=True)
class Value:
    """A lifted expression, the number of its axes, and the index symbols it depends on."""

    node: ast.expr
    rank: int = 0
    axes: frozenset[str] = frozenset()


@dataclass
class Stage:
    """Lifted statements. ``row_length`` is the parameter that parts flat indices into rows and columns."""

    statements: list[ast.stmt] = field(default_factory=list[ast.stmt])
    row_length: str = ""
    flat_extent: str = ""

    @property
    def free(self) -> set[str]:
        """Names read that no statement bound before, symbols left out."""
        return live_in(self.statements) - SYMBOLS

    @property
    def bound(self) -> set[str]:
        """Names the statements bind."""
        return bound_in(self.statements)

    def needed(self) -> Stage:
        """The stage without assignments that nobody reads."""
        return Stage(without_dead(self.statements, set()), self.row_length, self.flat_extent)

    def memory(self, kind: str) -> list[ast.Call]:
        """The stage's ``load`` or ``store`` calls."""
        return [n for s in self.statements for n in ast.walk(s) if isinstance(n, ast.Call) and function_name(n) == kind]


class Lifter:
    """Lifts a kernel's statements. ``tiles`` are names that hold a tile already: the accumulator."""

    def __init__(self, flow: Flow, space: Space, tiles: Sequence[str] = ()) -> None:
        self.flow = flow
        self.space = space
        self.stage = Stage()
        self.values: dict[str, Value] = {t: Value(_name(t), 2, frozenset((ROW, COL))) for t in tiles}
        self.opaque: dict[str, NotAStageError] = {}  # names that may not be read, with the reason

    # -------------------------------------------------------------- statements
    def add(self, statements: Sequence[ast.stmt]) -> Stage:
        """Lift statements in order; names that stand for symbols alone disappear.

        Raises NotAStageError.
        """
        lifted = [s for statement in statements for s in self._statement(statement, False)]
        self.stage.statements = without_dead([*self.stage.statements, *lifted], set())
        return self.stage

    def _statement(self, node: ast.stmt, inside: bool) -> Iterator[ast.stmt]:
        if isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            return
        if isinstance(node, ast.If):
            test = self.lift(node.test)
            if test.rank:
                raise NotAStageError(f"a branch on {ast.unparse(node.test)}, which is no scalar")
            body = [s for child in node.body for s in self._statement(child, True)]
            orelse = [s for child in node.orelse for s in self._statement(child, True)]
            yield ast.If(test.node, body or [ast.Pass()], orelse)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and function_name(node.value) == "store":
            yield ast.Expr(self._memory(node.value, "store").node)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            value = self._join([self.lift(node.target), self.lift(node.value)])
            if isinstance(value[0].node, ast.Name) and value[0].node.id in SYMBOLS:
                raise NotAStageError(f"the index {node.target.id} is changed in place")
            self.values[node.target.id] = Value(_name(node.target.id), value[1], value[2])
            yield ast.AugAssign(_name(node.target.id, ast.Store()), node.op, self.lift(node.value).node)
        else:
            yield from self._assign(node, inside)

    def _assign(self, node: ast.stmt, inside: bool) -> Iterator[ast.stmt]:
        target = node.targets[0] if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        target = node.target if isinstance(node, ast.AnnAssign) else target
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if target is None or value is None:
            raise NotAStageError(f"{short(node)} is not elementwise")
        try:
            if not isinstance(target, ast.Name):
                raise NotAStageError(f"{short(node)} binds several names")
            lifted = self.lift(value)
        except NotAStageError as reason:  # fatal only when something reads it: index arithmetic passes through here
            if inside:
                raise
            self.opaque |= dict.fromkeys(bound_in([node]), reason)
            return
        self.opaque.pop(target.id, None)
        if isinstance(lifted.node, ast.Name) and lifted.node.id in SYMBOLS:
            if inside:
                raise NotAStageError(f"the index {target.id} is set in a branch")
            self.values[target.id] = lifted
            return
        self.values[target.id] = Value(_name(target.id), lifted.rank, lifted.axes)
        yield ast.Assign([_name(target.id, ast.Store())], lifted.node, lineno=0)

    def depends(self, node: ast.AST) -> set[str]:
        """The axes, ROW and COL, that a lifted expression depends on."""
        names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
        found = {a for n in names for a in ({n} & SYMBOLS or (self.values[n].axes if n in self.values else ()))}
        return {ROW, COL} if FLAT in found else found & {ROW, COL}

    # ------------------------------------------------------------- expressions
    def lift(self, node: ast.expr) -> Value:
        """An expression over symbols.

        Raises NotAStageError.
        """
        if isinstance(node, ast.BinOp | ast.Call) or (isinstance(node, ast.Name) and not self._set(node.id)):
            symbol = self.space.symbol(self.flow.canonical(node))
            if symbol is not None:
                return Value(_name(symbol), 1, frozenset((symbol,)))
        match node:
            case ast.Constant():
                return Value(node)
            case ast.Name():
                return self._read(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.UnaryOp():
                inner = self.lift(node.operand)
                return Value(ast.UnaryOp(node.op, inner.node), inner.rank, inner.axes)
            case ast.BinOp():
                return self._binary(node)
            case ast.Compare():
                return self._compare(node)
            case ast.BoolOp():
                return self._bool(node)
            case ast.IfExp():
                return self._choice(node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.Call():
                return self._call(node)
            case _:
                raise NotAStageError(f"{short(node)} is not elementwise")

    def _set(self, name: str) -> bool:
        return name in self.values or name in self.opaque

    def _read(self, node: ast.Name) -> Value:
        if node.id in self.opaque:
            raise self.opaque[node.id]
        return self.values.get(node.id, Value(node))

    def _attribute(self, node: ast.Attribute) -> Value:
        inner = self.lift(node.value)
        if inner.rank and node.attr != "dtype":
            raise NotAStageError(f"{short(node)} is not elementwise")
        return Value(ast.Attribute(inner.node, node.attr, ast.Load()))

    def _binary(self, node: ast.BinOp) -> Value:
        left, right = self.lift(node.left), self.lift(node.right)
        _, rank, axes = self._join([left, right])
        if isinstance(node.op, ast.BitAnd) and MASK in (name_of(left.node), name_of(right.node)):
            return Value(right.node if name_of(left.node) == MASK else left.node, rank, axes)
        wraps = {ROW: self.space.row_extent, COL: self.space.col_extent}.get(name_of(left.node))
        if isinstance(node.op, ast.Mod) and wraps and wraps == name_of(right.node):
            return left
        if isinstance(node.op, ast.FloorDiv | ast.Mod) and name_of(left.node) == FLAT and name_of(right.node):
            if self.stage.row_length not in ("", name_of(right.node)):
                raise NotAStageError(
                    f"the flat index is divided by {self.stage.row_length} and {ast.unparse(right.node)}"
                )
            self.stage.row_length = name_of(right.node)
            symbol = ROW if isinstance(node.op, ast.FloorDiv) else COL
            return Value(_name(symbol), 1, frozenset((symbol,)))
        return Value(ast.BinOp(left.node, node.op, right.node), rank, axes)

    def _compare(self, node: ast.Compare) -> Value:
        left, right = self.lift(node.left), self.lift(node.comparators[0])
        _, rank, axes = self._join([left, right])
        if len(node.ops) != 1:
            raise NotAStageError(f"{short(node)} compares more than two values")
        if isinstance(node.ops[0], ast.Lt) and (bound := name_of(right.node)):
            extents = {ROW: (self.space.row_extent,), COL: (self.space.col_extent, self.stage.row_length)}
            if bound in extents.get(name_of(left.node), ()):
                return Value(_name(MASK), rank, axes)
            if name_of(left.node) == FLAT and self.stage.flat_extent in ("", bound):
                self.stage.flat_extent = bound
                return Value(_name(MASK), rank, axes)
        return Value(ast.Compare(left.node, node.ops, [right.node]), rank, axes)

    def _bool(self, node: ast.BoolOp) -> Value:
        parts = [self.lift(v) for v in node.values]
        if any(p.rank for p in parts):
            raise NotAStageError(f"{short(node)} is no scalar")
        return Value(ast.BoolOp(node.op, [p.node for p in parts]))

    def _choice(self, node: ast.IfExp) -> Value:
        test, body, orelse = (self.lift(n) for n in (node.test, node.body, node.orelse))
        if test.rank:
            raise NotAStageError(f"a choice by {short(node.test)}, which is no scalar")
        _, rank, axes = self._join([body, orelse])
        return Value(ast.IfExp(test.node, body.node, orelse.node), rank, axes)

    def _subscript(self, node: ast.Subscript) -> Value:
        inner = self.lift(node.value)
        wanted = {":, None": ROW, "None, :": COL}.get(ast.unparse(node.slice).strip("()"))
        if self.space.flat or wanted is None or inner.rank != 1 or inner.axes != frozenset((wanted,)):
            raise NotAStageError(f"{short(node)} is not a row or column of the tile")
        return Value(inner.node, 2, inner.axes)

    def _call(self, node: ast.Call) -> Value:
        last = function_name(node)
        if last in _HINTS and node.args:
            return self.lift(node.args[0])
        if last == "load":
            return self._memory(node, "load")
        if last in ("expand_dims", "broadcast_to") and node.args:
            return self._shaped(node, last)
        method = isinstance(node.func, ast.Attribute) and node.func.attr == "to"
        if not method and not elementwise(self.flow.module, node):
            raise NotAStageError(f"{short(node)} is not elementwise")
        func = self.lift(node.func.value) if method and isinstance(node.func, ast.Attribute) else Value(node.func)
        args = [self.lift(a) for a in node.args]
        keywords = [(k.arg, self.lift(k.value)) for k in node.keywords]
        _, rank, axes = self._join([func, *args, *(v for _, v in keywords)])
        callee = ast.Attribute(func.node, "to", ast.Load()) if method else node.func
        call = ast.Call(callee, [a.node for a in args], [ast.keyword(k, v.node) for k, v in keywords])
        return Value(call, rank, axes)

    def _shaped(self, node: ast.Call, last: str) -> Value:
        """``expand_dims`` and ``broadcast_to`` of a vector or tile: the tile's shape follows from its indices."""
        inner = self.lift(node.args[0])
        if last == "expand_dims":
            axis = call_argument(node, "axis", 1)
            wanted = {"1": ROW, "0": COL}.get("" if axis is None else ast.unparse(axis), "")
            if inner.rank != 1 or inner.axes != frozenset((wanted,)):
                raise NotAStageError(f"{short(node)} is not a row or column of the tile")
        elif inner.rank != 2:
            raise NotAStageError(f"{short(node)} is not a tile's row or column")
        return Value(inner.node, 2, inner.axes)

    def _memory(self, node: ast.Call, kind: str) -> Value:
        """A load or store: positional pointer and value, the rest by keyword."""
        order = ("pointer", "mask", "other") if kind == "load" else ("pointer", "value", "mask")
        given = dict(zip(order, node.args, strict=False)) | {k.arg or "**": k.value for k in node.keywords}
        strange = sorted(set(given) - _MEMORY_KEYWORDS - {"pointer", "value"})
        if strange or not isinstance(node.func, ast.Attribute) or "pointer" not in given:
            raise NotAStageError(f"{short(node)} goes through a block pointer or descriptor")
        lifted = {key: self.lift(value) for key, value in given.items() if not _is_none(value)}
        _, rank, axes = self._join(list(lifted.values()))
        pointer = lifted.pop("pointer")
        mask = lifted.get("mask")
        if mask is not None and name_of(mask.node) == MASK:
            del lifted["mask"]  # every load and store is masked again where the stage is written
        args = [pointer.node, *([lifted.pop("value").node] if kind == "store" else [])]
        call = ast.Call(node.func, args, [ast.keyword(k, v.node) for k, v in lifted.items()])
        return Value(call, rank if kind == "store" else pointer.rank, axes if kind == "store" else pointer.axes)

    def _join(self, parts: Sequence[Value]) -> tuple[Value, int, frozenset[str]]:
        """(first part, rank, axes) of values used together.

        Raises NotAStageError when vectors of rows and columns meet, or a bare vector of rows meets a tile.
        """
        rank = max((p.rank for p in parts), default=0)
        vectors = {a for p in parts if p.rank == 1 for a in p.axes}
        if not self.space.flat and (len(vectors) > 1 if rank == 1 else rank == 2 and ROW in vectors):
            raise NotAStageError("vectors of rows and columns are combined without an axis of their own")
        return parts[0], rank, frozenset(a for p in parts for a in p.axes)


def _name(text: str, context: ast.expr_context | None = None) -> ast.Name:
    return ast.Name(text, context or ast.Load())


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
