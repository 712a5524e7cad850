"""Questions about kernel bodies that several moves ask: loops that load, dots, tiles."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable
from functools import lru_cache

import libcst as cst

from ..errors import KernelError
from ..surface import Function, Module
from ..surface.pyast import parse_ast
from ..surface.query import code, dotted, is_call
from ._nodes import calls, find


def loads_in(module: Module, node: cst.CSTNode, depth: int = 3) -> bool:
    """Whether the code loads from memory, by pointer or descriptor, itself or through device helpers."""
    return _reaches(module, node, _is_load, depth)


def dots_in(module: Module, node: cst.CSTNode, depth: int = 3) -> bool:
    """Whether the code multiplies tiles (``tl.dot``), itself or through device helpers."""
    return _reaches(module, node, _is_dot, depth)


def _reaches(module: Module, node: cst.CSTNode, wanted: Callable[[cst.Call], bool], depth: int) -> bool:
    for call in find(node, cst.Call):
        if wanted(call):
            return True
        name = dotted(call.func)
        helper = module.jit_functions.get(name) if name else None
        if helper is not None and depth > 0 and _reaches(module, helper.node.body, wanted, depth - 1):
            return True
    return False


def _is_dot(call: cst.Call) -> bool:
    return is_call(call, "dot", "dot_scaled")


def _is_load(call: cst.Call) -> bool:
    if is_call(call, "load", "_experimental_descriptor_load", "load_tensor_descriptor"):
        return True
    return isinstance(call.func, cst.Attribute) and call.func.attr.value == "load"


def load_loops(module: Module, function: Function) -> list[cst.For]:
    """Innermost-first ``for`` loops of a kernel that load from memory."""
    return [loop for loop in find(function.node.body, cst.For) if loads_in(module, loop.body)]


def dot_load_loops(module: Module, function: Function) -> list[cst.For]:
    """Loops that load and multiply tiles: the ones Triton pipelines by the launch's ``num_stages``."""
    return [loop for loop in load_loops(module, function) if dots_in(module, loop.body)]


def helpers_of(module: Module, function: Function) -> list[Function]:
    """The kernel and the device helpers it calls, directly or not."""
    found: dict[str, Function] = {function.name: function}
    queue = [function]
    while queue:
        for call in calls(queue.pop().node.body):
            name = dotted(call.func)
            helper = module.jit_functions.get(name) if name else None
            if helper is not None and helper.name not in found:
                found[helper.name] = helper
                queue.append(helper)
    return list(found.values())


def docstring_free(function: Function) -> list[cst.SimpleStatementLine | cst.BaseCompoundStatement]:
    """Top-level statements without the docstring."""
    body = list(function.statements)
    if body and isinstance(body[0], cst.SimpleStatementLine) and isinstance(body[0].body[0], cst.Expr):
        value = body[0].body[0].value
        if isinstance(value, cst.SimpleString | cst.ConcatenatedString):
            return body[1:]
    return body


@lru_cache(maxsize=128)
def function_ast(function: Function) -> ast.FunctionDef:
    """A function's Python AST, decorators left out."""
    node = function.node.with_changes(decorators=[], leading_lines=[], lines_after_decorators=[])
    tree = parse_ast(textwrap.dedent(code(node))).body[0]
    if not isinstance(tree, ast.FunctionDef):
        raise KernelError(f"{function.name} is not a plain function", "write it with def")
    return tree
