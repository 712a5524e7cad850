"""Tile loops of persistent kernels: recognising them, opening them, closing them, and the launcher's side of both."""

from __future__ import annotations

import ast
import textwrap
from dataclasses import dataclass

import libcst as cst

from ..surface import Editor, Function, Launch, Module
from ..surface.pyast import parse_ast
from ..surface.query import assignment, augmented, code, names_read, names_written, normal, substitute
from ._flow import flow_of, parse
from ._grids import Grid
from ._kernels import docstring_free
from ._nodes import calls, find

_STARTS = ("tl.program_id(0)", "tl.program_id(axis=0)", "tl.program_id(0).to(tl.int64)")
_OTHER_AXES = ("tl.program_id(1)", "tl.program_id(axis=1)", "tl.program_id(2)", "tl.program_id(axis=2)")


@dataclass(frozen=True)
class TileLoop:
    """``for tile in range(start, count, step)`` that ends a kernel; ``step`` is the number of programs."""

    loop: cst.For
    tile: str
    start: cst.BaseExpression
    count: cst.BaseExpression
    step: str
    form: str  # "range", or tl.range with its options


def tile_loop(function: Function) -> TileLoop | str | None:
    """The kernel's tile loop; a reason when one is there that cannot be opened; None when there is none."""
    flow = flow_of(function)
    for loop in find(function.node.body, cst.For):
        call = loop.iter
        if not isinstance(call, cst.Call) or code(call.func).strip() not in ("range", "tl.range"):
            continue
        args = [a for a in call.args if a.keyword is None]
        if len(args) != 3 or not isinstance(loop.target, cst.Name):
            continue
        start = ast.unparse(flow.expand(parse(code(args[0].value))))
        if "program_id" not in start:
            continue
        step = code(args[2].value).strip()
        counts = _counts_programs(function, ast.unparse(flow.expand(parse(step))))
        if start not in _STARTS:
            if counts and start in _OTHER_AXES and step not in names_read(loop.body):
                return f"the loop over tiles starts at {start}"
            continue  # a loop over the program's own share
        if not counts:
            return f"the loop over tiles steps by {step}, which is not the number of programs"
        options = ", ".join(code(a).strip().rstrip(",") for a in call.args if a.keyword is not None)
        form = f"tl.range {options}".strip() if code(call.func).strip() == "tl.range" else "range"
        found = TileLoop(loop, loop.target.value, args[0].value, args[1].value, step, form)
        return _objection(function, found) or found
    return _flattened(function)


def _counts_programs(function: Function, step: str) -> bool:
    return step in function.constexprs or step in ("tl.num_programs(0)", "tl.num_programs(axis=0)")


def _objection(function: Function, found: TileLoop) -> str:
    statements = docstring_free(function)
    if statements[-1] is not found.loop:
        return "the loop over tiles is not the kernel's last statement"
    before: set[str] = set(function.params)
    for statement in statements[:-1]:
        before |= names_written(statement)
        if isinstance(statement, cst.BaseCompoundStatement) or calls(statement, "store"):
            return "the kernel does more than count before its loop over tiles"
    carried = sorted(names_written(found.loop.body) & before)
    if carried:
        return f"{carried[0]} is carried from tile to tile"
    if find(found.loop.body, cst.Break) or found.loop.orelse is not None:
        return "the loop over tiles may end early"
    if any(not _inside_loop(found.loop, c) for c in find(found.loop.body, cst.Continue)):
        return "the loop over tiles skips tiles"
    if found.step in names_read(found.loop.body) or calls(found.loop.body, "num_programs"):
        return "the loop's body reads the number of programs"
    if found.step in {n for s in statements[:-1] for n in names_read(s)}:
        return f"the kernel computes with {found.step} before its loop over tiles"
    return ""


def _inside_loop(outer: cst.For, node: cst.CSTNode) -> bool:
    return any(node in find(inner, cst.Continue) for inner in find(outer.body, cst.For) if inner is not outer)


def _flattened(function: Function) -> str | None:
    """A tile index that steps by the number of programs inside another loop."""
    flow = flow_of(function)
    for loop in find(function.node.body, cst.For):
        for statement in find(loop.body, cst.SimpleStatementLine):
            found = augmented(statement)
            if found is None or found[1] != "+=" or "tl.program_id" not in _first_value(function, found[0]):
                continue
            if _counts_programs(function, ast.unparse(flow.expand(parse(code(found[2]))))):
                return "the loop over tiles is flattened with the loop over the reduction axis"
    return None


def _first_value(function: Function, name: str) -> str:
    flow = flow_of(function)
    values = [d.value for d in flow.definitions.get(name, []) if d.value is not None]
    return ast.unparse(flow.expand(values[0])) if values else ""


# -------------------------------------------------------------------- opening
def without_shadows(module: Module, function: Function) -> str | None:
    """The module with a second tile index, kept in step by hand, bound to the loop's own (None: there is none).

    Experts write ``tile_c = start - STEP`` before the loop and ``tile_c += STEP`` in it, so that the epilogue's index
    is a value of its own for the compiler.
    """
    flow = flow_of(function)
    editor = Editor(module)
    for loop in find(function.node.body, cst.For):
        args = [a.value for a in loop.iter.args if a.keyword is None] if isinstance(loop.iter, cst.Call) else []
        if len(args) != 3 or not isinstance(loop.target, cst.Name) or not isinstance(loop.body, cst.IndentedBlock):
            continue
        first = flow.canonical(parse(f"({code(args[0])}) - ({code(args[2])})"))
        for statement in loop.body.body:
            found = augmented(statement)
            if found is None or found[1] != "+=" or normal(found[2]) != normal(args[2]):
                continue
            bound = flow.definitions.get(found[0], [])
            if len(bound) == 2 and bound[0].value is not None and flow.canonical(bound[0].value) == first:
                editor.remove_statement(bound[0].statement)
                editor.replace_statement(statement, f"{found[0]} = {loop.target.value}")
    return editor.apply() if editor.count else None


def open_loop(editor: Editor, function: Function, found: TileLoop) -> None:
    """One program, one tile: the loop's body stands in its place."""
    module = editor.module
    body = body_text(module, found.loop)
    flow = flow_of(function)
    start = code(found.start).strip()
    gone: set[cst.CSTNode] = {found.loop}
    dead = flow.dead_after(gone, names_read(found.loop.body))
    opened = ast.unparse(flow.expand(parse(start)))
    alone = isinstance(found.start, cst.Name) and all(r is found.loop for r in flow.readers(start))
    if not alone and isinstance(found.start, cst.Name):
        dead = [s for s in dead if start not in names_written(s)]
        opened = start
    first = _program_id_line(found, opened)
    lines = body if first is None else f"{first}\n{body}"
    for statement in dead:
        editor.remove_statement(statement)
    editor.replace_statement(found.loop, lines)


def _program_id_line(found: TileLoop, opened: str) -> str | None:
    return None if found.tile == opened else f"{found.tile} = {opened}"


def body_text(module: Module, node: cst.For) -> str:
    """Text of a block's statements with the comments above the first, dedented."""
    assert isinstance(node.body, cst.IndentedBlock)
    return _rows_text(module, node.body.body[0], node.body.body[-1], comments=True)


def _rows_text(module: Module, first: cst.CSTNode, last: cst.CSTNode, *, comments: bool = False) -> str:
    """Text of whole statements, dedented; with ``comments`` those above the first too."""
    data = module.data
    start = data.rfind(b"\n", 0, module.span(first)[0]) + 1
    while comments and start > 0:
        above = data.rfind(b"\n", 0, start - 1) + 1
        if not data[above : start - 1].lstrip().startswith(b"#"):
            break
        start = above
    end = module.span(last)[1]
    return textwrap.dedent(data[start:end].decode()).strip("\n")


# -------------------------------------------------------------------- closing
def close_loop(editor: Editor, function: Function, count: str, step: str, form: str) -> str:
    """Wrap the kernel's body into a loop over tiles; a reason when that cannot be done."""
    module = editor.module
    statements = docstring_free(function)
    first, last = statements[0], statements[-1]
    text = _rows_text(module, first, last)
    text, reason = _without_assigned_parameters(function, text)
    if reason:
        return reason
    named = [s for s in parse_ast(text).body if _names_program(s)]
    tile = _target_of(named[0]) if len(named) == 1 else ""
    if tile:
        rows = text.split("\n")
        node = named[0]
        del rows[node.lineno - 1 : node.end_lineno]
        text = "\n".join(rows)
    else:
        taken = {n.value for n in find(function.node, cst.Name)}
        tile = "tile" if "tile" not in taken else "tile_id"
        if tile in taken:
            return "the kernel already uses the names tile and tile_id"
    for spelling in ("tl.program_id(0)", "tl.program_id(axis=0)"):
        text = text.replace(spelling, tile)
    head, _, options = form.partition(" ")
    extra = f", {options}" if options else ""
    header = f"for {tile} in {head}(tl.program_id(0), {count}, {step}{extra}):"
    editor.replace_statements(first, last, f"{header}\n{textwrap.indent(text, '    ')}")
    return ""


def _names_program(statement: ast.stmt) -> bool:
    """``name = tl.program_id(0)``."""
    value = statement.value if isinstance(statement, ast.Assign) else None
    return value is not None and ast.unparse(value) in ("tl.program_id(0)", "tl.program_id(axis=0)")


def _target_of(statement: ast.stmt) -> str:
    target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    return target.id if isinstance(target, ast.Name) else ""


def _without_assigned_parameters(function: Function, text: str) -> tuple[str, str]:
    """Give ``x_ptr += offset`` a name of its own, so that the next tile starts from the parameter again."""
    tree = parse_ast(text)
    for index, statement in enumerate(tree.body):
        written = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        mine = sorted(written & set(function.params))
        if not mine:
            continue
        name = mine[0]
        fresh = f"{name}_tile"
        again = any(name in names_written(cst.parse_module(ast.unparse(s))) for s in tree.body[index + 1 :])
        if (
            not isinstance(statement, ast.AugAssign)
            or not isinstance(statement.op, ast.Add | ast.Sub)
            or again
            or len(mine) > 1
            or fresh in text
        ):
            return text, f"the kernel assigns its parameter {name}"
        rows = text.split("\n")
        sign = "+" if isinstance(statement.op, ast.Add) else "-"
        line = f"{fresh} = {name} {sign} {_factor(ast.unparse(statement.value))}"
        after = substitute("\n".join(rows[statement.end_lineno :]), {name: fresh})
        return _without_assigned_parameters(
            function, "\n".join([*rows[: statement.lineno - 1], line, after.strip("\n")])
        )
    return text, ""


def _factor(text: str) -> str:
    node = parse(text)
    return f"({text})" if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) else text


# ------------------------------------------------------------------- launcher
def tiles_of_grid(module: Module, launch: Launch, grid: Grid, found: TileLoop) -> str | None:
    """How many tiles there are, as the launcher writes it (None when that does not follow)."""
    parts = grid.parts
    if not _grid_of_programs(launch, grid, found):
        return None
    step = launch.bound.get(found.step)
    tree = parse(parts[0])
    if isinstance(tree, ast.Call) and ast.unparse(tree.func) == "min" and len(tree.args) == 2 and step is not None:
        texts = [ast.unparse(a) for a in tree.args]
        mine = normal(step.value)
        others = [t for t in texts if t != mine and not t.startswith(f"{grid.meta}[")]
        if len(others) == 1:
            return others[0]
    return _host_text(module, launch, found)


def _grid_of_programs(launch: Launch, grid: Grid, found: TileLoop) -> bool:
    """Whether the grid has as many programs as the loop steps by (at most: ``min(step, tiles)``)."""
    if found.step not in launch.bound:
        return True  # tl.num_programs(0), or a name bound to it
    own = ast.unparse(parse(code(launch.bound[found.step].value)))
    meta = {f"{grid.meta}['{found.step}']", f'{grid.meta}["{found.step}"]'}
    tree = parse(grid.parts[0])
    terms = tree.args if isinstance(tree, ast.Call) and ast.unparse(tree.func) == "min" else [tree]
    return any(ast.unparse(t) == own or ast.unparse(t) in meta for t in terms)


def _host_text(module: Module, launch: Launch, found: TileLoop) -> str | None:
    """The kernel's own tile count with its parameters replaced by what the launch passes."""
    function = module.functions[launch.kernel]
    opened = flow_of(function).expand(parse(code(found.count)))
    names = {n.id for n in ast.walk(opened) if isinstance(n, ast.Name)} - {"tl", "min", "max"}
    if any(name not in launch.bound for name in names):
        return None
    text = substitute(ast.unparse(opened), {n: f"({code(launch.bound[n].value).strip()})" for n in names})
    text = text.replace("tl.cdiv", "triton.cdiv")
    tree = parse(text)
    return None if "tl." in ast.unparse(tree) else ast.unparse(tree)


def drop_dead_locals(source: str, function: str, names: set[str]) -> str:
    """Remove launcher lines that bind one of ``names`` (or what those read) when nothing reads it any more."""
    names = set(names)
    changed = True
    while changed:
        changed = False
        module = Module.parse(source)
        host = module.functions.get(function)
        if host is None:
            return source
        for statement in find(host.node.body, cst.SimpleStatementLine):
            pair = assignment(statement)
            if pair is None or pair[0] not in names or not _idle(pair[1]):
                continue
            readers = [s for s in find(host.node.body, cst.SimpleStatementLine) if pair[0] in names_read(s)]
            headers = [s for s in find(host.node.body, cst.If) if pair[0] in names_read(s.test)]
            if readers or headers:
                continue
            names |= names_read(pair[1])
            editor = Editor(module)
            editor.remove_statement(statement)
            source = editor.apply()
            changed = True
            break
    return source


def _idle(value: cst.BaseExpression) -> bool:
    """Whether evaluating a launcher expression has no effect: counts and device properties."""
    named = {code(c.func).strip().split(".")[-1] for c in find(value, cst.Call)}
    return named <= {"cdiv", "min", "max", "get_device_properties", "current_device", "numel", "size", "num_sms"}


def device_text(launch: Launch, pointers: frozenset[str]) -> str | None:
    """``x.device`` of a tensor that the launch passes."""
    for parameter, arg in launch.bound.items():
        if parameter in pointers and isinstance(arg.value, cst.Name):
            return f"{arg.value.value}.device"
    return None
