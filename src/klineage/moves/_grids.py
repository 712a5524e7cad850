"""Launch grids: where the tuple of a grid is written, and what its elements say."""

from __future__ import annotations

import ast
from dataclasses import dataclass

import libcst as cst

from ..surface import Editor, Launch, Module
from ..surface.query import code
from ._flow import parse
from ._launches import launcher, local_definitions
from ._nodes import find


@dataclass(frozen=True)
class Grid:
    """The written tuple of a grid. ``node`` is None when the launch itself subscripts by a bare sequence."""

    node: cst.BaseExpression
    parts: tuple[str, ...]
    meta: str | None  # the name of the lambda's argument, when the grid is a function of the constexprs
    shared: bool  # another launch of another kernel uses the same written grid

    def rewrite(self, editor: Editor, parts: list[str]) -> None:
        """Write other elements in its place."""
        text = f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
        editor.replace(self.node, text)


def grid_of(module: Module, launch: Launch) -> Grid | None:
    """The grid as written: a tuple or list at the launch, behind a name, a lambda, or a small function."""
    shared = False
    node: cst.BaseExpression | None = launch.grid
    meta: str | None = None
    if isinstance(node, cst.Name):
        name = node.value
        users = {other.kernel for other in module.launches if code(other.grid).strip() == name}
        same_host = {other.kernel for other in module.launches if other.function == launch.function}
        shared = len(users & same_host) > 1
        node = local_definitions(module, launch).get(name)
        if node is None:
            node, meta = _function_grid(module, launch, name)
    if isinstance(node, cst.Lambda):
        meta = node.params.params[0].name.value if node.params.params else None
        node = node.body
    if not isinstance(node, cst.Tuple | cst.List) or not _written(module, node):
        return None
    return Grid(node, tuple(code(e.value).strip() for e in node.elements), meta, shared)


def _written(module: Module, node: cst.CSTNode) -> bool:
    """False for the tuple that stands for ``kernel[a, b]``, which has no text of its own."""
    return module.parent(node) is not None


def _function_grid(module: Module, launch: Launch, name: str) -> tuple[cst.BaseExpression | None, str | None]:
    """The tuple that ``def grid(META): return (...)`` gives."""
    host = launcher(module, launch)
    for node in find(host.node.body if host else module.tree, cst.FunctionDef):
        if node.name.value == name:
            returns = find(node.body, cst.Return)
            meta = node.params.params[0].name.value if node.params.params else None
            return (returns[0].value, meta) if len(returns) == 1 else (None, None)
    return None, None


def product(parts: list[str]) -> str:
    """``a * b`` with parentheses where an element needs them."""
    return " * ".join(atom(p) for p in parts)


def atom(text: str) -> str:
    """The expression, in parentheses unless it binds at least as tightly as a product."""
    node = parse(text)
    plain = isinstance(node, ast.Name | ast.Attribute | ast.Constant | ast.Call | ast.Subscript)
    tight = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)
    return text if plain or tight else f"({text})"


def factors(text: str) -> list[str]:
    """The factors of a product, in order."""
    found: list[str] = []

    def split(node: ast.expr) -> None:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            split(node.left)
            split(node.right)
        else:
            found.append(ast.unparse(node))

    split(parse(text))
    return found
