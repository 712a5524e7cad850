"""Groups of rows: which form a kernel takes them in, the loop form both ways, and what the grid says."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..surface import Function, Module
from ..surface.pyast import parse_ast
from ._grids import Grid
from ._lanes import has_effect
from ._lines import (
    Line,
    body_lines,
    call_argument,
    calls_of,
    dotted_name,
    indent,
    join,
    rename,
    sections,
    tl_name,
    unique,
    walk_lines,
)
from ._row_block import definition_of
from ._row_kinds import COLUMN, ROW, Shapes, column_subscript
from ._row_tiles import CannotTakeRowsError
from ._values import pinned_names


def row_number(lines: Sequence[Line]) -> str | None:
    """The name of ``row = tl.program_id(0)`` (with a cast or not) when it is the only program number."""
    programs = [c for line in lines for c in calls_of(line.tree, "program_id", "num_programs")]
    if len(programs) != 1 or not programs[0].args or ast.unparse(programs[0].args[0]) != "0":
        return None
    for line in lines:
        value = line.value
        if line.target is None or not isinstance(line.tree, ast.Assign) or value is None:
            continue
        while (
            isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in ("to", "cast")
        ):
            if tl_name(value) == "program_id":
                break
            value = value.func.value
        if tl_name(value) == "program_id":
            writes = [x for x in walk_lines(lines) if line.target in x.writes and not x.compound]
            return line.target if len(writes) == 1 else None
    return None


def is_row_kernel(lines: Sequence[Line], row: str, constexprs: frozenset[str]) -> bool:
    """One program per row: columns come from ranges of their own, not from the program's number times a tile."""
    every = list(walk_lines(lines))
    if any(calls_of(x.tree, "dot", "dot_scaled", "make_tensor_descriptor") for x in every):
        return False
    tiles = {ast.unparse(s) for x in every for c in calls_of(x.tree, "arange") if (s := call_argument(c, "end", 1))}
    for line in every:
        for node in ast.walk(line.tree):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.FloorDiv | ast.Mod | ast.Div):
                sides = {ast.unparse(node.left), ast.unparse(node.right)}
                if row in sides and sides & (tiles | constexprs):
                    return False
    return bool(tiles)


def form_of(module: Module, kernel: Function) -> tuple[str, str] | None:
    """(constexpr of the row count, "tile" or "loop") of a kernel that takes several rows per program, else None."""
    lines = body_lines(module, kernel)
    if any(calls_of(line.tree, "dot", "dot_scaled", "make_tensor_descriptor") for line in lines):
        return None
    for rows in sorted(kernel.constexprs):
        if _is_tile(lines, rows):
            return rows, "tile"
        if _row_loop(lines, rows) is not None:
            return rows, "loop"
    return None


def _is_tile(lines: Sequence[Line], rows: str) -> bool:
    """Rows from ``tl.arange(0, rows)`` meet columns of another range, and sums run over the columns."""
    ranges = [c for line in lines for c in calls_of(line.tree, "arange")]
    sizes = {ast.unparse(s) for c in ranges if (s := call_argument(c, "end", 1)) is not None}
    if rows not in sizes or len(sizes) != 2:
        return False
    names: dict[str, str] = {}
    shapes = Shapes(rows)
    for line in lines:
        names = shapes.after(line, names)
    marks: set[tuple[str, str]] = set()
    for line in lines:
        for node in ast.walk(line.tree):
            mark = column_subscript(node)
            if mark is not None and isinstance(node, ast.Subscript):
                marks.add((mark, shapes.kind(node.value, names)))
    program = any(
        calls_of(line.tree, "program_id") and names.get(line.target or "") in (ROW, None, "scalar") for line in lines
    )
    return program and bool(marks) and marks <= {(ROW, ROW), (COLUMN, COLUMN)}


# ---------------------------------------------------------------------------------------------- loop form
def _row_loop(lines: Sequence[Line], rows: str) -> tuple[int, str, str] | None:
    """(index of the loop, name of the row in it, text of the program's number) of a loop over a program's rows."""
    values = {line.target: line.value for line in lines if line.target is not None and line.value is not None}
    for index, line in enumerate(lines):
        tree = line.tree
        if (
            not isinstance(tree, ast.For)
            or not isinstance(tree.target, ast.Name)
            or not isinstance(tree.iter, ast.Call)
        ):
            continue
        args = tree.iter.args
        if tl_name(tree.iter) not in ("range", "static_range"):
            continue
        if len(args) == 2:
            first = values.get(args[0].id, args[0]) if isinstance(args[0], ast.Name) else args[0]
            program = _times(first, rows)
            if program is not None:
                return index, tree.target.id, program
        if len(args) == 1 and ast.unparse(args[0]) == rows:
            inner = sections(line)[0].lines[0]
            program = _counted(inner, tree.target.id, rows)
            if program is not None and inner.target is not None:
                return index, inner.target, program
    return None


def _times(node: ast.expr, rows: str) -> str | None:
    """``p`` of ``p * rows``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for size, other in ((node.left, node.right), (node.right, node.left)):
            if isinstance(size, ast.Name) and size.id == rows:
                return ast.unparse(other)
    return None


def _counted(line: Line, counter: str, rows: str) -> str | None:
    """``p`` of ``row = p * rows + counter``."""
    value = line.value
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        for product, count in ((value.left, value.right), (value.right, value.left)):
            if isinstance(count, ast.Name) and count.id == counter:
                return _times(product, rows)
    return None


def one_row_of_loop(lines: Sequence[Line], rows: str) -> list[Line]:
    """The body with the loop over rows opened for one row.

    Raises CannotTakeRowsError when something is carried from row to row.
    """
    found = _row_loop(lines, rows)
    if found is None:
        raise CannotTakeRowsError("no loop over rows")
    index, row, program = found
    loop = lines[index]
    inside = _without_guard(list(sections(loop)[0].lines), row)
    written = {n for x in inside for n in x.writes}
    before, after = list(lines[:index]), list(lines[index + 1 :])
    carried = written & {n for x in before for n in x.writes} & {n for x in inside for n in x.reads}
    if carried or written & {n for x in after for n in x.reads}:
        names = ", ".join(sorted(carried or written & {n for x in after for n in x.reads}))
        raise CannotTakeRowsError(f"{names} is carried from row to row")
    number = next((x for x in before if x.target == program and calls_of(x.tree, "program_id")), None)
    start = Line(f"{row} = {program}")
    if number is not None and number.target is not None:
        uses = [x for x in (*before, *inside, *after) if number.target in x.reads]
        if all(x.target in _bounds(before, rows) or x in inside[:1] for x in uses):
            start = number.with_text(f"{row}{number.text[len(number.target) :]}")
            before = [x for x in before if x is not number]
    gone = _bounds(before, rows)
    kept = [x for x in before if x.target not in gone]
    inside = [x for x in inside if x.target != row]
    body = [*kept, start, *inside, *after]
    if any(rows in x.reads for x in body):
        raise CannotTakeRowsError(f"{rows} serves another purpose too")
    return _start_first(body, start)


def _start_first(body: list[Line], start: Line) -> list[Line]:
    """The row's number where the program's number stood: at the top."""
    rest = [x for x in body if x is not start]
    needed = {n for n in start.reads if any(n in x.writes for x in rest)}
    return [start, *rest] if not needed else body


def _bounds(lines: Sequence[Line], rows: str) -> set[str]:
    """Names that hold the first and last row of a program: what reads the row count, and only that."""
    return {x.target for x in lines if x.target is not None and rows in x.reads}


def _without_guard(lines: list[Line], row: str) -> list[Line]:
    """``if row < n:`` around the rest of the body, taken off."""
    if len(lines) <= 2 and isinstance(lines[-1].tree, ast.If) and not lines[-1].tree.orelse:
        test = lines[-1].tree.test
        if isinstance(test, ast.Compare) and ast.unparse(test.left) == row and isinstance(test.ops[0], ast.Lt):
            return [*lines[:-1], *sections(lines[-1])[0].lines]
    return lines


def loop_over_rows(
    lines: Sequence[Line], row: str, rows: str, length: str, taken: set[str], *, guarded: bool
) -> list[Line]:
    """The body as a loop over a program's rows; what does not depend on the row stays before the loop.

    Raises CannotTakeRowsError when the kernel may return early.
    """
    for line in lines:
        if any(isinstance(n, ast.Return) for n in ast.walk(line.tree)):
            raise CannotTakeRowsError("the kernel may return before its end")
    number = next(x for x in lines if x.target == row)
    if number.value is None:
        raise CannotTakeRowsError("no row number")
    moving = {row} | pinned_names(lines)
    fixed: list[Line] = []
    inside: list[Line] = []
    again = {n for n in {n for x in lines for n in x.writes} if sum(n in x.writes for x in lines) > 1}
    for line in lines:
        if line is number:
            continue
        varies = line.reads & moving or line.writes & (moving | again) or line.compound or has_effect(line)
        (inside if varies else fixed).append(line)
        moving |= line.writes if varies else frozenset()
    updated = {n for x in inside for n in x.writes if isinstance(x.tree, ast.AugAssign) and n in x.reads}
    local = {n for x in inside for n in x.writes if not isinstance(x.tree, ast.AugAssign)}
    inside = _own_copies(inside, updated - local)
    first = unique("first_row", taken)
    limit = f"min({first} + {rows}, {length})" if guarded else f"{first} + {rows}"
    head = Line(f"{first} = {number.segment(number.value)} * {rows}", number.lead)
    loop = Line(f"for {row} in range({first}, {limit}):\n{indent(join(inside))}")
    return [head, *fixed, loop]


def _own_copies(lines: list[Line], names: set[str]) -> list[Line]:
    """``ptr += row * stride`` on a parameter would add up over rows: it becomes ``row_ptr = ptr + row * stride``."""
    renamed: dict[str, str] = {}
    done: list[Line] = []
    for line in lines:
        tree, target = line.tree, line.target
        if isinstance(tree, ast.AugAssign) and target is not None and target in names:
            old = renamed.get(target, target)
            new = renamed.get(target) or f"row_{target}"
            operator = line.text[len(target) :].lstrip().split("=")[0]
            value = rename(Line(line.segment(tree.value)), renamed).text
            done.append(line.with_text(f"{new} = {old} {operator} {value}"))
            renamed[target] = new
            continue
        done.append(rename(line, renamed))
    return done


# ---------------------------------------------------------------------------------------------- grid
def rows_of_grid(module: Module, kernel: Function, grid: Grid, rows: str) -> tuple[str, str]:
    """(number of rows, rows per program) of ``triton.cdiv(n_rows, ROWS)``."""
    tree = parse_ast(grid.parts[0], mode="eval").body
    texts = {module.text(x.bound[rows].value) for x in module.launches_of(kernel.name) if rows in x.bound}
    if isinstance(tree, ast.Call) and dotted_name(tree.func).split(".")[-1] == "cdiv" and len(tree.args) == 2:
        size = ast.unparse(tree.args[1])
        meta = {f"{grid.meta}['{rows}']"} if grid.meta else set[str]()
        if len(texts) == 1 and size in texts | meta:
            text = next(iter(texts))
            value = definition_of(module, module.launches_of(kernel.name)[0], text) if text.isidentifier() else None
            return ast.unparse(tree.args[0]), ast.unparse(value) if value is not None else text
    raise CannotTakeRowsError("the grid is not the number of rows over the rows per program")
