"""The move ``rows_per_program``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..model import SiteKind
from ..surface import Editor, Function, Module, make_site
from ._grids import Grid, grid_of
from ._launches import add_constexpr, add_launch_keyword, remove_parameters
from ._lines import Line, body_lines, replace_body, unique, walk_lines
from ._row_groups import (
    form_of,
    is_row_kernel,
    loop_over_rows,
    one_row_of_loop,
    row_number,
    rows_of_grid,
)
from ._row_tiles import CannotTakeRowsError, Narrow, Widen
from .base import Condition, Context, Hints, Move, Proposal, Unsupported, ordered, predicate

_COUNTS = ("4", "8", "2", "16")


@predicate
def rows_are_bounded(context: Context, _args: Mapping[str, str]) -> bool | None:
    """The kernel compares its row numbers with the number of rows (the last program may have fewer)."""
    guard = context.params.get("guard")
    return None if guard is None else guard != "none"


class RowsPerProgram(Move):
    """Several rows per program.

    A program that handles one short row leaves warps idle and spends its time on start-up and on loading what all
    rows share. Taking several rows as one tile fills the warps; walking over several rows in a loop loads the shared
    operands once. It pays for narrow rows, and where a weight is as long as the row.

    ```python
    row = tl.program_id(0)                                       # grid: (n_rows,)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < n, other=0.0)
    tl.store(y_ptr + row, tl.sum(x, axis=0))
    -->
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)          # grid: (triton.cdiv(n_rows, ROWS),)
    x = tl.load(x_ptr + rows[:, None] * stride + cols[None, :],
                mask=(rows < n_rows)[:, None] & (cols < n)[None, :], other=0.0)
    tl.store(y_ptr + rows, tl.sum(x, axis=1), mask=rows < n_rows)
    ```

    Must hold:
    - row numbers are compared with the number of rows: the last program may have fewer;
    - rows do not depend on each other: nothing is carried from row to row, no atomics.

    Refused:
    - branches on a row's own values (as a tile), early returns (as a loop), scans, dots and atomics;
    - to simplify: sums over the rows of a program.
    """

    rank = 35
    anchors = (SiteKind.PROGRAM_ID, SiteKind.LAUNCH)
    carriers = ("rows", "form")
    conditions = (Condition("rows_are_bounded", "row numbers are compared with the number of rows"),)

    def simplify(self, module: Module) -> Iterator[Proposal | Unsupported]:
        """One row per program."""
        for kernel in module.kernels.values():
            found = form_of(module, kernel)
            if found is None:
                continue
            site = make_site(module, SiteKind.KERNEL, kernel.node)
            rows, form = found
            try:
                lines = body_lines(module, kernel)
                body = Narrow(rows).body(lines) if form == "tile" else one_row_of_loop(lines, rows)
                source, count = _launch_single(module, kernel, rows, body)
            except CannotTakeRowsError as reason:
                yield Unsupported(self.name, "simplify", site, str(reason))
                continue
            params = {"rows": count, "form": form, "guard": "mask"}
            yield Proposal(self.name, "simplify", site, source, params, f"{kernel.name}: one row per program")

    def materialize(
        self, module: Module, hints: Hints | None = None, *, checked: bool = True
    ) -> Iterator[Proposal | Unsupported]:
        """As a tile and as a loop, with a few row counts."""
        for kernel in module.kernels.values():
            lines = body_lines(module, kernel)
            row = row_number(lines)
            if row is None or not is_row_kernel(lines, row, kernel.constexprs) or form_of(module, kernel) is not None:
                continue
            counts = ordered(_COUNTS, hints, "rows")
            forms = ordered(("tile", "loop"), hints, "form")
            for form in forms:
                for count in counts[:4] if form == "tile" else counts[:2]:
                    found = self._materialize(module, kernel, row, count, form, checked)
                    yield found
                    if isinstance(found, Unsupported):
                        break  # another count changes nothing

    def _materialize(
        self, module: Module, kernel: Function, row: str, count: str, form: str, checked: bool
    ) -> Proposal | Unsupported:
        site = make_site(module, SiteKind.KERNEL, kernel.node)
        lines = body_lines(module, kernel)
        taken = {n for line in walk_lines(lines) for n in (*line.reads, *line.writes)} | set(kernel.params)
        name = unique("ROWS", taken)
        try:
            grids = _grids(module, kernel)
            editor = Editor(module)
            length = _row_count(editor, kernel, grids, taken)
            if form == "tile":
                wide = Widen(module, row, name, unique("row_mask", taken), checked)
                body = wide.body(lines, length)
            else:
                body = loop_over_rows(lines, row, name, length, taken, guarded=checked)
        except CannotTakeRowsError as reason:
            return Unsupported(self.name, "materialize", site, f"{form}: {reason}")
        add_constexpr(editor, kernel, name, count, module.launches_of(kernel.name))
        for grid in grids:
            grid.rewrite(editor, [f"triton.cdiv({grid.parts[0]}, {count})"])
        replace_body(editor, kernel, body)
        params = {"rows": count, "form": form, "guard": "mask" if checked else "none"}
        note = f"{kernel.name}: {count} rows per program, as a {form}"
        return Proposal(self.name, "materialize", site, editor.apply(), params, note)


def _grids(module: Module, kernel: Function) -> list[Grid]:
    found: list[Grid] = []
    for launch in module.launches_of(kernel.name):
        grid = grid_of(module, launch)
        if grid is None or grid.shared or len(grid.parts) != 1:
            raise CannotTakeRowsError("the grid is not one written number of rows")
        if not any(g.node is grid.node for g in found):
            found.append(grid)
    return found


def _row_count(editor: Editor, kernel: Function, grids: list[Grid], taken: set[str]) -> str:
    """The kernel's name for the number of rows; a parameter is added when it has none."""
    module = kernel.module
    launches = module.launches_of(kernel.name)
    texts = {grid.parts[0] for grid in grids}
    for parameter in kernel.params:
        bound = [module.text(x.bound[parameter].value) for x in launches if parameter in x.bound]
        if len(bound) == len(launches) and len(texts) == 1 and set(bound) == texts:
            return parameter
    name = unique("n_rows", taken)
    last = kernel.node.params.params[-1] if kernel.node.params.params else None
    editor.add_parameter(kernel, f"{name}=1" if last is not None and last.default is not None else name)
    for launch in launches:
        grid = grid_of(module, launch)
        if grid is not None:
            add_launch_keyword(editor, launch, name, grid.parts[0])
    return name


def _launch_single(module: Module, kernel: Function, rows: str, body: list[Line]) -> tuple[str, str]:
    """The module with one program per row, and how many rows a program had."""
    editor = Editor(module)
    counts: list[str] = []
    for grid in _grids(module, kernel):
        single, count = rows_of_grid(module, kernel, grid, rows)
        counts.append(count)
        grid.rewrite(editor, [single])
    before = {n for line in walk_lines(body_lines(module, kernel)) for n in line.reads}
    left = {n for line in walk_lines(body) for n in line.reads}
    remove_parameters(editor, kernel, ({rows} | before) & set(kernel.params) - left)
    replace_body(editor, kernel, body)
    return editor.apply(), counts[0]
