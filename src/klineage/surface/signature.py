"""Parameters that every call gives the same constant, or that nobody reads: taken out of signature and calls."""

from __future__ import annotations

import ast
import re

from .flow import heuristic
from .fold import Known
from .program import Call, Program, default_of, has_docstring, is_constexpr
from .prune import is_tile
from .purity import pure
from .pytext import Edit, PyText, dotted_name


def constant_parameters(program: Program) -> list[Edit]:
    """Fold parameters with one constant value, one function per round."""
    for name, function in program.functions.items():
        if not _open_to_change(program, name):
            continue
        edits: list[Edit] = []
        gone: set[str] = set()
        top: list[str] = []
        for parameter in function.args.args:
            value = program.flows.argument(name, parameter.arg)
            literal = value.literal() if isinstance(value, Known) else None
            if value is None or literal is None or not isinstance(value, Known):
                continue
            if name not in program.kernels:
                gone.add(parameter.arg)
                top.append(f"{parameter.arg} = {literal}")
                continue
            uses = _kernel_uses(program, function, parameter, value)
            if uses is not None and _decorators_allow(program, function, parameter.arg):
                gone.add(parameter.arg)
                edits += [Edit(*program.text.span(u), _guard(program, u, literal)) for u in uses]
        if gone:
            edits += _decorator_edits(program, function, gone)
            edits += _without(program, name, gone) + _docstring_edits(program, function, gone)
            return edits + ([_at_top(program.text, function, top)] if top else [])
    return []


def unused_parameters(program: Program) -> list[Edit]:
    """Drop parameters that the body does not read, with their arguments, one function per round."""
    for name, function in program.functions.items():
        if not _open_to_change(program, name):
            continue
        kernel = name in program.kernels
        read = {n.id for s in function.body for n in ast.walk(s) if isinstance(n, ast.Name)}
        gone: set[str] = set()
        for parameter in function.args.args:
            called = [c.arguments[parameter.arg] for c in program.calls[name] if parameter.arg in c.arguments]
            callers = [c.caller for c in program.calls[name]]
            if parameter.arg in read or (kernel and parameter.arg in program.decorator_strings(function)):
                continue
            if _read_by_grid(program, parameter.arg, callers):
                continue
            if all(pure(a, program, c in program.kernels) for a, c in zip(called, callers, strict=False)):
                gone.add(parameter.arg)
        if gone:
            return _without(program, name, gone) + _docstring_edits(program, function, gone)
    return []


def single_results(program: Program) -> list[Edit]:
    """``f(...)[0]`` on every call: ``f`` returns just that element."""
    for name, function in program.functions.items():
        calls = program.calls[name]
        if not _open_to_change(program, name) or name in program.kernels or not calls:
            continue
        subscripts = [program.parents[id(c.node)] for c in calls]
        index = _common_index(subscripts, calls)
        returns = [n for n in ast.walk(function) if isinstance(n, ast.Return)]
        nested = [n for n in ast.walk(function) if isinstance(n, ast.FunctionDef | ast.Lambda | ast.Yield)]
        if index is None or len(nested) > 1 or not returns:
            continue
        elements = [_element(program, r, index) for r in returns]
        if all(e is not None for e in elements):
            edits = [
                Edit(*program.text.outer_span(r.value), _parenthesised(program.text, e))
                for r, e in zip(returns, elements, strict=True)
                if r.value is not None and e is not None
            ]
            calls_alone = [
                Edit(program.text.span(c.node)[1], program.text.span(s)[1], "")
                for c, s in zip(calls, subscripts, strict=True)
            ]
            return edits + calls_alone + _annotation_edits(program.text, function)
    return []


def empty_keywords(program: Program) -> list[Edit]:
    """``options = {}`` ... ``f(**options)`` passes nothing."""
    for function in program.functions.values():
        for statement in ast.walk(function):
            if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
                continue
            name = statement.targets[0].id
            if not isinstance(statement.value, ast.Dict) or statement.value.keys or len(statement.targets) > 1:
                continue
            uses = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name]
            loads = [n for n in uses if n is not statement.targets[0]]
            starred = [program.parents[id(n)] for n in loads]
            if loads and all(isinstance(k, ast.keyword) and k.arg is None for k in starred):
                calls = {id(program.parents[id(k)]): program.parents[id(k)] for k in starred}
                return [e for c in calls.values() if isinstance(c, ast.Call) for e in _drop(program, c, starred)]
    return []


def _open_to_change(program: Program, name: str) -> bool:
    function = program.functions[name]
    arguments = function.args
    plain = not (arguments.posonlyargs or arguments.kwonlyargs or arguments.vararg or arguments.kwarg)
    decorated = bool(function.decorator_list) and name not in program.kernels
    calls = program.calls[name]
    closed = name != program.entry and name not in program.escaped and not decorated
    return bool(plain and closed and calls and not any(c.opaque for c in calls))


def _kernel_uses(
    program: Program, function: ast.FunctionDef, parameter: ast.arg, value: Known
) -> list[ast.Name] | None:
    """Where a kernel reads a parameter to be folded; None when it must stay a parameter."""
    name = parameter.arg
    if not is_constexpr(parameter) and value.value is not None:
        return None  # run-time arguments are rounded and specialised by Triton
    if isinstance(value.value, tuple | list | dict):
        return None
    uses = [n for s in function.body for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == name]
    for use in uses:
        parent = program.parents[id(use)]
        if not isinstance(use.ctx, ast.Load) or isinstance(parent, ast.Attribute | ast.FormattedValue):
            return None
    number = isinstance(value.value, int) and not isinstance(value.value, bool) and value.value > 0
    if number and (is_tile(name, value.value) or not all(_decides(program, u) for u in uses)):
        return None
    callers = [c.caller for c in program.calls[function.name]]
    return None if _read_by_grid(program, name, callers) else uses


def _decides(program: Program, node: ast.AST) -> bool:
    """True for a name that only stands in a test."""
    current = node
    while True:
        parent = program.parents[id(current)]
        if isinstance(parent, ast.If | ast.IfExp) and parent.test is current:
            return True
        if not isinstance(parent, ast.Compare | ast.BoolOp | ast.UnaryOp):
            return False
        current = parent


def _read_by_grid(program: Program, name: str, callers: list[str]) -> bool:
    """True when a launcher asks for ``meta["name"]`` (the name in a subscript anywhere in it)."""
    scopes = [program.functions[c] for c in callers if c in program.functions]
    for scope in scopes or [program.text.tree]:
        for node in ast.walk(scope):
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == name:
                return True
    return False


def _decorators_allow(program: Program, function: ast.FunctionDef, name: str) -> bool:
    """True when decorators name a parameter only as an autotune key or as what a heuristic computes."""
    for node in program.decorator_strings(function).get(name, []):
        computed = isinstance(program.parents[id(node)], ast.Dict) and heuristic(function, name) is not None
        if not computed and not program.in_key_list(node):
            return False
    return True


def _decorator_edits(program: Program, function: ast.FunctionDef, gone: set[str]) -> list[Edit]:
    """Take folded parameters out of autotune keys and heuristics."""
    edits: list[Edit] = []
    lists: dict[int, tuple[ast.AST, list[ast.Constant]]] = {}
    for name in gone:
        for node in program.decorator_strings(function).get(name, []):
            parent = program.parents[id(node)]
            lists.setdefault(id(parent), (parent, []))[1].append(node)
    for owner, nodes in lists.values():
        if isinstance(owner, ast.List):
            edits += _drop_items(program.text, list(owner.elts), list(nodes), program.text.span(owner)[0] + 1)
        elif isinstance(owner, ast.Dict):
            edits += _heuristic_edits(program, function, owner, nodes)
    return edits


def _heuristic_edits(
    program: Program, function: ast.FunctionDef, table: ast.Dict, keys: list[ast.Constant]
) -> list[Edit]:
    if len(table.keys) == len(keys):
        for decorator in function.decorator_list:
            if any(n is table for n in ast.walk(decorator)):
                first, last = decorator.lineno, decorator.end_lineno or decorator.lineno
                return [Edit(program.text.at(first), program.text.at(last + 1), "")]
    items = [_Pair(k, v) for k, v in zip(table.keys, table.values, strict=True) if k is not None]
    gone = [i for i in items if any(i.key is k for k in keys)]
    return _drop_items(program.text, list(items), list(gone), program.text.span(table)[0] + 1)


class _Pair(ast.AST):
    """A dictionary item as one span."""

    def __init__(self, key: ast.expr, value: ast.expr) -> None:
        super().__init__()
        self.key = key
        self.lineno, self.col_offset = key.lineno, key.col_offset
        self.end_lineno, self.end_col_offset = value.end_lineno, value.end_col_offset


def _without(program: Program, name: str, gone: set[str]) -> list[Edit]:
    """Take parameters out of a signature and their arguments out of every call."""
    function = program.functions[name]
    items = [_with_default(function, a) for a in function.args.args]
    dropped = [i for i, a in zip(items, function.args.args, strict=True) if a.arg in gone]
    opening = program.text.data.index(b"(", program.text.at(function.lineno, function.col_offset)) + 1
    edits = _drop_items(program.text, items, dropped, opening)
    for call in program.calls[name]:
        arguments = [v for k, v in call.arguments.items() if k in gone]
        edits += _drop(program, call.node, arguments)
    return edits


def _with_default(function: ast.FunctionDef, parameter: ast.arg) -> ast.AST:
    default = default_of(function, parameter.arg)
    return parameter if default is None else _Pair(parameter, default)  # type: ignore[arg-type]


def _drop(program: Program, call: ast.Call, gone: list[ast.AST] | list[ast.expr]) -> list[Edit]:
    items: list[ast.AST] = [*call.args, *call.keywords]
    items.sort(key=program.text.span)
    ids = {id(g) for g in gone}
    dropped = [i for i in items if id(i) in ids or (isinstance(i, ast.keyword) and id(i.value) in ids)]
    opening = program.text.data.index(b"(", program.text.span(call.func)[1]) + 1
    return _drop_items(program.text, items, dropped, opening)


def _drop_items(text: PyText, items: list[ast.AST], gone: list[ast.AST], opening: int) -> list[Edit]:
    """Remove items of a comma-separated list; a run of them goes in one edit."""
    ids = {id(g) for g in gone}
    spans = [text.outer_span(i, opening) for i in items]
    edits: list[Edit] = []
    index = 0
    while index < len(items):
        if id(items[index]) not in ids:
            index += 1
            continue
        stop = index
        while stop + 1 < len(items) and id(items[stop + 1]) in ids:
            stop += 1
        if stop + 1 < len(items):
            edits.append(Edit(spans[index][0], spans[stop + 1][0], ""))
        elif index > 0:
            edits.append(_tail(text, spans[index - 1][1], spans[stop][1]))
        else:
            end = spans[stop][1]
            rest = text.data[end:]
            comma = len(rest) - len(rest.lstrip()) if rest.lstrip().startswith(b",") else -1
            edits.append(Edit(spans[index][0], end + comma + 1, ""))
        index = stop + 1
    return edits


def _tail(text: PyText, start: int, end: int) -> Edit:
    """Remove the last items, with the comment that follows them on their line."""
    found = re.match(rb"[ \t]*,([ \t]*#[^\n]*)?(?=\n)", text.data[end:])
    return Edit(start, end + found.end(), ",") if found is not None else Edit(start, end, "")


def _at_top(text: PyText, function: ast.FunctionDef, lines: list[str]) -> Edit:
    """Assignments before the first statement of a body (after its docstring)."""
    body = function.body[1:] if has_docstring(function) else function.body
    if not body:
        at = text.at((function.end_lineno or function.lineno) + 1)
        return Edit(at, at, "".join(f"{' ' * function.body[0].col_offset}{line}\n" for line in lines))
    at = text.at(text.comment_above(body[0]))
    return Edit(at, at, "".join(f"{' ' * body[0].col_offset}{line}\n" for line in lines))


def _docstring_edits(program: Program, function: ast.FunctionDef, gone: set[str]) -> list[Edit]:
    """Lines of the docstring that describe a parameter that went: ``name: ...`` or ``name (type): ...``."""
    if not has_docstring(function):
        return []
    node, text = function.body[0], program.text
    edits: list[Edit] = []
    for line in range(node.lineno + 1, (node.end_lineno or node.lineno)):
        found = re.match(r"\s*(\w+)\s*(\([^)]*\))?\s*:", text.line_text(line))
        if found and found.group(1) in gone:
            edits.append(Edit(text.at(line), text.at(line + 1), ""))
    return edits


def _guard(program: Program, node: ast.expr, literal: str) -> str:
    parent = program.parents[id(node)]
    return f"({literal})" if literal.startswith("-") and isinstance(parent, ast.BinOp | ast.UnaryOp) else literal


def _common_index(subscripts: list[ast.AST], calls: list[Call]) -> int | None:
    found: set[object] = set()
    for subscript, call in zip(subscripts, calls, strict=True):
        if not isinstance(subscript, ast.Subscript) or subscript.value is not call.node or call.launch:
            return None
        found.add(subscript.slice.value if isinstance(subscript.slice, ast.Constant) else None)
    index = found.pop() if len(found) == 1 else None
    return index if isinstance(index, int) and index >= 0 else None


def _element(program: Program, node: ast.Return, index: int) -> ast.expr | None:
    """The element of a returned tuple, when the others can go."""
    value = node.value
    if not isinstance(value, ast.Tuple) or index >= len(value.elts):
        return None
    others = [e for i, e in enumerate(value.elts) if i != index]
    plain = all(not isinstance(e, ast.Starred) and pure(e, program, False) for e in others)
    return value.elts[index] if plain and not isinstance(value.elts[index], ast.Starred) else None


def _annotation_edits(text: PyText, function: ast.FunctionDef) -> list[Edit]:
    """Drop the ``-> annotation`` of a function whose result changed."""
    if function.returns is None:
        return []
    start, end = text.outer_span(function.returns)
    arrow = text.data.rindex(b"->", 0, start)
    return [Edit(len(text.data[:arrow].rstrip()), end, "")]


def _parenthesised(text: PyText, node: ast.expr) -> str:
    written = text.text(node)
    return f"({written})" if "\n" in written and dotted_name(node) is None else written
