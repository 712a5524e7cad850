"""Row kernels widened to a tile of several rows, and narrowed to one row again."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..surface import Module
from ..surface.pyast import parse_ast
from ._lanes import ATOMICS, MIXING, REDUCTIONS, elementwise_helper
from ._lines import Line, Section, assemble, atom, call_argument, sections, tl_name, walk_lines
from ._row_kinds import COLUMN, ROW, SCALAR, TILE, Shapes, axis_of, column_subscript, joined, rebuilt

_SUFFIX = {ROW: "[:, None]", COLUMN: "[None, :]"}


class CannotTakeRowsError(Exception):
    """A kernel whose rows cannot be taken together or apart; the message says why."""


def _children(node: ast.AST) -> list[ast.expr]:
    found: list[ast.expr] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.keyword):
            found.append(child.value)
        elif isinstance(child, ast.expr):
            found.append(child)
    return found[:1] if isinstance(node, ast.Subscript) else found


# ---------------------------------------------------------------------------------------------- one row -> several
@dataclass(frozen=True)
class Widen:
    """Gives every statement the form for ``rows`` rows. ``row`` is the name of the row's number, ``bound`` its mask."""

    module: Module
    row: str
    rows: str
    bound: str
    guarded: bool = True

    @property
    def shapes(self) -> Shapes:
        """Kinds when the row's number is a vector."""
        return Shapes(self.rows)

    def body(self, lines: Sequence[Line], length: str) -> list[Line]:
        """The body for several rows. ``length``: how many rows there are."""
        names = {self.row: ROW}
        final = dict(names)
        for line in lines:
            if line.target != self.row:
                final = self.shapes.after(line, final)
        done: list[Line] = []
        for line in lines:
            if line.target == self.row and line.value is not None:
                first = line.segment(line.value)
                done.append(Line(f"{self.row} = {atom(first)} * {self.rows} + tl.arange(0, {self.rows})", line.lead))
                done += [Line(f"{self.bound} = {self.row} < {length}")] if self.guarded else []
                continue
            done.append(self._line(line, names, final))
            names = self.shapes.after(done[-1] if not line.compound else line, names)
        return done

    def _line(self, line: Line, names: Mapping[str, str], final: Mapping[str, str]) -> Line:
        if line.compound:
            if not isinstance(line.tree, ast.For):
                raise CannotTakeRowsError("a branch in the kernel may go another way for each row")
            inner = self.shapes.after(line, dict(names))
            section = sections(line)[0]
            if self.shapes.kind(line.tree.iter, inner) != SCALAR:
                raise CannotTakeRowsError("the length of a loop differs from row to row")
            body: list[Line] = []
            for x in section.lines:
                body.append(self._line(x, inner, inner))
                inner = self.shapes.after(x, inner)
            return Line(assemble([Section(section.header, tuple(body))]).text, line.lead)
        if line.value is None:
            return line
        value = self._text(line, line.value, names)
        kind = self.shapes.kind(line.value, names)
        wanted = final.get(line.target or "", kind)
        if isinstance(line.tree, ast.AugAssign) and joined(kind, wanted) == TILE:
            value = _spread(value, kind)
        if isinstance(line.tree, ast.Assign) and kind != wanted:
            value = self._start(line.value, value, kind, wanted)
        return (
            line.with_text(rebuilt(line, line.tree, {line.value: value})) if value != line.segment(line.value) else line
        )

    def _start(self, node: ast.expr, text: str, kind: str, wanted: str) -> str:
        """First value of what a loop makes one value per row of."""
        if kind == SCALAR and wanted == ROW and not any(isinstance(n, ast.Name) and n.id != "tl" for n in _plain(node)):
            return f"tl.full([{self.rows}], {text}, dtype=tl.float32)"
        if kind == COLUMN and wanted == TILE and tl_name(node) in ("zeros", "full") and isinstance(node, ast.Call):
            shape = node.args[0]
            if isinstance(shape, ast.Tuple | ast.List) and len(shape.elts) == 1:
                old = ast.unparse(shape.elts[0])
                rest = [ast.unparse(a) for a in node.args[1:]] + [
                    f"{k.arg}={ast.unparse(k.value)}" for k in node.keywords
                ]
                return f"{ast.unparse(node.func)}({', '.join([f'[{self.rows}, {old}]', *rest])})"
        return text

    def _text(self, line: Line, node: ast.expr, names: Mapping[str, str]) -> str:
        kind = self.shapes.kind(node, names)
        if isinstance(node, ast.Call):
            return self._call(line, node, names)
        if isinstance(node, ast.Subscript):
            if kind != SCALAR:
                raise CannotTakeRowsError("the kernel has tiles of two dimensions already")
            return line.segment(node)
        parts: dict[ast.AST, str] = {}
        wide = isinstance(node, ast.BinOp | ast.Compare | ast.BoolOp | ast.IfExp) and kind == TILE
        for child in _children(node):
            text = self._text(line, child, names)
            text = _spread(text, self.shapes.kind(child, names)) if wide else text
            if text != line.segment(child):
                parts[child] = text
        return rebuilt(line, node, parts)

    def _call(self, line: Line, call: ast.Call, names: Mapping[str, str]) -> str:
        name = tl_name(call)
        kinds = {a: self.shapes.kind(a, names) for a in _children(call)}
        if name in ("load", "store"):
            return self._access(line, call, names)
        if name in ATOMICS:
            raise CannotTakeRowsError("atomics may meet in one tile")
        kind = joined(*kinds.values())
        if kind in (ROW, TILE) and (
            name in MIXING or (name in self.module.jit_functions and not self._plain_helper(name))
        ):
            raise CannotTakeRowsError(f"{name} may mix the rows")
        parts: dict[ast.AST, str] = {}
        method = isinstance(call.func, ast.Attribute) and not name
        reduces = name in REDUCTIONS
        for child, own in kinds.items():
            text = self._text(line, child, names)
            if kind == TILE and not method and not reduces and child is not call.func:
                text = _spread(text, own)
            if text != line.segment(child):
                parts[child] = text
        if reduces and call.args and kinds.get(call.args[0]) == TILE:
            axis = axis_of(call)
            if axis is not None:
                parts[axis] = "1"
            else:
                inner = parts.get(call.args[0], line.segment(call.args[0]))
                parts[call.args[0]] = f"{inner}, axis=1"
        return rebuilt(line, call, parts)

    def _plain_helper(self, name: str) -> bool:
        return elementwise_helper(self.module, self.module.jit_functions[name])

    def _access(self, line: Line, call: ast.Call, names: Mapping[str, str]) -> str:
        position = 2 if tl_name(call) == "store" else 1
        pointer = self.shapes.kind(call.args[0], names)
        mask = call_argument(call, "mask", position)
        args = [self._text(line, a, names) for a in call.args[:position]]
        if position == 2 and len(args) == 2 and pointer == TILE:
            args[1] = _spread(args[1], self.shapes.kind(call.args[1], names))
        text = None if mask is None else self._text(line, mask, names)
        if pointer in (ROW, TILE) and self.guarded:
            own = f"{self.bound}[:, None]" if pointer == TILE else self.bound
            kind = self.shapes.kind(mask, names) if mask is not None else SCALAR
            text = own if text is None else f"{own} & {_spread(atom(text), kind) if pointer == TILE else atom(text)}"
        elif pointer == TILE and mask is not None and text is not None:
            text = _spread(text, self.shapes.kind(mask, names))
        if text is not None:
            args.append(f"mask={text}")
        args += [f"other={line.segment(a)}" for a in call.args[position + 1 :]]
        args += [f"{k.arg}={line.segment(k.value)}" for k in call.keywords if k.arg != "mask"]
        return f"{line.segment(call.func)}({', '.join(args)})"


def _plain(node: ast.expr) -> list[ast.AST]:
    return [n for n in ast.walk(node) if not (isinstance(n, ast.Name) and n.id in ("float", "tl"))]


def _spread(text: str, kind: str) -> str:
    return f"{atom(text)}{_SUFFIX[kind]}" if kind in _SUFFIX else text


# ---------------------------------------------------------------------------------------------- several rows -> one
@dataclass(frozen=True)
class Narrow:
    """Gives every statement of a kernel over ``rows`` x columns tiles the form for one row."""

    rows: str

    @property
    def shapes(self) -> Shapes:
        """Kinds in the kernel as it stands."""
        return Shapes(self.rows)

    def body(self, lines: Sequence[Line]) -> list[Line]:
        """The body for one row."""
        names: dict[str, str] = {}
        for line in lines:
            names = self.shapes.after(line, names)
        self._check(lines, names)
        return self._block(lines, names)

    def _check(self, lines: Sequence[Line], names: Mapping[str, str]) -> None:
        for line in walk_lines(lines):
            for node in ast.walk(line.tree):
                if isinstance(node, ast.Call) and tl_name(node) in (*MIXING, *ATOMICS):
                    raise CannotTakeRowsError(f"{tl_name(node)} may mix the rows")
                if isinstance(node, ast.Call) and tl_name(node) in REDUCTIONS and node.args:
                    axis = axis_of(node)
                    kind = self.shapes.kind(node.args[0], names)
                    if kind == ROW or (kind == TILE and (axis is None or ast.unparse(axis) not in ("1", "-1"))):
                        raise CannotTakeRowsError("a reduction runs over the rows")

    def _block(self, lines: Sequence[Line], names: Mapping[str, str]) -> list[Line]:
        done: list[Line] = []
        for line in lines:
            if line.compound:
                parts = [Section(s.header, tuple(self._block(s.lines, names))) for s in sections(line)]
                done.append(Line(assemble(parts).text, line.lead))
                continue
            new = self._line(line, names)
            if new is not None:
                done.append(new)
        return done

    def _line(self, line: Line, names: Mapping[str, str]) -> Line | None:
        value = line.value
        if value is None:
            return line
        if self._is_bound(value, names):
            return None
        if any(self._is_range(n) for n in ast.walk(value)):
            first = self._first_row(value)
            if first is None:
                raise CannotTakeRowsError("the rows of a program are not its number times their count and a range")
            return line.with_text(rebuilt(line, line.tree, {value: line.segment(first)}))
        text = self._text(line, value, names)
        return line.with_text(rebuilt(line, line.tree, {value: text})) if text != line.segment(value) else line

    def _is_range(self, node: ast.AST) -> bool:
        if tl_name(node) != "arange" or not isinstance(node, ast.Call):
            return False
        size = call_argument(node, "end", 1)
        return isinstance(size, ast.Name) and size.id == self.rows

    def _first_row(self, node: ast.expr) -> ast.expr | None:
        """``p`` of ``p * ROWS + tl.arange(0, ROWS)``."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            for product, span in ((node.left, node.right), (node.right, node.left)):
                if self._is_range(span) and isinstance(product, ast.BinOp) and isinstance(product.op, ast.Mult):
                    for size, first in ((product.left, product.right), (product.right, product.left)):
                        if isinstance(size, ast.Name) and size.id == self.rows:
                            return first
        return None

    def _is_bound(self, node: ast.expr, names: Mapping[str, str]) -> bool:
        """``rows < n``, or a name for it."""
        if column_subscript(node) == ROW and isinstance(node, ast.Subscript):
            return self._is_bound(node.value, names)
        if isinstance(node, ast.Compare):
            return self.shapes.kind(node, names) == ROW and len(node.ops) == 1 and isinstance(node.ops[0], ast.Lt)
        return False

    def _text(self, line: Line, node: ast.expr, names: Mapping[str, str]) -> str:
        if column_subscript(node) is not None and isinstance(node, ast.Subscript):
            return atom(self._text(line, node.value, names))
        if isinstance(node, ast.Subscript) and self.shapes.kind(node, names) != SCALAR:
            raise CannotTakeRowsError("a subscript that is neither [:, None] nor [None, :]")
        if isinstance(node, ast.Call):
            special = self._call(line, node, names)
            if special is not None:
                return special
        parts: dict[ast.AST, str] = {}
        for child in _children(node):
            text = self._text(line, child, names)
            if text != line.segment(child):
                parts[child] = text
        if isinstance(node, ast.Call) and tl_name(node) in REDUCTIONS and node.args:
            axis = axis_of(node)
            if axis is not None and self.shapes.kind(node.args[0], names) == TILE:
                parts[axis] = "0"
        return rebuilt(line, node, parts)

    def _call(self, line: Line, call: ast.Call, names: Mapping[str, str]) -> str | None:
        name = tl_name(call)
        if name in ("load", "store"):
            return self._access(line, call, names)
        if name in ("zeros", "full") and call.args and isinstance(call.args[0], ast.Tuple | ast.List):
            sizes = [ast.unparse(e) for e in call.args[0].elts]
            if self.rows in sizes:
                kept = [s for s in sizes if s != self.rows]
                if not kept:
                    return "0.0" if name == "zeros" else line.segment(call.args[1])
                return rebuilt(line, call, {call.args[0]: f"[{', '.join(kept)}]"})
        return None

    def _access(self, line: Line, call: ast.Call, names: Mapping[str, str]) -> str:
        position = 2 if tl_name(call) == "store" else 1
        mask = call_argument(call, "mask", position)
        args = [self._text(line, a, names) for a in call.args[:position]]
        text = None if mask is None else self._mask(line, mask, names)
        if text is not None:
            args.append(f"mask={text}")
            args += [f"other={line.segment(a)}" for a in call.args[position + 1 :]]
        dropped = ("mask",) if text is not None else ("mask", "other")
        args += [f"{k.arg}={line.segment(k.value)}" for k in call.keywords if k.arg not in dropped]
        return f"{line.segment(call.func)}({', '.join(args)})"

    def _mask(self, line: Line, node: ast.expr, names: Mapping[str, str]) -> str | None:
        """The mask without bounds on the rows; None when nothing is left."""
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
            kept = [t for side in (node.left, node.right) if (t := self._mask(line, side, names)) is not None]
            return " & ".join(atom(t) for t in kept) if len(kept) == 2 else kept[0] if kept else None
        base = node.value if column_subscript(node) == ROW and isinstance(node, ast.Subscript) else node
        row_name = isinstance(base, ast.Name) and names.get(base.id) == ROW
        if row_name or self._is_bound(node, names):
            return None
        text = self._text(line, node, names)
        inside = parse_ast(text, mode="eval").body
        return text[1:-1] if text.startswith("(") and isinstance(inside, ast.Compare) else text
