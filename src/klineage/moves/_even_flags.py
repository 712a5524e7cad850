"""Constexpr flags such as ``EVEN_K``: passed by the launcher, or computed by ``@triton.heuristics``."""

from __future__ import annotations

import ast

import libcst as cst

from ..surface import Editor, Function
from ..surface.pyast import literal, parse_ast
from ..surface.query import code
from ._lines import atom
from ._masks import Dimension
from ._row_block import bound_text, in_launcher


def rows_even(dimension: Dimension) -> str:
    """The condition in words."""
    return f"{dimension.length} is a multiple of {dimension.block}"


def pass_flag(editor: Editor, kernel: Function, flag: str, dimension: Dimension) -> str | None:
    """Add the flag to the kernel and give it its value at every launch. Returns why not, or None when done."""
    module = kernel.module
    values: list[str] = []
    launches = module.launches_of(kernel.name)
    for launch in launches:
        length = dimension.length if dimension.length.isdigit() else in_launcher(module, launch, dimension.length)
        block = bound_text(module, launch, dimension.block)
        if length is None:
            return f"the launcher does not pass what {dimension.length} is made of"
        if block is None:
            return _heuristic(editor, kernel, flag, dimension)
        values.append(f"{atom(length)} % {atom(block)} == 0")
    last = kernel.node.params.params[-1] if kernel.node.params.params else None
    default = " = False" if last is not None and last.default is not None else ""
    editor.add_parameter(kernel, f"{flag}: tl.constexpr{default}")
    for launch, value in zip(launches, values, strict=True):
        editor.append_argument(launch.call, f"{flag}={value}")
    return None


def _heuristic(editor: Editor, kernel: Function, flag: str, dimension: Dimension) -> str | None:
    """Compute the flag from the arguments when the tile comes from an autotune configuration."""
    last = next((d for d in reversed(kernel.node.decorators)), None)
    tree = parse_ast(dimension.length, mode="eval")
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    if kernel.decorator("autotune") is None or kernel.decorator("heuristics") is not None or last is None:
        return f"{dimension.block} is not passed where {kernel.name} is launched"
    if dimension.length not in kernel.params or names != {dimension.length}:
        return f"{dimension.length} is no parameter of {kernel.name}"
    value = f'lambda args: args["{dimension.length}"] % args["{dimension.block}"] == 0'
    start = kernel.module.data.rfind(b"\n", 0, kernel.module.span(last)[0]) + 1
    editor.replace_span(start, start, f'@triton.heuristics({{"{flag}": {value}}})\n')
    default = " = False" if kernel.node.params.params[-1].default is not None else ""
    editor.add_parameter(kernel, f"{flag}: tl.constexpr{default}")
    return None


def drop_flag(editor: Editor, kernel: Function, flag: str) -> None:
    """Remove a flag from the kernel, its launches and its heuristics."""
    editor.remove_parameter(kernel, flag)
    for launch in kernel.module.launches_of(kernel.name):
        if flag in launch.bound:
            editor.remove_argument(launch.call, launch.bound[flag])
    decorator = kernel.decorator("heuristics")
    call = decorator.decorator if decorator is not None else None
    if not isinstance(call, cst.Call) or not call.args or not isinstance(call.args[0].value, cst.Dict):
        return
    kept = [e for e in call.args[0].value.elements if isinstance(e, cst.DictElement) and _key(e) != flag]
    if len(kept) == len(call.args[0].value.elements):
        return
    if kept:
        items = ", ".join(f"{code(e.key)}: {code(e.value)}" for e in kept)
        editor.replace(call.args[0].value, f"{{{items}}}")
    elif decorator is not None:
        start, end = kernel.module.span(decorator)
        line_end = kernel.module.data.find(b"\n", end - 1) + 1
        line_start = kernel.module.data.rfind(b"\n", 0, start) + 1
        editor.replace_span(line_start, line_end, "")


def _key(element: cst.DictElement) -> str:
    try:
        return str(literal(code(element.key)))
    except (ValueError, SyntaxError):
        return ""
