"""Data flow inside one kernel: single definitions, expansion, and matching expressions up to naming.

Patterns are Python expressions whose capital single letters (and letters with digits) are wildcards; ``+`` and ``*``
match in either order, ``tl.minimum``/``min`` and ``tl.cdiv``/``triton.cdiv`` are one. A name in the kernel is opened to
its definition only where the pattern needs it, so wildcards keep the kernel's own names.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import libcst as cst

from ..surface import Function, Module
from ..surface.pyast import parse_ast
from ..surface.query import code, names_read, names_written
from ._nodes import find

Env = Mapping[str, ast.expr]
_WILD = re.compile(r"^[A-Z]\d?$")
_HINTS = ("multiple_of", "max_contiguous", "max_constancy")
_SAME = {"tl.minimum": "min", "tl.maximum": "max", "triton.cdiv": "tl.cdiv", "cdiv": "tl.cdiv"}


def parse(text: str) -> ast.expr:
    """An expression's AST from text."""
    return parse_ast(text.strip(), mode="eval").body


@dataclass(frozen=True)
class Definition:
    """One binding of a name: the statement that makes it and the value (None: not a plain value)."""

    name: str
    statement: cst.CSTNode = field(repr=False)
    value: ast.expr | None


class Flow:
    """Definitions of one function. A name bound again in a loop or branch has several; a hint on itself is none."""

    def __init__(self, module: Module, function: Function) -> None:
        self.module = module
        self.function = function
        self._open: dict[str, ast.expr | None] = {}
        self._texts: dict[str, str] = {}

    @cached_property
    def definitions(self) -> dict[str, list[Definition]]:
        """All bindings by name, in source order."""
        found: dict[str, list[Definition]] = {}
        for node in find(self.function.node.body, cst.SimpleStatementLine):
            for definition in self._of(node):
                if not _is_hint(definition):
                    found.setdefault(definition.name, []).append(definition)
        for loop in find(self.function.node.body, cst.For):
            for name in find(loop.target, cst.Name):
                found.setdefault(name.value, []).append(Definition(name.value, loop, None))
        for name in self.function.params:
            found.setdefault(name, []).append(Definition(name, self.function.node, None))
        return found

    def _of(self, statement: cst.SimpleStatementLine) -> Iterator[Definition]:
        plain = _plain(statement)
        for name in sorted(names_written(statement)):
            yield Definition(name, statement, plain.get(name) or self._from_helper(statement, name))

    def _from_helper(self, statement: cst.SimpleStatementLine, name: str) -> ast.expr | None:
        """Value of ``name`` in ``a, b = helper(...)`` where the helper is straight-line device code."""
        tree = parse_ast(code(statement).strip())
        node = tree.body[0] if tree.body else None
        if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.value, ast.Call):
            return None
        target, call = node.targets[0], node.value
        if not isinstance(target, ast.Tuple) or not isinstance(call.func, ast.Name):
            return None
        names = [e.id if isinstance(e, ast.Name) else "" for e in target.elts]
        results = inlined(self.module, call)
        return results[names.index(name)] if results and len(results) == len(names) and name in names else None

    def single(self, name: str) -> Definition | None:
        """The only binding of a name when there is exactly one and it has a plain value."""
        found = self.definitions.get(name, [])
        return found[0] if len(found) == 1 and found[0].value is not None else None

    def expand(self, node: ast.expr) -> ast.expr:
        """The expression with every single-definition name opened."""
        flow = self

        class Open(ast.NodeTransformer):
            def visit_Name(self, node: ast.Name) -> ast.AST:
                return flow._opened(node.id) or node

        return Open().visit(copy.deepcopy(node))

    def _opened(self, name: str) -> ast.expr | None:
        """The fully opened definition of a name (None: not a single plain one, or defined by itself)."""
        if name not in self._open:
            self._open[name] = None
            found = self.single(name)
            if found is not None and found.value is not None:
                self._open[name] = self.expand(found.value)
        return self._open[name]

    def same(self, left: ast.expr, right: ast.expr) -> bool:
        """Whether two expressions are equal after expansion and reordering."""
        return self.canonical(left) == self.canonical(right)

    def canonical(self, node: ast.expr) -> str:
        """Text in which expressions of equal meaning are equal, names opened."""
        key = ast.unparse(node)
        if key not in self._texts:
            self._texts[key] = canonical(self.expand(node))
        return self._texts[key]

    def match(self, pattern: str | ast.expr, node: ast.expr, env: Env | None = None) -> Env | None:
        """First set of wildcard bindings under which the expression is the pattern."""
        return next(self.matches(pattern, node, env), None)

    def matches(self, pattern: str | ast.expr, node: ast.expr, env: Env | None = None) -> Iterator[Env]:
        """All sets of bindings (see the module's docstring)."""
        wanted = parse(pattern) if isinstance(pattern, str) else pattern
        yield from self._match(wanted, node, dict(env or {}))

    def _match(self, pattern: ast.expr, node: ast.expr, env: Env) -> Iterator[Env]:
        if isinstance(pattern, ast.Name) and _WILD.match(pattern.id):
            bound = env.get(pattern.id)
            if bound is None:
                yield {**env, pattern.id: node}
            elif self.same(bound, node):
                yield env
            return
        if isinstance(node, ast.Name) and not isinstance(pattern, ast.Name):
            found = self.single(node.id)
            if found is not None and found.value is not None:
                yield from self._match(pattern, found.value, env)
            return
        if _hinted(node) is not node:
            yield from self._match(pattern, _hinted(node), env)
            return
        if isinstance(pattern, ast.BinOp) and isinstance(node, ast.BinOp) and type(pattern.op) is type(node.op):
            yield from self._all([(pattern.left, node.left), (pattern.right, node.right)], env)
            if isinstance(pattern.op, ast.Add | ast.Mult | ast.BitAnd):
                yield from self._all([(pattern.left, node.right), (pattern.right, node.left)], env)
            return
        if isinstance(pattern, ast.Call) and isinstance(node, ast.Call):
            if _callee(pattern) != _callee(node) or len(pattern.args) != len(node.args) or node.keywords:
                return
            orders = [node.args, node.args[::-1]] if _callee(node) in ("min", "max") else [node.args]
            for order in orders:
                yield from self._all(list(zip(pattern.args, order, strict=True)), env)
            return
        if canonical(pattern) == canonical(node):
            yield env

    def _all(self, pairs: list[tuple[ast.expr, ast.expr]], env: Env) -> Iterator[Env]:
        if not pairs:
            yield env
            return
        for found in self._match(*pairs[0], env):
            yield from self._all(pairs[1:], found)

    @cached_property
    def _reads(self) -> dict[cst.CSTNode, set[str]]:
        """What each simple statement, and each compound statement's header, reads."""
        found: dict[cst.CSTNode, set[str]] = {}
        for node in find(self.function.node.body, cst.SimpleStatementLine):
            found[node] = names_read(node)
        for node in find(self.function.node.body, cst.BaseCompoundStatement):
            header = getattr(node, "iter", None) or getattr(node, "test", None)
            if header is not None:
                found[node] = names_read(header)
        return found

    def readers(self, name: str) -> list[cst.CSTNode]:
        """The simple statements and compound headers that read a name."""
        return [node for node, names in self._reads.items() if name in names]

    def dead_after(self, gone: set[cst.CSTNode], still_read: set[str]) -> list[cst.CSTNode]:
        """Plain assignments that nothing reads once the ``gone`` statements are away, in source order.

        ``still_read`` are names that replacement text reads. Statements dead already before are left alone.
        """
        dead: list[cst.CSTNode] = []
        changed = True
        while changed:
            changed = False
            away = {*gone, *dead}
            for name, definitions in self.definitions.items():
                statement = definitions[0].statement
                if (
                    len(definitions) != 1
                    or statement in away
                    or statement in dead
                    or definitions[0].value is None
                    or name in still_read
                ):
                    continue
                readers = self.readers(name)
                if readers and all(r in away for r in readers) and self._alone(statement):
                    dead.append(statement)
                    changed = True
        return sorted(dead, key=lambda s: self.module.span(s)[0])

    def _alone(self, statement: cst.CSTNode) -> bool:
        """Whether a statement binds one name only."""
        return sum(1 for found in self.definitions.values() for d in found if d.statement is statement) == 1


@lru_cache(maxsize=64)
def flow_of(function: Function) -> Flow:
    """The flow of a function, shared by all who ask (functions are equal when node and module are)."""
    return Flow(function.module, function)


def _plain(statement: cst.SimpleStatementLine) -> dict[str, ast.expr]:
    """name -> value for ``a = v``, ``a: T = v`` and ``a, b = v, w``."""
    found: dict[str, ast.expr] = {}
    for node in parse_ast(code(statement).strip()).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            found[node.target.id] = node.value
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target = node.targets[0]
        if isinstance(target, ast.Name):
            found[target.id] = node.value
        elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = zip(target.elts, node.value.elts, strict=False)
            found |= {t.id: v for t, v in pairs if isinstance(t, ast.Name)}
    return found


def inlined(module: Module, call: ast.Call) -> list[ast.expr] | None:
    """What a straight-line device helper returns for these arguments, as expressions, else None."""
    helper = module.jit_functions.get(call.func.id) if isinstance(call.func, ast.Name) else None
    if helper is None:
        return None
    body = parse_ast(_dedented(helper.node)).body[0]
    if not isinstance(body, ast.FunctionDef) or not isinstance(body.body[-1], ast.Return):
        return None
    bound: dict[str, ast.expr] = dict(zip(helper.params, call.args, strict=False))
    bound |= {k.arg: k.value for k in call.keywords if k.arg is not None}
    for statement in body.body[:-1]:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            return None
        if not isinstance(statement.targets[0], ast.Name):
            return None
        bound[statement.targets[0].id] = replace_names(statement.value, bound)
    result = body.body[-1].value
    parts = result.elts if isinstance(result, ast.Tuple) else [result] if result is not None else []
    return [replace_names(part, bound) for part in parts]


def replace_names(node: ast.expr, mapping: Mapping[str, ast.expr]) -> ast.expr:
    """A copy of the expression with names replaced."""

    class Replace(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            return mapping.get(node.id, node)

    return Replace().visit(copy.deepcopy(node))


def _dedented(node: cst.FunctionDef) -> str:
    import textwrap

    return textwrap.dedent(code(node.with_changes(decorators=[], leading_lines=[], lines_after_decorators=[])))


def _is_hint(definition: Definition) -> bool:
    """``x = tl.multiple_of(x, ...)`` and the like: tells the compiler something, binds nothing new."""
    node = None if definition.value is None else _hinted(definition.value)
    return node is not definition.value and isinstance(node, ast.Name) and node.id == definition.name


def _hinted(node: ast.expr) -> ast.expr:
    """What a hint such as ``tl.multiple_of(x, 16)`` is given (the node itself when it is no hint)."""
    while isinstance(node, ast.Call) and _callee(node).split(".")[-1] in _HINTS and node.args:
        node = node.args[0]
    return node


def _callee(call: ast.Call) -> str:
    name = ast.unparse(call.func)
    return _SAME.get(name, name)


def canonical(node: ast.expr) -> str:
    """Text in which equal expressions (sums and products in any order) are equal."""
    node = _hinted(node)
    divided = ceil_division(node)
    if divided is not None:
        return f"tl.cdiv({canonical(divided[0])}, {canonical(divided[1])})"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        sign = "+" if isinstance(node.op, ast.Add) else "*"
        return "(" + sign.join(sorted(canonical(t) for t in _terms(node, type(node.op)))) + ")"
    if isinstance(node, ast.BinOp):
        return f"({canonical(node.left)} {type(node.op).__name__} {canonical(node.right)})"
    if isinstance(node, ast.Call):
        args = [canonical(a) for a in node.args] + [f"{k.arg}={canonical(k.value)}" for k in node.keywords]
        if _callee(node) in ("min", "max"):
            args.sort()
        return f"{_callee(node)}({', '.join(args)})"
    return ast.unparse(node)


def ceil_division(node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """(extent, tile) of ``cdiv(extent, tile)`` or ``(extent + tile - 1) // tile``."""
    if isinstance(node, ast.Call):
        return (node.args[0], node.args[1]) if _callee(node) == "tl.cdiv" and len(node.args) == 2 else None
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.FloorDiv):
        return None
    tile, top = ast.unparse(node.right), node.left
    if isinstance(top, ast.BinOp) and isinstance(top.op, ast.Add) and ast.unparse(top.right) == f"{tile} - 1":
        return top.left, node.right
    if not isinstance(top, ast.BinOp) or not isinstance(top.op, ast.Sub) or ast.unparse(top.right) != "1":
        return None
    total = top.left
    if isinstance(total, ast.BinOp) and isinstance(total.op, ast.Add):
        if ast.unparse(total.right) == tile:
            return total.left, node.right
        if ast.unparse(total.left) == tile:
            return total.right, node.right
    return None


def _terms(node: ast.expr, kind: type[ast.operator]) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, kind):
        return [*_terms(node.left, kind), *_terms(node.right, kind)]
    return [node]
