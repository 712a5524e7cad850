"""Tiles: the constexprs that shape a program's block, the axis each one cuts, and where its size is written."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import libcst as cst

from ..surface import Function, Launch, Module
from ..surface.pyast import parse_ast
from ..surface.query import argument, code, dotted, literal_int
from ._flow import Flow, ceil_division, parse
from ._kernels import dots_in, helpers_of
from ._launches import Constant, constant
from ._nodes import calls, find

ACC_REGISTERS = 128  # per thread: a larger accumulator leaves too few of 255 registers for the operands
MAX_REGISTERS = 255  # per thread, on every NVIDIA architecture since sm_35
_SHAPED = ("zeros", "full", "make_block_ptr", "make_tensor_descriptor")
_ROLE_NAME = re.compile(r"(?:^|_)B?(?:LOCK)?(?:_SIZE)?_?([MNK])$")


@dataclass(frozen=True)
class Tile:
    """A tile constexpr of a kernel. ``role`` is m, n or k in kernels with a dot; row, or row and col, in others."""

    name: str
    role: str
    constant: Constant  # where its size is written, and the size


def tile_names(module: Module, function: Function) -> list[str]:
    """The kernel's constexprs that shape a block and step along an axis (whole-row blocks do not), in order."""
    shaped, stepped = _uses(module, function)
    return [p for p in function.params if p in function.constexprs and p in shaped and p in stepped]


def _uses(module: Module, function: Function) -> tuple[set[str], set[str]]:
    """(names that shape a block, names that step along an axis), helpers' uses mapped back to the kernel's names."""
    shaped: set[str] = set()
    stepped: set[str] = set()
    for call in calls(function.node.body):
        name = dotted(call.func) or ""
        last = name.split(".")[-1]
        inside = {n.value for arg in call.args for n in find(arg.value, cst.Name)}
        if last in ("arange", *_SHAPED):
            shaped |= inside
        if last in ("cdiv", "range"):
            stepped |= inside
        helper = module.jit_functions.get(name)
        if helper is not None and helper.name != function.name:
            for mine, theirs in zip((shaped, stepped), _uses(module, helper), strict=True):
                mine |= {code(a.value).strip() for p, a in _passed(helper, call) if p in theirs}
    for node in find(function.node.body, cst.BinaryOperation):
        if isinstance(node.operator, cst.Multiply):
            stepped |= {n.value for n in find(node, cst.Name)}
    for node in find(function.node.body, cst.AugAssign):
        stepped |= {n.value for n in find(node.value, cst.Name)}
    return shaped, stepped


def _passed(helper: Function, call: cst.Call) -> Iterator[tuple[str, cst.Arg]]:
    for index, arg in enumerate(call.args):
        if arg.keyword is not None:
            yield arg.keyword.value, arg
        elif index < len(helper.params):
            yield helper.params[index], arg


@lru_cache(maxsize=128)
def roles(module: Module, function: Function) -> Mapping[str, str]:
    """tile name -> role: m and n from the accumulator's shape, k from what is left; row and col without a dot."""
    names = tile_names(module, function)
    if not dots_in(module, function.node.body):
        return dict(zip(names, ("row",) if len(names) == 1 else ("row", "col"), strict=False))
    found: dict[str, str] = {}
    for part in helpers_of(module, function):
        for call in calls(part.node.body, "zeros", "full"):
            shape = argument(call, "shape", 0)
            axes = [] if shape is None else elements(shape.value)
            if len(axes) == 2 and not found:
                found = {axis: role for axis, role in zip(axes, "mn", strict=True) if axis in names}
    for name in names:
        by_name = _ROLE_NAME.search(name)
        if name not in found and by_name and by_name[1].lower() not in found.values():
            found[name] = by_name[1].lower()
    left = [n for n in names if n not in found]
    if len(left) == 1 and "k" not in found.values():
        found[left[0]] = "k"
    return {name: found[name] for name in names if name in found}


def elements(node: cst.BaseExpression) -> list[str]:
    """Texts of a tuple's or list's elements ([] for anything else)."""
    return [code(e.value).strip() for e in node.elements] if isinstance(node, cst.Tuple | cst.List) else []


def tiles(module: Module, launch: Launch) -> list[Tile]:
    """The tiles whose sizes a launch gives as integer constants (by literal, name, or the kernel's default)."""
    function = module.functions[launch.kernel]
    found: list[Tile] = []
    for name, role in roles(module, function).items():
        arg = launch.bound.get(name)
        parameter = function.param(name)
        if arg is not None:
            size = constant(module, launch, arg.value)
        elif parameter is not None and parameter.default is not None:
            value = literal_int(parameter.default)
            size = None if value is None else Constant(value, parameter.default)
        else:
            size = None
        if size is not None:
            found.append(Tile(name, role, size))
    return found


@lru_cache(maxsize=512)
def bounds(flow: Flow, tile: str) -> list[str]:
    """Runtime parameters that bound a tile's axis (``cdiv(M, T)``, ``offs < M``, ``offs % M``), best first."""
    function = flow.function
    tree = parse_ast(_body_text(flow))
    first: list[str] = []
    second: list[str] = []
    for node in ast.walk(tree):
        divided = ceil_division(node) if isinstance(node, ast.expr) else None
        if divided is not None and ast.unparse(divided[1]) == tile:
            first += _runtime(divided[0], function)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("range", "tl.range") and len(node.args) == 3:
            if ast.unparse(node.args[2]) == tile:
                first += _runtime(node.args[1], function)
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt):
            if _spans(flow, node.left, tile):
                second += _runtime(node.comparators[0], function)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and _spans(flow, node.left, tile):
            second += _runtime(node.right, function)
    return list(dict.fromkeys([*first, *second]))


def _spans(flow: Flow, node: ast.expr, tile: str) -> bool:
    opened = flow.expand(node)
    return any(
        isinstance(n, ast.Call) and ast.unparse(n.func).endswith("arange") and ast.unparse(n.args[-1]) == tile
        for n in ast.walk(opened)
    )


def _runtime(node: ast.expr, function: Function) -> list[str]:
    names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
    return [n for n in names if n in function.params and n not in function.constexprs]


@lru_cache(maxsize=128)
def _body_text(flow: Flow) -> str:
    import textwrap

    node = flow.function.node
    return textwrap.dedent(code(node.with_changes(decorators=[], leading_lines=[], lines_after_decorators=[])))


def axis_argument(launch: Launch, flow: Flow, tile: str) -> set[str]:
    """Texts of the launch arguments that bound the tile's axis."""
    return {code(launch.bound[b].value).strip() for b in bounds(flow, tile) if b in launch.bound}


def accumulator_registers(sizes: Mapping[str, int], warps: int) -> int:
    """32-bit registers a thread needs for an m x n fp32 accumulator spread over ``warps`` warps of 32 threads."""
    return sizes.get("m", 0) * sizes.get("n", 0) // (32 * warps)


def warps_for(sizes: Mapping[str, int]) -> int:
    """The fewest warps (a power of two) that keep an accumulator within 128 of a thread's 255 registers."""
    warps = 1
    while accumulator_registers(sizes, warps) > ACC_REGISTERS and warps < 32:
        warps *= 2
    return warps


def same_text(left: str, right: str) -> bool:
    """Whether two expression texts are equal without formatting."""
    return ast.unparse(parse(left)) == ast.unparse(parse(right))
