"""Questions about kernel statements as ``ast``: what is elementwise, what is read, what is bound."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ..surface import Module
from ._kernels import function_ast
from ._lines import dotted_name, names_loaded

_LIBRARIES = ("tl", "triton", "language", "libdevice", "tldevice")
_BUILTIN = frozenset(("abs", "float", "int", "max", "min"))
_FUNCTIONS = frozenset((
    "abs", "cast", "cdiv", "ceil", "clamp", "cos", "div_rn", "erf", "exp", "exp2", "expm1", "fast_dividef", "fast_expf",
    "fdiv", "floor", "fma", "log", "log1p", "log2", "maximum", "minimum", "pow", "rand", "randint", "randn", "rint",
    "rsqrt", "sigmoid", "sin", "sqrt", "sqrt_rn", "tan", "tanh", "umulhi", "where", "zeros_like",
))  # fmt: skip


def elementwise(module: Module, call: ast.Call, depth: int = 3) -> bool:
    """Whether a call computes each element from its arguments' elements, by itself or through device helpers."""
    name, last = dotted_name(call.func), function_name(call)
    helper = module.jit_functions.get(name)
    if helper is None:
        return last in _FUNCTIONS or name in _BUILTIN
    if depth == 0:
        return False
    for node in ast.walk(function_ast(helper)):
        if isinstance(node, ast.For | ast.While | ast.Subscript):
            return False
        if isinstance(node, ast.Call) and not casts(node) and not elementwise(module, node, depth - 1):
            return False
    return True


def casts(call: ast.Call) -> bool:
    """``x.to(...)``."""
    return isinstance(call.func, ast.Attribute) and call.func.attr == "to"


def function_name(call: ast.Call) -> str:
    """``exp`` of a call of ``tl.exp``, ``tl.math.exp``, ``libdevice.exp`` or plain ``exp``; "" for methods."""
    name = dotted_name(call.func)
    return name.rpartition(".")[2] if name.partition(".")[0] in _LIBRARIES or "." not in name else ""


def bound_in(statements: Sequence[ast.stmt]) -> set[str]:
    """Names the statements bind."""
    return {n.id for s in statements for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def live_in(statements: Sequence[ast.stmt]) -> set[str]:
    """Names the statements read before they bind them for sure."""
    live: set[str] = set()
    for node in reversed(statements):
        if isinstance(node, ast.If):
            sure = bound_in(node.body) & bound_in(node.orelse) if _plain([*node.body, *node.orelse]) else set[str]()
            live = (live - sure) | live_in(node.body) | live_in(node.orelse) | names_loaded(node.test)
        elif isinstance(node, ast.For | ast.While):
            live |= names_loaded(node)
        else:
            live = (live - bound_in([node])) | names_loaded(node)
    return live


def _plain(statements: Sequence[ast.stmt]) -> bool:
    return all(isinstance(s, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr) for s in statements)


def without_dead(statements: Sequence[ast.stmt], live: set[str]) -> list[ast.stmt]:
    """The statements without assignments that nobody reads; ``live`` are names read afterwards."""
    found: list[ast.stmt] = []
    for node in reversed(statements):
        if isinstance(node, ast.Assign | ast.AugAssign) and not bound_in([node]) & live:
            continue
        found.insert(0, node)
        if isinstance(node, ast.If):
            live |= live_in([node])
        else:
            live = (live - bound_in([node])) | live_in([node])
    return found


def name_of(node: ast.expr | None) -> str:
    """The name that an expression is ("" for anything else)."""
    return node.id if isinstance(node, ast.Name) else ""


def short(node: ast.AST) -> str:
    """The node's text, cut to what a message can hold."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
