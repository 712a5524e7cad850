"""The move ``one_pass_row``."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from ..model import SiteKind
from ..surface import Editor, Function, Launch, Module, make_site
from ._lanes import block_names, row_loop
from ._lines import Line, body_lines, calls_of, replace_body, unique, walk_lines
from ._open_loops import CannotOpenError, open_row_loops, row_loops
from ._row_block import block_variable, bound_text, definition_of, in_launcher, set_bound
from ._tile_loops import tile_row
from ._tile_prepare import CannotTileError, Row, row_length
from .base import Condition, Context, Hints, Move, Proposal, Unsupported, predicate

_TILE = "256"
MAX_ROW = (
    65536  # elements of a row that one program can hold (Triton's limit of a tensor is 2**20; registers end sooner)
)


@predicate
def block_covers_row(context: Context, _args: Mapping[str, str]) -> bool | None:
    """The tile is at least as long as the row: it is the next power of two of the row's length."""
    block = context.params.get("block", "")
    if "next_power_of_2" in block and not any(c in block.split("next_power_of_2")[1].split(")")[-1] for c in "/-"):
        return True
    length = context.params.get("length", "")
    if block.isdigit() and length.isdigit():
        return int(block) >= int(length)
    return None


@predicate
def row_fits_in_registers(context: Context, args: Mapping[str, str]) -> bool | None:
    """The compiled tile is at most ``elements`` long."""
    name = context.params.get("parameter", "")
    sizes = [int(r.constexprs[name]) for r in context.reports if r.constexprs.get(name, "").isdigit()]
    return max(sizes) <= int(args.get("elements", MAX_ROW)) if sizes else None


class OnePassRow(Move):
    """Hold a whole row in registers and read it once.

    A row operator that loops over tiles reads the row once for each statistic and once more to write. With a tile as
    long as the row each loop runs once, the loads of the different passes are the same load, and device memory is read
    once. It pays where memory bounds the kernel and the row fits the registers of one program.

    ```python
    square = 0.0
    for start in range(0, n, BLOCK):            # BLOCK = 256
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n, other=0.0)
        square += tl.sum(x * x)
    scale = tl.rsqrt(square / n + eps)
    for start in range(0, n, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n, other=0.0)
        tl.store(y_ptr + cols, x * scale, mask=cols < n)
    -->
    cols = tl.arange(0, BLOCK)                  # BLOCK = triton.next_power_of_2(n)
    x = tl.load(x_ptr + cols, mask=cols < n, other=0.0)
    square = tl.sum(x * x)
    scale = tl.rsqrt(square / n + eps)
    tl.store(y_ptr + cols, x * scale, mask=cols < n)
    ```

    Must hold:
    - the tile covers the row: BLOCK is the next power of two of its length;
    - the row fits the registers of one program (65536 elements at most);
    - nothing stores through a pointer between two loads from it that are merged.

    Refused:
    - loops that are left early, or whose counter is used after them;
    - to simplify: scans, sorts, dots and other operations that mix lanes; two-dimensional tiles; a row read back
      after it was overwritten; a row without a bound on its columns.
    """

    rank = 30
    anchors = (SiteKind.LOOP, SiteKind.REDUCTION, SiteKind.LOAD)
    carriers = ("block", "loads")
    conditions = (
        Condition("block_covers_row", "the tile is at least as long as the row"),
        Condition("row_fits_in_registers", "the row fits the registers of one program", {"elements": str(MAX_ROW)}),
    )

    def amount(self, module: Module) -> int:
        """Kernels that hold a row whole, those with several rows per tile included."""
        return sum(1 for k in module.kernels.values() if _one_pass_block(module, k) is not None)

    def simplify(self, module: Module) -> Iterator[Proposal | Unsupported]:
        """One loop over 256-wide tiles for each level of statistics, and one for the stores."""
        for kernel in module.kernels.values():
            block = _one_pass_block(module, kernel)
            if block is None:
                continue
            try:
                yield self._simplify(module, kernel, block)
            except CannotTileError as reason:
                site = make_site(module, SiteKind.KERNEL, kernel.node)
                yield Unsupported(self.name, "simplify", site, str(reason))

    def _simplify(self, module: Module, kernel: Function, block: str) -> Proposal:
        lines = body_lines(module, kernel)
        length = row_length(lines, block)
        if length is None:
            raise CannotTileError("no single bound on the columns: nothing tells how long the row is")
        launches = module.launches_of(kernel.name)
        if any(block not in launch.bound for launch in launches):
            raise CannotTileError(f"{block} is not passed where the kernel is launched")
        taken = {n for line in walk_lines(lines) for n in (*line.reads, *line.writes)} | set(kernel.params)
        tiled = tile_row(module, lines, Row(block, length, unique("start", taken)))
        editor = Editor(module)
        replace_body(editor, kernel, tiled)
        held = _held(module, launches[0], block)
        for launch in launches:
            set_bound(editor, launch, block, _TILE)
        site = make_site(module, SiteKind.KERNEL, kernel.node)
        params = {"block": held, "length": length, "parameter": block}
        return Proposal(
            self.name, "simplify", site, editor.apply(), params, f"{kernel.name}: loops over {_TILE}-wide tiles"
        )

    def materialize(
        self, module: Module, hints: Hints | None = None, *, checked: bool = True
    ) -> Iterator[Proposal | Unsupported]:
        """Open the loops over a row; loads of the row first, then in the order of the loops."""
        for kernel in module.kernels.values():
            lines = body_lines(module, kernel)
            seen: set[tuple[str, str]] = set()
            for loop in row_loops(lines, kernel.constexprs):
                if loop.key in seen:
                    continue
                seen.add(loop.key)
                yield from self._materialize(module, kernel, loop.key, checked)

    def _materialize(
        self, module: Module, kernel: Function, key: tuple[str, str], checked: bool
    ) -> Iterator[Proposal | Unsupported]:
        site = make_site(module, SiteKind.KERNEL, kernel.node)
        length, block = key
        reason = _not_a_row(kernel, body_lines(module, kernel), key)
        launches = module.launches_of(kernel.name)
        lengths = [_launch_length(module, launch, length) for launch in launches]
        if reason is None and (any(n is None for n in lengths) or any(block not in x.bound for x in launches)):
            reason = f"the launcher does not pass {block} and what {length} is made of"
        if reason is not None:
            yield Unsupported(self.name, "materialize", site, reason)
            return
        made: set[str] = set()
        shapes = ["triton.next_power_of_2({n})"] if checked else ["triton.next_power_of_2({n}) // 2"]
        for shape in shapes:
            for early in (True, False):
                try:
                    body = open_row_loops(body_lines(module, kernel), key, kernel.constexprs, early_loads=early)
                except CannotOpenError as why:
                    yield Unsupported(self.name, "materialize", site, str(why))
                    return
                editor = Editor(module)
                replace_body(editor, kernel, body)
                for launch, n in zip(launches, lengths, strict=True):
                    held = block_variable(module, launch, n or "") if checked else None
                    set_bound(editor, launch, block, held or shape.format(n=n))
                source = editor.apply()
                if source in made:
                    continue
                made.add(source)
                params = {
                    "block": shape.format(n=lengths[0]),
                    "loads": "first" if early else "in order",
                    "length": length,
                    "parameter": block,
                }
                yield Proposal(self.name, "materialize", site, source, params, f"{kernel.name}: the row in registers")


def _held(module: Module, launch: Launch, block: str) -> str:
    """What the launcher passes for the tile: its definition when that is one expression."""
    text = bound_text(module, launch, block) or block
    value = definition_of(module, launch, text) if text.isidentifier() else None
    return ast.unparse(value) if value is not None else text


def _one_pass_block(module: Module, kernel: Function) -> str | None:
    """The constexpr that spans a whole row in a kernel without a loop over it, else None."""
    lines = body_lines(module, kernel)
    if calls_of_any(lines, "dot", "dot_scaled", "make_tensor_descriptor"):
        return None
    for block in block_names(walk_lines(lines), kernel.constexprs):
        used = [line for line in walk_lines(lines) if isinstance(line.tree, ast.For) and _names(line.tree.iter, block)]
        bounded = not used and not _scalar_use(lines, block) and row_length(lines, block) is not None
        if bounded and _steps_rows(module, kernel, block):
            return block
    return None


def _steps_rows(module: Module, kernel: Function, block: str) -> bool:
    """False when every launch passes a literal: a tile of fixed size (a head, say) is no row held on purpose."""
    texts = [bound_text(module, launch, block) for launch in module.launches_of(kernel.name)]
    return not all(t is not None and t.isdigit() and int(t) <= int(_TILE) for t in texts)


def _names(node: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node))


def _scalar_use(lines: tuple[Line, ...], block: str) -> bool:
    """The constexpr serves another purpose than the shape of vectors."""
    for line in walk_lines(lines):
        if line.compound:
            continue
        inside = {
            id(n)
            for c in calls_of(line.tree, "arange", "zeros", "full", "multiple_of", "max_contiguous")
            for n in ast.walk(c)
        }
        for node in ast.walk(line.tree):
            if isinstance(node, ast.Name) and node.id == block and id(node) not in inside:
                return True
    return False


def calls_of_any(lines: tuple[Line, ...], *names: str) -> bool:
    """True when one of these Triton calls stands anywhere in the statements."""
    return any(calls_of(line.tree, *names) for line in lines)


def _not_a_row(kernel: Function, lines: tuple[Line, ...], key: tuple[str, str]) -> str | None:
    """Why loops of this key are no loops over a row that could be held whole."""
    length, block = key
    if calls_of_any(lines, "dot", "dot_scaled"):
        return "the loop feeds a dot: its tile is an operand's, not a row's"
    for line in walk_lines(lines):
        loop = row_loop(line, kernel.constexprs)
        if loop is not None and loop.block == block and loop.length != length:
            return f"{block} is the tile of loops over {length} and over {loop.length}"
    return None


def _launch_length(module: Module, launch: Launch, length: str) -> str | None:
    if length.isdigit():
        return length
    return in_launcher(module, launch, length)
