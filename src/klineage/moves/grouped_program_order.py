"""Grouped program order."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import libcst as cst

from ..model import SiteKind
from ..surface import Editor, Function, Module, make_site
from ..surface.query import argument, code, dotted, is_call, names_read
from ._flow import Definition, Env, Flow, ceil_division, flow_of, parse
from ._grids import Grid, grid_of, product
from ._kernels import dots_in
from ._launches import add_constexpr, constant, drop_parameter, fresh_name
from ._nodes import calls, find
from ._tiles import bounds, roles
from .base import Condition, Context, Hints, Move, Proposal, Unsupported, ordered, predicate

# P: linear program, G: rows in a group, A: tiles along the grouped axis, Q: tiles along the other axis
_FIRST = "(P // (G * Q)) * G"
_SIZE = f"min(A - {_FIRST}, G)"
_GROUPED = (f"{_FIRST} + ((P % (G * Q)) % {_SIZE})", f"{_FIRST} + (P % {_SIZE})")
_OTHER = f"(P % (G * Q)) // {_SIZE}"
_CHOICES = ("8", "4", "16")


@dataclass(frozen=True)
class _Map:
    """A tile map of a kernel: ``slow``/``fast`` are the definitions of the two tile indices."""

    function: Function
    flow: Flow
    slow: Definition  # the grouped axis
    fast: Definition
    env: Env


@predicate
def program_ids_map_tiles(context: Context, _args: Mapping[str, str]) -> bool | None:
    """The kernel reads its program id for the map to tiles alone."""
    if context.site is None or context.site.function not in context.module.functions:
        return None
    function = context.module.functions[context.site.function]
    return len(calls(function.node.body, "program_id")) <= 2 and not calls(function.node.body, "num_programs")


class GroupedProgramOrder(Move):
    """Grouped program order.

    Programs that run at the same time cover a nearly square patch of the output instead of one long row of tiles, so
    that they share both operands' tiles in the L2 cache.

    ```python
    pid_m = pid // num_pid_n
    pid_n = pid % num_pid_n
    -->
    num_pid_in_group = GROUP_M * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_M)
    pid_m = first_pid_m + ((pid % num_pid_in_group) % group_size_m)
    pid_n = (pid % num_pid_in_group) // group_size_m
    ```

    Must hold:
    - the program id is read for the map to tiles alone (the map changes which program makes which tile).

    Refused:
    - maps whose tile counts cannot be derived from the kernel's own bounds;
    - two-dimensional grids written where the launcher's text cannot be rewritten, or shared with another kernel.
    """

    rank = 45
    anchors: ClassVar = (SiteKind.PROGRAM_ID, SiteKind.KERNEL)
    carriers: ClassVar = ("group",)
    conditions: ClassVar = (
        Condition("program_ids_map_tiles", "the kernel reads its program id for the map to tiles alone"),
    )

    # --------------------------------------------------------------- simplify
    def simplify(self, module: Module) -> Iterator[Proposal | Unsupported]:
        for function in module.kernels.values():
            for found in _grouped_maps(function):
                yield self._ungroup(module, found)
            for statement, call in _swizzles(function):
                yield self._unswizzle(module, function, statement, call)

    def _ungroup(self, module: Module, found: _Map) -> Proposal:
        site = make_site(module, SiteKind.PROGRAM_ID, found.slow.statement, axis=found.slow.name)
        editor = Editor(module)
        linear, other = (ast.unparse(found.env[k]) for k in ("P", "Q"))
        lines = [f"{found.slow.name} = {linear} // {_tight(other)}", f"{found.fast.name} = {linear} % {_tight(other)}"]
        gone = {found.slow.statement, found.fast.statement}
        group = ast.unparse(found.env["G"])
        read = names_read(cst.parse_module("\n".join(lines)))
        dead = found.flow.dead_after(gone, read)
        if len(gone) == 1:
            editor.replace_statement(found.slow.statement, "\n".join(lines))
        else:
            editor.replace_statement(found.slow.statement, lines[0])
            editor.replace_statement(found.fast.statement, lines[1])
        for statement in dead:
            editor.remove_statement(statement)
        _drop_unused(editor, found.function, group, {*gone, *dead}, read)
        if len(gone) == 1:
            _drop_helper(editor, found.slow.statement)
        return Proposal(self.name, "simplify", site, editor.apply(), {"group": _group_value(module, found, group)})

    def _unswizzle(
        self, module: Module, function: Function, statement: cst.SimpleStatementLine, call: cst.Call
    ) -> Proposal:
        site = make_site(module, SiteKind.PROGRAM_ID, statement)
        targets = [n.value for n in find(statement.body[0].targets[0].target, cst.Name)]  # type: ignore[attr-defined]
        values = [code(a.value).strip() for a in call.args[:2]]
        editor = Editor(module)
        if targets == values:
            editor.remove_statement(statement)
        else:
            editor.replace_statement(statement, f"{', '.join(targets)} = {', '.join(values)}")
        dead = flow_of(function).dead_after({statement}, set(values))
        for other in dead:
            editor.remove_statement(other)
        size = argument(call, "size_g", 4)
        group = "" if size is None else code(size.value).strip()
        _drop_unused(editor, function, group, {statement, *dead}, set(values))
        return Proposal(self.name, "simplify", site, editor.apply(), {"group": _value_of(module, function, group)})

    # ------------------------------------------------------------ materialize
    def materialize(
        self, module: Module, hints: Hints | None = None, *, checked: bool = True
    ) -> Iterator[Proposal | Unsupported]:
        values = [v for v in ordered(_CHOICES, hints, "group") if v.isdigit() and int(v) > 1]
        for function in module.kernels.values():
            if not dots_in(module, function.node.body) or next(_grouped_maps(function), None):
                continue
            if function.decorator("autotune") is not None or next(_swizzles(function), None):
                continue
            for found in (*_row_major_maps(module, function), *_plane_maps(module, function)):
                for value in values:
                    result = self._group(module, found, value, checked)
                    yield result
                    if isinstance(result, Unsupported):
                        break

    def _group(self, module: Module, found: _Map, value: str, checked: bool) -> Proposal | Unsupported:
        function, flow = found.function, found.flow
        site = make_site(module, SiteKind.PROGRAM_ID, found.slow.statement, axis=found.slow.name)
        tiles = [_tile_of(module, function, d.name) for d in (found.slow, found.fast)]
        extents = [next(iter(bounds(flow, t)), None) if t else None for t in tiles]
        if None in tiles or None in extents:
            return Unsupported(self.name, "materialize", site, "the tile counts do not follow from the kernel's bounds")
        if checked and not _only_maps(found):
            return Unsupported(self.name, "materialize", site, "the program id is read for more than the map to tiles")
        editor = Editor(module)
        reason = _group_edits(editor, found, [str(t) for t in tiles], [str(e) for e in extents], value)
        if reason:
            return Unsupported(self.name, "materialize", site, reason)
        return Proposal(self.name, "materialize", site, editor.apply(), {"group": value})


# ---------------------------------------------------------------- recognising
def _grouped_maps(function: Function) -> Iterator[_Map]:
    flow = flow_of(function)
    singles = [d for name in flow.definitions if (d := flow.single(name)) is not None]
    for slow in singles:
        env = _match(flow, _GROUPED, slow)
        if env is None:
            continue
        for fast in singles:
            both = None if fast is slow else _match(flow, (_OTHER,), fast, env)
            if both is not None and flow.module.parent(slow.statement) is flow.module.parent(fast.statement):
                yield _Map(function, flow, slow, fast, both)
                break


def _match(flow: Flow, patterns: tuple[str, ...], definition: Definition, env: Env | None = None) -> Env | None:
    if not isinstance(definition.value, ast.BinOp):
        return None
    return next((e for p in patterns if (e := flow.match(p, definition.value, env)) is not None), None)


def _row_major_maps(module: Module, function: Function) -> Iterator[_Map]:
    """``a = pid // Q; b = pid % Q`` where Q counts tiles."""
    flow = flow_of(function)
    singles = [d for name in flow.definitions if (d := flow.single(name)) is not None]
    for slow in singles:
        env = _match(flow, ("P // Q",), slow)
        if env is None or not _counts_tiles(flow, env["Q"]):
            continue
        for fast in singles:
            both = _match(flow, ("P % Q",), fast, env)
            if both is not None and module.parent(slow.statement) is module.parent(fast.statement):
                yield _Map(function, flow, slow, fast, both)
                return


def _counts_tiles(flow: Flow, node: ast.expr) -> bool:
    return ceil_division(flow.expand(node)) is not None


def _plane_maps(module: Module, function: Function) -> Iterator[_Map]:
    """``a = program_id(0); b = program_id(1)``; the grouped axis is the rows of the product."""
    flow = flow_of(function)
    found: dict[int, Definition] = {}
    for name in flow.definitions:
        definition = flow.single(name)
        value = None if definition is None else definition.value
        for axis in (0, 1):
            if definition and value is not None and _program_id(axis).fullmatch(ast.unparse(value)):
                found[axis] = definition
    if len(found) != 2 or module.parent(found[0].statement) is not module.parent(found[1].statement):
        return
    role = roles(module, function)
    tile = _tile_of(module, function, found[0].name)
    first, second = (0, 1) if tile is None or role.get(tile, "m") == "m" else (1, 0)
    yield _Map(function, flow, found[first], found[second], {})


def _program_id(axis: int) -> re.Pattern[str]:
    return re.compile(rf"tl\.program_id\((?:axis=)?{axis}\)(?P<cast>\.to\(tl\.int(?:32|64)\))?")


def _tile_of(module: Module, function: Function, index: str) -> str | None:
    """The tile constexpr that an index steps by (``index * BLOCK``)."""
    names = roles(module, function)
    for node in find(function.node.body, cst.BinaryOperation, lambda n: isinstance(n.operator, cst.Multiply)):
        sides = [code(node.left).strip(), code(node.right).strip()]
        for one, other in (sides, sides[::-1]):
            if one == index and other in names:
                return other
    return None


def _only_maps(found: _Map) -> bool:
    body = found.function.node.body
    if calls(body, "num_programs"):
        return False
    if "P" not in found.env:
        return len(calls(body, "program_id")) == 2 or (_axes(body) <= {"0", "1", "2"} and _axis_uses(body) <= 1)
    linear = found.env["P"]
    if not isinstance(linear, ast.Name):
        return len(calls(body, "program_id")) <= 2
    users = found.flow.readers(linear.id)
    return all(user in (found.slow.statement, found.fast.statement) for user in users)


def _axes(body: cst.CSTNode) -> set[str]:
    return {code(c.args[0].value).strip() for c in calls(body, "program_id") if c.args}


def _axis_uses(body: cst.CSTNode) -> int:
    """The most often any of the first two axes is asked for."""
    axes = [code(c.args[0].value).strip() for c in calls(body, "program_id") if c.args]
    return max(axes.count("0"), axes.count("1"))


def _swizzles(function: Function) -> Iterator[tuple[cst.SimpleStatementLine, cst.Call]]:
    for statement in find(function.node.body, cst.SimpleStatementLine):
        small = statement.body[0]
        if isinstance(small, cst.Assign) and isinstance(small.value, cst.Call) and is_call(small.value, "swizzle2d"):
            yield statement, small.value


# ------------------------------------------------------------------- rewriting
def _drop_unused(editor: Editor, function: Function, group: str, gone: set[cst.CSTNode], read: set[str]) -> None:
    """Drop the group's constexpr when nothing else in the kernel reads it."""
    flow = flow_of(function)
    left = [s for s in flow.readers(group) if s not in gone]
    if group in function.constexprs and not left and group not in read:
        drop_parameter(editor, function, group)


def _drop_helper(editor: Editor, statement: cst.CSTNode) -> None:
    """Remove the device helper that made the map when nothing else calls it."""
    module = editor.module
    for name in {dotted(c.func) or "" for c in calls(statement)} & set(module.jit_functions):
        users = [c for c in find(module.tree, cst.Name) if c.value == name]
        if len(users) == 2:  # its own definition and the call that went
            editor.remove_statement(module.jit_functions[name].node)


def _group_value(module: Module, found: _Map, group: str) -> str:
    return _value_of(module, found.function, group)


def _value_of(module: Module, function: Function, group: str) -> str:
    for launch in module.launches_of(function.name):
        if group in launch.bound:
            size = constant(module, launch, launch.bound[group].value)
            return str(size.value) if size else code(launch.bound[group].value).strip()
    return group


def _tight(text: str) -> str:
    node = parse(text)
    return text if isinstance(node, ast.Name | ast.Call | ast.Constant | ast.Attribute) else f"({text})"


def _group_edits(editor: Editor, found: _Map, tiles: list[str], extents: list[str], value: str) -> str:
    """Collect the edits of the grouped map; a reason when the grid cannot follow."""
    module, function, flow = editor.module, found.function, found.flow
    letter = roles(module, function).get(tiles[0], "m")
    other = roles(module, function).get(tiles[1], "n")
    launches = module.launches_of(function.name)
    group = fresh_name(module, f"GROUP_{letter.upper()}", function)
    lines: list[str] = []
    if "P" in found.env:
        linear, fast_count = ast.unparse(found.env["P"]), ast.unparse(found.env["Q"])
    else:
        grids = {id(g.node): g for launch in launches if (g := grid_of(module, launch)) is not None}
        if len(grids) == 0 or any(grid_of(module, launch) is None for launch in launches):
            return "the launch's grid is not written as a tuple"
        if any(g.shared or len(g.parts) < 2 for g in grids.values()):
            return "the grid serves another kernel too, or has fewer than two axes"
        for grid in grids.values():
            _flatten(editor, grid)
        linear, fast_count = fresh_name(module, "pid", function), fresh_name(module, f"num_pid_{other}", function)
        cast = ".to(tl.int64)" if ".to(tl.int64)" in code(found.slow.statement) else ""
        lines.append(f"{linear} = tl.program_id(0){cast}")
    slow_count = _existing_count(flow, tiles[0], extents[0], found.slow.statement)
    count_line = ""
    if slow_count is None:
        slow_count = fresh_name(module, f"num_pid_{letter}", function)
        count_line = f"{slow_count} = tl.cdiv({extents[0]}, {tiles[0]})"
    counted = flow.single(fast_count) if "P" in found.env else None
    first, last = sorted((found.slow.statement, found.fast.statement), key=lambda s: module.span(s)[0])
    if any(module.span(first)[0] < module.span(r)[0] < module.span(last)[0] for r in _readers(found)):
        return "a tile index is read before the other one is bound"
    if count_line and counted is not None and module.parent(counted.statement) is module.parent(first):
        editor.insert_before(counted.statement, count_line)
    elif count_line:
        lines.append(count_line)
    if "P" not in found.env:
        lines.append(f"{fast_count} = tl.cdiv({extents[1]}, {tiles[1]})")
    names = {n: fresh_name(module, n, function) for n in _locals(letter)}
    per_group, group_id, start, size = (names[n] for n in _locals(letter))
    lines += [
        f"{per_group} = {group} * {_tight(fast_count)}",
        f"{group_id} = {linear} // {per_group}",
        f"{start} = {group_id} * {group}",
        f"{size} = min({slow_count} - {start}, {group})",
        f"{found.slow.name} = {start} + (({linear} % {per_group}) % {size})",
        f"{found.fast.name} = ({linear} % {per_group}) // {size}",
    ]
    if first is not last:
        editor.remove_statement(first)
    editor.replace_statement(last, "\n".join(lines))
    add_constexpr(editor, function, group, value, launches)
    return ""


def _readers(found: _Map) -> list[cst.CSTNode]:
    return [r for d in (found.slow, found.fast) for r in found.flow.readers(d.name)]


def _locals(letter: str) -> tuple[str, str, str, str]:
    return ("num_pid_in_group", "group_id", f"first_pid_{letter}", f"group_size_{letter}")


def _existing_count(flow: Flow, tile: str, extent: str, before: cst.CSTNode) -> str | None:
    """The kernel's own name for the tiles along an axis, when it is bound before a statement."""
    wanted = parse(f"tl.cdiv({extent}, {tile})")
    limit = flow.module.span(before)[0]
    for name in flow.definitions:
        found = flow.single(name)
        if found is None or found.value is None or not flow.same(found.value, wanted):
            continue
        if flow.module.span(found.statement)[0] < limit:
            return name
    return None


def _flatten(editor: Editor, grid: Grid) -> None:
    """``(a, b)`` becomes ``(a * b,)``; a third axis stays the third."""
    rest = ["1", *grid.parts[2:]] if len(grid.parts) > 2 else []
    grid.rewrite(editor, [product(list(grid.parts[:2])), *rest])
