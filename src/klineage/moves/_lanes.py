"""Which values of a kernel are lane vectors (one element per column of a tile), and which are scalars."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..surface import Function, Module
from ._lines import Line, call_argument, calls_of, dotted_name, sections, source_tree, tl_name, walk_lines

REDUCTIONS = frozenset({"sum", "max", "min", "argmax", "argmin", "xor_sum", "reduce", "reduce_or"})
# operations that mix lanes: a tile of the row would give another answer than the whole row
MIXING = frozenset(
    {
        *("cumsum", "cumprod", "associative_scan", "sort", "topk", "flip", "histogram", "dot", "dot_scaled", "reshape"),
        *("view", "trans", "permute", "gather", "join", "split", "interleave", "cat", "ravel", "expand_dims"),
        *("broadcast_to", "inline_asm_elementwise", "map_elementwise", "swizzle2d"),
    }
)
EFFECTS = frozenset({"store", "debug_barrier", "device_print", "device_assert", "atomic_add", "atomic_max"})
ATOMICS = frozenset(f"atomic_{op}" for op in ("add", "max", "min", "and", "or", "xor", "xchg", "cas"))


def pairwise(node: ast.AST, operation: str) -> bool:
    """``tl.maximum(a, b)`` or the built-in ``max(a, b)`` (for "max"); ``tl.max(x, axis)`` is a reduction and is not."""
    if not isinstance(node, ast.Call) or len(node.args) != 2 or node.keywords:
        return False
    return tl_name(node) == f"{operation}imum" or dotted_name(node.func) == operation


def mentions(node: ast.AST, names: Iterable[str]) -> bool:
    """True when one of the names stands anywhere below the node."""
    wanted = set(names)
    return any(isinstance(n, ast.Name) and n.id in wanted for n in ast.walk(node))


def block_names(lines: Iterable[Line], constexprs: Iterable[str]) -> list[str]:
    """Constexprs that ``tl.arange(0, NAME)`` spans, in order of appearance."""
    allowed = set(constexprs)
    found: list[str] = []
    for line in lines:
        for call in calls_of(line.tree, "arange"):
            size = call_argument(call, "end", 1)
            if isinstance(size, ast.Name) and size.id in allowed and size.id not in found:
                found.append(size.id)
    return found


def is_lane(node: ast.AST, lanes: Iterable[str], block: str) -> bool:
    """True when an expression is a lane vector: it depends on ``tl.arange(0, block)`` other than by a reduction."""
    names = lanes if isinstance(lanes, set | frozenset) else set(lanes)
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.Attribute) and node.attr in ("dtype", "shape", "element_ty", "type"):
        return False
    if isinstance(node, ast.Call):
        name = tl_name(node)
        if name in REDUCTIONS or (isinstance(node.func, ast.Attribute) and _method_reduction(node)):
            return False
        if name in ("arange", "zeros", "full"):
            return mentions(node, [block])
    return any(is_lane(child, names, block) for child in ast.iter_child_nodes(node))


def _method_reduction(call: ast.Call) -> bool:
    func = call.func
    return isinstance(func, ast.Attribute) and func.attr in REDUCTIONS and not dotted_name(func).startswith("tl.")


def reduction_calls(node: ast.AST, lanes: Iterable[str], block: str) -> list[ast.Call]:
    """Reductions over lane vectors below a node, innermost first."""
    found: list[ast.Call] = []
    names = set(lanes)

    def visit(current: ast.AST) -> None:
        for child in ast.iter_child_nodes(current):
            visit(child)
        if isinstance(current, ast.Call) and tl_name(current) in REDUCTIONS and current.args:
            if is_lane(current.args[0], names, block) or any(a in found for a in ast.walk(current.args[0])):
                found.append(current)
        elif isinstance(current, ast.Call) and _method_reduction(current):
            func = current.func
            if isinstance(func, ast.Attribute) and is_lane(func.value, names, block):
                found.append(current)

    visit(node)
    return found


def lane_names(lines: Sequence[Line], block: str, start: Iterable[str] = ()) -> set[str]:
    """Names that are a lane vector after some statement (compound statements looked through)."""
    lanes = set(start)
    size = -1
    while size != len(lanes):
        size = len(lanes)
        for line in walk_lines(lines):
            if not line.compound and line.value is not None and is_lane(line.value, lanes, block):
                lanes |= line.writes
    return lanes


def mixes_lanes(module: Module, node: ast.AST, lanes: Iterable[str], block: str) -> str | None:
    """The name of an operation below ``node`` that mixes lanes (device helpers looked through), else None."""
    names = set(lanes)
    for call in ast.walk(node):
        if not isinstance(call, ast.Call) or not any(is_lane(a, names, block) for a in (*call.args, call.func)):
            continue
        name = tl_name(call)
        method = call.func.attr if isinstance(call.func, ast.Attribute) else name
        if name in MIXING or method in MIXING:
            return name or method
        helper = module.jit_functions.get(name)
        if helper is not None and not elementwise_helper(module, helper):
            return name
    return None


def elementwise_helper(module: Module, helper: Function) -> bool:
    """True when a device function has no reduction, scan, dot, load, store or program id in it."""
    for node in ast.walk(source_tree(module.source)):
        if isinstance(node, ast.FunctionDef) and node.name == helper.name:
            names = {tl_name(c) for c in ast.walk(node) if isinstance(c, ast.Call)}
            return not names & (REDUCTIONS | MIXING | EFFECTS | ATOMICS | {"load", "arange", "program_id"})
    return False


def pointer_root(node: ast.AST, definitions: Mapping[str, ast.expr]) -> str:
    """The name at the left end of a pointer expression, followed through its definitions ("" when there is none)."""
    seen: set[str] = set()
    while True:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            node = node.left
        elif isinstance(node, ast.Call) and tl_name(node) in (
            "multiple_of",
            "max_contiguous",
            "cast",
            "make_tensor_descriptor",
        ):
            node = node.args[0]
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("to", "load", "store")
        ):
            node = node.func.value
        elif isinstance(node, ast.Name):
            if node.id in seen or node.id not in definitions:
                return node.id
            seen.add(node.id)
            node = definitions[node.id]
        else:
            return ""


def accesses(line: Line, definitions: Mapping[str, ast.expr]) -> tuple[set[str], set[str]]:
    """(pointer roots loaded, pointer roots stored) by a statement, compound ones looked through."""
    loaded: set[str] = set()
    stored: set[str] = set()
    for call in ast.walk(line.tree):
        if not isinstance(call, ast.Call):
            continue
        name = tl_name(call)
        if name == "load" and call.args:
            loaded.add(pointer_root(call.args[0], definitions))
        elif (name == "store" or name in ATOMICS) and call.args:
            stored.add(pointer_root(call.args[0], definitions))
        elif not name and isinstance(call.func, ast.Attribute) and call.func.attr in ("load", "store"):
            (loaded if call.func.attr == "load" else stored).add(pointer_root(call.func.value, definitions))
    return loaded, stored


def has_effect(line: Line) -> bool:
    """True when a statement does more than bind names: stores, atomics, barriers, prints, asserts, returns."""
    for node in ast.walk(line.tree):
        if isinstance(node, ast.Return | ast.Break | ast.Continue | ast.Assert | ast.Raise):
            return True
        if isinstance(node, ast.Call):
            name = tl_name(node)
            method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if name in EFFECTS or name in ATOMICS or (not name and method in ("store", *ATOMICS)):
                return True
    return isinstance(line.tree, ast.Expr) and not isinstance(line.tree.value, ast.Constant)


@dataclass(frozen=True)
class RowLoop:
    """``for var in range(0, length, block)`` or ``for var in range(tl.cdiv(length, block))`` (``counted``)."""

    variable: str
    length: str
    block: str
    counted: bool
    lines: tuple[Line, ...]

    @property
    def key(self) -> tuple[str, str]:
        """Loops over the same row with the same tile have the same key."""
        return self.length, self.block


def row_loop(line: Line, constexprs: Iterable[str]) -> RowLoop | None:
    """The statement as a loop over a row in tiles of a constexpr, else None."""
    tree = line.tree
    if not isinstance(tree, ast.For) or tree.orelse or not isinstance(tree.target, ast.Name):
        return None
    call = tree.iter
    if not isinstance(call, ast.Call) or tl_name(call) not in ("range", "static_range"):
        return None
    allowed = set(constexprs)
    args = call.args
    body = sections(line)[0].lines
    if len(args) == 3 and _is_zero(args[0]) and isinstance(args[2], ast.Name) and args[2].id in allowed:
        return RowLoop(tree.target.id, ast.unparse(args[1]), args[2].id, False, body)
    last = args[0] if len(args) == 1 else args[1] if len(args) == 2 and _is_zero(args[0]) else None
    if isinstance(last, ast.Call) and (tl_name(last) == "cdiv" or dotted_name(last.func) == "triton.cdiv"):
        size = last.args[1]
        if isinstance(size, ast.Name) and size.id in allowed:
            return RowLoop(tree.target.id, ast.unparse(last.args[0]), size.id, True, body)
    return None


def _is_zero(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0 and not isinstance(node.value, bool)
