"""The move ``descriptor_loads``."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..model import SiteKind
from ..surface import Editor, Function, Launch, Module, make_site
from ..surface.pyast import parse_ast
from ._affine import Tile, tile_of, walks
from ._blocks import blocks, replace_block
from ._descriptors import CannotPointError, drop_allocator, drop_test, pointer_branches, to_pointers, uses_descriptors
from ._launches import add_constexpr, add_launch_keyword, remove_parameters
from ._lines import (
    Line,
    Section,
    assemble,
    atom,
    body_lines,
    call_argument,
    replace_body,
    rewrite,
    sections,
    tl_name,
    unique,
    walk_lines,
)
from ._masks import kernel_facts
from ._row_block import bound_text, in_launcher
from .base import Condition, Context, Hints, Move, Proposal, Unsupported, ordered, predicate

_ALLOCATOR = """def descriptor_space(size: int, alignment: int, stream: int | None):
    return torch.empty(size, dtype=torch.int8, device="cuda")
"""


@predicate
def target_has_descriptor_hardware(context: Context, _args: Mapping[str, str]) -> bool | None:
    """The target copies tiles by descriptor (sm_90 and later)."""
    return context.target.capability >= (9, 0)


@predicate
def descriptors_are_aligned(context: Context, _args: Mapping[str, str]) -> bool | None:
    """Descriptors are used behind a flag that tests the strides and alignment of their tensors."""
    flag = context.params.get("flag")
    return None if flag is None else flag != "none"


class DescriptorLoads(Move):
    """Tiles by tensor descriptor.

    A descriptor gives the hardware the tensor's shape and strides once; a tile is then copied by one instruction that
    computes addresses, checks bounds and fills with zeros by itself (TMA, sm_90 and later). It frees registers and
    instruction slots for the tensor cores. Where the layout does not allow it, the launcher selects plain loads.

    ```python
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + (k + offs_k)[None, :]
    a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & ((k + offs_k)[None, :] < K), other=0.0)
    -->
    a_desc = tl.make_tensor_descriptor(a_ptr, shape=[M, K], strides=[stride_am, 1], block_shape=[BLOCK_M, BLOCK_K])
    a = a_desc.load([pid_m * BLOCK_M, k])
    ```

    Must hold:
    - the last stride is 1, the others and the base are multiples of 16 bytes (tested by the launcher);
    - the target has the hardware: sm_90 or later.

    Refused:
    - addresses that are not a base plus two strided ranges, and tiles whose masked-off values are not zero;
    - to simplify: gathers, more than two dimensions, descriptors passed to other functions.
    """

    rank = 20
    anchors = (SiteKind.LOAD, SiteKind.STORE, SiteKind.DESCRIPTOR)
    carriers = ("accesses", "flag")
    conditions = (
        Condition("target_has_descriptor_hardware", "the target is sm_90 or later"),
        Condition("descriptors_are_aligned", "the last stride is 1, other strides and bases are multiples of 16 bytes"),
    )

    def simplify(self, module: Module) -> Iterator[Proposal | Unsupported]:
        """Masked accesses through pointers."""
        for kernel in module.jit_functions.values():
            lines = body_lines(module, kernel)
            if not uses_descriptors(lines):
                continue
            site = make_site(module, SiteKind.KERNEL, kernel.node)
            taken = _names(kernel, lines)
            try:
                body, flags = pointer_branches(lines, kernel.constexprs)
                body = to_pointers(body, {}, taken)
            except CannotPointError as reason:
                yield Unsupported(self.name, "simplify", site, str(reason))
                continue
            editor = Editor(module)
            left = {n for line in walk_lines(body) for n in line.reads}
            remove_parameters(editor, kernel, flags - left)
            replace_body(editor, kernel, body)
            drop_allocator(editor, module, kernel.name)
            drop_test(editor, module, kernel.name, flags - left)
            stores = any(isinstance(n, ast.Attribute) and n.attr == "store" for x in lines for n in ast.walk(x.tree))
            params = {"accesses": "loads and stores" if stores else "loads", "flag": ",".join(sorted(flags))}
            yield Proposal(self.name, "simplify", site, editor.apply(), params, f"{kernel.name}: pointers and masks")

    def materialize(
        self, module: Module, hints: Hints | None = None, *, checked: bool = True
    ) -> Iterator[Proposal | Unsupported]:
        """Loads alone, then loads and stores."""
        for kernel in module.kernels.values():
            lines = body_lines(module, kernel)
            if uses_descriptors(lines) or "torch" not in module.source:
                continue
            plan = _plan(lines, kernel)
            if not any(p.load for p in plan):
                continue
            choices = ordered(("loads", "loads and stores"), hints, "accesses")
            if not any(not p.load for p in plan):
                choices = ["loads"]
            for choice in choices:
                chosen = [p for p in plan if p.load or choice != "loads"]
                yield self._materialize(module, kernel, chosen, choice, checked)

    def _materialize(
        self, module: Module, kernel: Function, plan: Sequence[_Access], choice: str, checked: bool
    ) -> Proposal | Unsupported:
        site = make_site(module, SiteKind.KERNEL, kernel.node)
        lines = body_lines(module, kernel)
        launches = module.launches_of(kernel.name)
        tests = [_test(module, launch, plan) for launch in launches]
        if checked and any(t is None for t in tests):
            reason = "the launcher does not pass the strides that a descriptor needs"
            return Unsupported(self.name, "materialize", site, reason)
        flag = unique("TMA", _names(kernel, lines))
        editor = Editor(module)
        if checked:
            add_constexpr(editor, kernel, flag, "False", ())
            for launch in launches:
                add_launch_keyword(editor, launch, flag, "describable")
        replace_body(editor, kernel, _described(lines, plan, flag if checked else "", _names(kernel, lines)))
        _prepare(editor, module, launches, [t for t in tests if t is not None] if checked else [])
        params = {"accesses": choice, "flag": flag if checked else "none"}
        note = f"{kernel.name}: {choice} by descriptor"
        return Proposal(self.name, "materialize", site, editor.apply(), params, note)


@dataclass(frozen=True)
class _Access:
    """A load or store (by the text of its call) and its tile."""

    text: str
    load: bool
    tile: Tile


def _names(kernel: Function, lines: Sequence[Line]) -> set[str]:
    return {n for line in walk_lines(lines) for n in (*line.reads, *line.writes)} | set(kernel.params)


def _plan(lines: Sequence[Line], kernel: Function) -> list[_Access]:
    facts = kernel_facts(lines, kernel.constexprs)
    moved = walks(lines)
    found: list[_Access] = []
    for line in walk_lines(lines):
        for node in ast.walk(line.tree) if not line.compound else ():
            if not isinstance(node, ast.Call) or tl_name(node) not in ("load", "store"):
                continue
            tile = tile_of(node, facts, moved, kernel.params) if _zero_filled(node) else None
            if tile is not None and _available(tile, lines):
                found.append(_Access(ast.unparse(node), tl_name(node) == "load", tile))
    return found


def _zero_filled(call: ast.Call) -> bool:
    other = call_argument(call, "other", 2) if tl_name(call) == "load" else None
    return other is None or (isinstance(other, ast.Constant) and other.value == 0)


def _available(tile: Tile, lines: Sequence[Line]) -> bool:
    """What the descriptor is made of is known before the first loop: parameters and top-level scalars."""
    inner = {n for line in lines if line.compound for n in line.writes}
    texts = [tile.base, *(t for a in tile.axes for t in (a.length, a.stride, a.block))]
    read = {n.id for t in texts for n in ast.walk(parse_ast(t)) if isinstance(n, ast.Name)}
    return not read & inner


def _test(module: Module, launch: Launch, plan: Sequence[_Access]) -> str | None:
    """The launcher's test that every tensor can have a descriptor."""
    parts: list[str] = []
    for access in plan:
        tensor = bound_text(module, launch, access.tile.root)
        outer, last = access.tile.axes
        if access.tile.turned:
            outer, last = last, outer
        wide = outer.stride if outer.stride.isdigit() else in_launcher(module, launch, outer.stride)
        narrow = last.stride if last.stride.isdigit() else in_launcher(module, launch, last.stride)
        if tensor is None or wide is None or narrow is None:
            return None
        if narrow != "1":
            parts.append(f"{atom(narrow)} == 1")
        parts.append(f"{atom(wide)} * {atom(tensor)}.element_size() % 16 == 0")
        parts.append(f"{atom(tensor)}.data_ptr() % 16 == 0")
    return "describable = (\n    " + "\n    and ".join(dict.fromkeys(parts)) + "\n)"


def _described(lines: Sequence[Line], plan: Sequence[_Access], flag: str, taken: set[str]) -> list[Line]:
    """The body with descriptors made before their first use, behind the flag when there is one."""
    made: dict[tuple[str, ...], str] = {}
    first = len(lines)
    texts: dict[str, str] = {}
    makers: list[Line] = []
    for access in plan:
        tile = access.tile
        rows, columns = (tile.axes[1], tile.axes[0]) if tile.turned else tile.axes
        key = (tile.base, rows.length, columns.length, rows.stride, rows.block, columns.block)
        if key not in made:
            stem = tile.root.removesuffix("_ptr").removesuffix("_PTR")
            made[key] = unique(f"{stem}_desc", taken)
            taken.add(made[key])
            makers.append(
                Line(
                    f"{made[key]} = tl.make_tensor_descriptor(\n"
                    f"    {tile.base},\n    shape=[{rows.length}, {columns.length}],\n"
                    f"    strides=[{rows.stride}, 1],\n    block_shape=[{rows.block}, {columns.block}],\n)"
                )
            )
        offsets = f"[{rows.start}, {columns.start}]"
        turn = ".T" if tile.turned else ""
        texts[access.text] = f"{made[key]}.load({offsets}){turn}" if access.load else f"{made[key]}.store({offsets}, "
        first = min(first, next(i for i, x in enumerate(lines) if access.text in _calls_in(x)))
    done = list(lines)
    for path, _ in reversed(list(blocks(lines))):
        current = _block_at(done, path)
        changed = _branches(current, texts, {a.text: a.tile for a in plan}, flag)
        if changed != current:
            done = replace_block(done, path, changed)
    head = Line(assemble([Section(f"if {flag}:", tuple(makers))]).text) if flag else None
    start = _position(done, lines, first)
    return [*done[:start], *([head] if head is not None else makers), *done[start:]]


def _calls_in(line: Line) -> set[str]:
    return {ast.unparse(n) for n in ast.walk(line.tree) if isinstance(n, ast.Call)}


def _position(done: Sequence[Line], lines: Sequence[Line], first: int) -> int:
    """Where the statement that stood at ``first`` stands now (statements before it are unchanged)."""
    return next((i for i, x in enumerate(done) if x not in lines[:first]), len(done)) if first else 0


def _block_at(lines: Sequence[Line], path: tuple[tuple[int, int], ...]) -> list[Line]:
    current = list(lines)
    for index, number in path:
        current = list(sections(current[index])[number].lines)
    return current


def _branches(block: Sequence[Line], texts: Mapping[str, str], tiles: Mapping[str, Tile], flag: str) -> list[Line]:
    done: list[Line] = []
    group: list[tuple[Line, Line]] = []

    def close() -> None:
        if group and flag:
            lead = group[0][0].lead
            with_descriptor = Section(f"if {flag}:", tuple(d.bare() for _, d in group))
            plain = Section("else:", (group[0][0].bare(), *(p for p, _ in group[1:])))
            done.append(Line(assemble([with_descriptor, plain]).text, lead))
        elif group:
            done.extend(d for _, d in group)
        group.clear()

    for line in block:
        new = line if line.compound else _replaced(line, texts, tiles)
        if new is line:
            close()
            done.append(line)
        else:
            group.append((line, new))
    close()
    return done


def _replaced(line: Line, texts: Mapping[str, str], tiles: Mapping[str, Tile]) -> Line:
    def change(node: ast.AST, at: Line) -> str | None:
        key = ast.unparse(node) if isinstance(node, ast.Call) else ""
        if key not in texts or not isinstance(node, ast.Call):
            return None
        text = texts[key]
        return f"{text}{_stored(at, node, tiles[key])})" if text.endswith(", ") else text

    return rewrite(line, change)


def _stored(line: Line, call: ast.Call, tile: Tile) -> str:
    """The value in the tensor's own type: a descriptor does not convert."""
    value = call.args[1]
    text = line.segment(value)
    cast = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in ("to", "cast")
    text = text if cast else f"{atom(text)}.to({tile.root}.dtype.element_ty)"
    return f"{atom(text)}.T" if tile.turned else text


def _prepare(editor: Editor, module: Module, launches: Sequence[Launch], tests: Sequence[str]) -> None:
    """Before the launch: memory for descriptors, and the test whether the tensors can have them."""
    known = "set_allocator" in module.source
    if launches and not known:
        around = module.ancestors(launches[0].call)
        outermost = around[-2] if len(around) > 1 else around[0]  # the last one is the module itself
        starts = [module.span(n)[0] for n in (outermost, *getattr(outermost, "decorators", ()))]
        start = module.data.rfind(b"\n", 0, min(starts)) + 1
        editor.replace_span(start, start, f"{_ALLOCATOR}\n\n")
    for index, launch in enumerate(launches):
        lines = ([] if known else ["triton.set_allocator(descriptor_space)"]) + list(tests[index : index + 1])
        if lines:
            editor.insert_before(module.statement(launch.call), "\n".join(lines))
