"""Folding a kernel under known integers: ``SPLIT_K`` is 1, the split's index is 0, and what follows from that."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Mapping

import libcst as cst

from ..surface import Editor, Function, Module
from ..surface.pyast import parse_ast
from ..surface.query import code
from ._flow import flow_of, parse
from ._nodes import find

_ARITHMETIC: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}
_PASSES = 20


class Folder(ast.NodeTransformer):
    """Replaces texts (names, ``tl.program_id(2)``) by integers and folds what follows."""

    def __init__(self, known: Mapping[str, int]) -> None:
        self.known = known

    def visit_Name(self, node: ast.Name) -> ast.expr:
        known = isinstance(node.ctx, ast.Load) and node.id in self.known
        return ast.Constant(self.known[node.id]) if known else node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        if ast.unparse(node) in self.known:
            return ast.Constant(self.known[ast.unparse(node)])
        self.generic_visit(node)
        name = ast.unparse(node.func)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to" and _integer(node.func.value) is not None:
            return node.func.value
        if name in ("tl.cdiv", "triton.cdiv") and len(node.args) == 2 and _integer(node.args[1]) == 1:
            return node.args[0]
        if name in ("min", "max", "tl.minimum", "tl.maximum") and len(node.args) == 2:
            left, right = (ast.unparse(a) for a in node.args)
            return node.args[0] if left == right else node
        if name in ("range", "tl.range") and len(node.args) == 3 and _integer(node.args[2]) == 1:
            node.args.pop()
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        left, right = _integer(node.left), _integer(node.right)
        do = _ARITHMETIC.get(type(node.op))
        if left is not None and right is not None and do is not None:
            return ast.Constant(do(left, right))
        if isinstance(node.op, ast.Mult):
            if 0 in (left, right):
                return ast.Constant(0)
            return node.right if left == 1 else node.left if right == 1 else node
        if isinstance(node.op, ast.Add):
            return node.right if left == 0 else node.left if right == 0 else node
        if isinstance(node.op, ast.Sub):
            return node.left if right == 0 else node
        if isinstance(node.op, ast.FloorDiv | ast.Mod) and left == 0:
            return ast.Constant(0)
        if right == 1 and isinstance(node.op, ast.FloorDiv):
            return node.left
        return ast.Constant(0) if right == 1 and isinstance(node.op, ast.Mod) else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        left, right = _integer(node.left), _integer(node.comparators[0])
        do = _COMPARE.get(type(node.ops[0]))
        if len(node.ops) == 1 and left is not None and right is not None and do is not None:
            return ast.Constant(do(left, right))
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.test, ast.Constant):
            return node
        return node.body if node.test.value else node.orelse


def _integer(node: ast.expr) -> int | None:
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def fold(module: Module, name: str, known: Mapping[str, int]) -> str:
    """The module's text with kernel ``name`` folded: definitions that become numbers go, branches decided are taken."""
    known = _closure(module.functions[name], known)
    source = _fold_expressions(module, module.functions[name], known)
    for _ in range(_PASSES):
        module = Module.parse(source)
        decided = _decided(module.functions[name])
        if decided is None:
            return source
        source = _take_branch(module, decided)
    return source


def _closure(function: Function, known: Mapping[str, int]) -> dict[str, int]:
    """The known texts, with the names whose only definition they turn into a number."""
    flow = flow_of(function)
    found = dict(known)
    changed = True
    while changed:
        changed = False
        for name in flow.definitions:
            definition = flow.single(name)
            if name in found or definition is None or definition.value is None:
                continue
            before = ast.unparse(definition.value)
            value = _integer(Folder(found).visit(parse(before)))
            if value is not None and _integer(parse(before)) is None:
                found[name] = value
                changed = True
    return found


def _fold_expressions(module: Module, function: Function, known: Mapping[str, int]) -> str:
    editor = Editor(module)
    folder = Folder(known)
    for statement in find(function.node.body, cst.SimpleStatementLine):
        text = code(statement.with_changes(leading_lines=[])).strip()
        if not any(k in text for k in known):
            continue
        before = ast.unparse(parse_ast(text))
        after = ast.unparse(ast.fix_missing_locations(folder.visit(parse_ast(text))))
        if after == before:
            continue
        if _idle(parse_ast(after).body[0], known):
            editor.remove_statement(statement)
        else:
            editor.replace_statement(statement, after)
    headers = [loop.iter for loop in find(function.node.body, cst.For)]
    for node in [*headers, *(branch.test for branch in find(function.node.body, cst.If))]:
        before = ast.unparse(parse(code(node)))
        after = ast.unparse(folder.visit(parse(code(node))))
        if after != before:
            editor.replace(node, after)
    return editor.apply()


def _idle(statement: ast.stmt, known: Mapping[str, int]) -> bool:
    """``x += 0``, ``x = x``, and the definition of a name that is a known number."""
    if isinstance(statement, ast.AugAssign):
        return isinstance(statement.op, ast.Add | ast.Sub) and _integer(statement.value) == 0
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    target = ast.unparse(statement.targets[0])
    return target in known or target == ast.unparse(statement.value)


def _decided(function: Function) -> cst.If | None:
    for branch in find(function.node.body, cst.If):
        if code(branch.test).strip() in ("True", "False"):
            return branch
    return None


def _take_branch(module: Module, branch: cst.If) -> str:
    editor = Editor(module)
    taken: cst.CSTNode | None = branch
    if code(branch.test).strip() == "False":
        taken = branch.orelse
    if isinstance(taken, cst.If) and taken is not branch:  # an elif becomes the first branch
        start, end = module.span(branch)[0], module.span(taken)[0]
        editor.replace_span(start, end, "")
        text = editor.apply()
        return text.replace("elif", "if", 1) if text[start : start + 4] == "elif" else text
    body = getattr(taken, "body", None)
    if not isinstance(body, cst.IndentedBlock):
        editor.replace_statement(branch, "pass" if _alone(module, branch) else "")
        return editor.apply()
    first, last = body.body[0], body.body[-1]
    start = module.data.rfind(b"\n", 0, module.span(first)[0]) + 1
    text = textwrap.dedent(module.data[start : module.span(last)[1]].decode())
    editor.replace_statement(branch, text)
    return editor.apply()


def _alone(module: Module, node: cst.CSTNode) -> bool:
    parent = module.parent(node)
    return isinstance(parent, cst.IndentedBlock) and len(parent.body) == 1
