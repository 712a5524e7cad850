"""Which names of a piece of Python text mean module-level things: Python's scope rules over ``ast``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache

from .pytext import COMPREHENSIONS, SCOPES, FunctionNode, parameters


def bound_names(body: list[ast.stmt] | ast.AST) -> set[str]:
    """Names bound in one scope: assigned, imported, defined, deleted; nested scopes are not entered."""
    found: set[str] = set()
    for node in _own(body):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.add(node.id)
        elif isinstance(node, FunctionNode | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update((a.asname or a.name.split(".")[0]) for a in node.names)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            found.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            found.add(node.rest)
    return found


def _own(body: list[ast.stmt] | ast.AST) -> Iterator[ast.AST]:
    """Nodes of one scope. Of a nested function or class only the node itself and what it evaluates out here."""
    todo: list[ast.AST] = list(body) if isinstance(body, list) else [body]
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, FunctionNode):
            todo += [*node.decorator_list, *node.args.defaults, *(d for d in node.args.kw_defaults if d)]
        elif isinstance(node, ast.ClassDef):
            todo += [*node.decorator_list, *node.bases]
        elif isinstance(node, ast.Lambda):
            todo += [*node.args.defaults, *(d for d in node.args.kw_defaults if d)]
        elif isinstance(node, COMPREHENSIONS):
            todo += [n for n in ast.walk(node) if isinstance(n, ast.NamedExpr)]
            todo.append(node.generators[0].iter)
        else:
            todo += list(ast.iter_child_nodes(node))


@lru_cache(maxsize=4096)
def global_names(node: ast.AST) -> tuple[ast.Name, ...]:
    """Name nodes below a module-level statement (or expression) that refer to the module's scope or a builtin.

    Names bound by the statement itself at module level are included as stores.
    """
    visitor = _Globals()
    visitor.visit(node)
    return tuple(visitor.found)


@lru_cache(maxsize=4096)
def local_names(function: FunctionNode | ast.Lambda) -> frozenset[str]:
    """Names that are local to a function: parameters and what its body binds, less ``global``/``nonlocal``."""
    names = {a.arg for a in parameters(function.args)}
    if isinstance(function, ast.Lambda):
        return frozenset(names | bound_names(function.body))
    names |= bound_names(function.body)
    for inner in _own(function.body):
        if isinstance(inner, ast.Global | ast.Nonlocal):
            names -= set(inner.names)
    return frozenset(names)


class _Globals(ast.NodeVisitor):
    def __init__(self) -> None:
        self.found: list[ast.Name] = []
        self.scopes: list[tuple[bool, set[str] | frozenset[str]]] = []  # (is a class scope, names)

    def visit_Name(self, node: ast.Name) -> None:
        for depth, (is_class, names) in enumerate(reversed(self.scopes)):
            if is_class and depth > 0:
                continue
            if node.id in names:
                return
        self.found.append(node)

    def _function(self, node: FunctionNode | ast.Lambda) -> None:
        arguments = node.args
        outside: list[ast.AST | None] = [*arguments.defaults, *arguments.kw_defaults]
        outside += [a.annotation for a in parameters(arguments)]
        if not isinstance(node, ast.Lambda):
            outside += [*node.decorator_list, node.returns]
        for part in outside:
            if part is not None:
                self.visit(part)
        self.scopes.append((False, local_names(node)))
        for part in [node.body] if isinstance(node, ast.Lambda) else node.body:
            self.visit(part)
        self.scopes.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._function(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for part in (*node.decorator_list, *node.bases, *(k.value for k in node.keywords)):
            self.visit(part)
        self.scopes.append((True, bound_names(node.body)))
        for part in node.body:
            self.visit(part)
        self.scopes.pop()

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp) -> None:
        self.visit(node.generators[0].iter)
        names: set[str] = set()
        for generator in node.generators:
            names |= {n.id for n in ast.walk(generator.target) if isinstance(n, ast.Name)}
        self.scopes.append((False, names))
        for index, generator in enumerate(node.generators):
            if index:
                self.visit(generator.iter)
            for test in generator.ifs:
                self.visit(test)
        for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self.visit(part)
        self.scopes.pop()

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension  # type: ignore[assignment]


def eager_names(statement: ast.stmt) -> set[str]:
    """Module-level names a statement reads while the module is being imported (function bodies excluded)."""
    names: set[str] = set()
    lazy = {id(n) for scope in _scopes(statement) for part in _body(scope) for n in ast.walk(part)}
    for node in global_names(statement):
        if id(node) not in lazy:
            names.add(node.id)
    return names


def _scopes(node: ast.AST) -> list[ast.AST]:
    return [n for n in ast.walk(node) if isinstance(n, SCOPES)]


def _body(scope: ast.AST) -> list[ast.AST]:
    body = scope.body  # type: ignore[attr-defined]
    return list(body) if isinstance(body, list) else [body]


def identifiers(node: ast.AST) -> set[str]:
    """Every identifier that occurs anywhere below: names, parameters, keywords, definitions, attributes."""
    found: set[str] = set()
    for inner in ast.walk(node):
        for field in ("id", "arg", "name", "attr", "asname"):
            value = getattr(inner, field, None)
            if isinstance(value, str):
                found.add(value)
    return found
