"""Which pointer parameters a kernel loads from, stores to and accumulates into."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from ..surface import Function, Launch, Module
from ..surface.query import code
from ._flow import Flow, flow_of
from ._kernels import function_ast, helpers_of

_ATOMIC = "atomic_"
_BASE_OF_FIRST = ("make_block_ptr", "make_tensor_descriptor", "advance", "multiple_of", "max_contiguous", "cast")


@dataclass(frozen=True)
class Accesses:
    """Parameters by what is done through them. ``unclear``: a device helper stores, or an address has no base."""

    loaded: frozenset[str]
    stored: frozenset[str]
    atomics: bool
    unclear: str = ""


def accesses(module: Module, function: Function) -> Accesses:
    """What a kernel does through its pointer parameters."""
    flow = flow_of(function)
    loaded: set[str] = set()
    stored: set[str] = set()
    atomics, unclear = False, ""
    for node in ast.walk(function_ast(function)):
        if not isinstance(node, ast.Call):
            continue
        kind, address = _access(node)
        if address is None:
            continue
        bases = bases_of(flow, address)
        atomics = atomics or kind == "atomic"
        if not bases:
            unclear = unclear or f"the address {ast.unparse(address)} has no parameter as its base"
        (loaded if kind == "load" else stored).update(bases)
    for helper in helpers_of(module, function)[1:]:
        for node in ast.walk(function_ast(helper)):
            kind = _access(node)[0] if isinstance(node, ast.Call) else ""
            atomics = atomics or kind == "atomic"
            if kind in ("store", "atomic"):
                unclear = unclear or f"the device function {helper.name} stores"
    return Accesses(frozenset(loaded), frozenset(stored), atomics, unclear)


def _access(call: ast.Call) -> tuple[str, ast.expr | None]:
    """("load" | "store" | "atomic" | "", address)."""
    if not isinstance(call.func, ast.Attribute):
        return "", None
    name = call.func.attr
    direct = isinstance(call.func.value, ast.Name) and call.func.value.id in ("tl", "language")
    kind = "atomic" if name.startswith(_ATOMIC) else name if name in ("load", "store") else ""
    if not kind:
        return "", None
    if not direct:
        return kind, call.func.value  # a descriptor's method
    return kind, call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "pointer"), None)


def bases_of(flow: Flow, address: ast.expr) -> set[str]:
    """Parameters that an address may start from."""
    found: set[str] = set()
    seen: set[str] = set()
    sizes = _numbers(flow)

    def visit(node: ast.expr) -> None:
        if isinstance(node, ast.Name):
            if node.id in seen:
                return
            seen.add(node.id)
            if node.id in flow.function.params and node.id not in sizes:
                found.add(node.id)
            for definition in flow.definitions.get(node.id, []):
                if definition.value is not None:
                    visit(definition.value)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            visit(node.left)
            visit(node.right)
        elif isinstance(node, ast.IfExp):
            visit(node.body)
            visit(node.orelse)
        elif isinstance(node, ast.Subscript):
            visit(node.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr in _BASE_OF_FIRST and node.args:
                visit(node.args[0])
            elif node.func.attr == "where":
                for arg in node.args[1:]:
                    visit(arg)
            elif node.func.attr == "to":
                visit(node.func.value)

    visit(address)
    return found


def _numbers(flow: Flow) -> set[str]:
    """Parameters that take part in products, comparisons or counts: sizes and strides, no pointers."""
    found: set[str] = set(flow.function.constexprs)
    for node in ast.walk(function_ast(flow.function)):
        parts: list[ast.expr] = []
        if isinstance(node, ast.BinOp) and not isinstance(node.op, ast.Add | ast.Sub):
            parts = [node.left, node.right]
        elif isinstance(node, ast.Compare) and not isinstance(node.ops[0], ast.Is | ast.IsNot):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("cdiv", "range", "minimum"):
            parts = list(node.args)
        found |= {p.id for p in parts if isinstance(p, ast.Name)}
    return found


def unsafe_to_rerun(module: Module, function: Function, launches: tuple[Launch, ...]) -> str:
    """Why running the kernel twice on the same tensors may give another result ("" when it may not)."""
    found = accesses(module, function)
    if found.atomics:
        return f"{function.name} accumulates with atomics: a second run adds again"
    both = sorted(found.loaded & found.stored)
    if both:
        return f"{function.name} stores to {both[0]}, which it also reads: a second run starts from other values"
    if found.unclear:
        return f"cannot tell whether {function.name} may run twice: {found.unclear}"
    for launch in launches:
        passed = {p: code(launch.bound[p].value).strip() for p in found.loaded | found.stored if p in launch.bound}
        read = {passed[p] for p in found.loaded if p in passed}
        for parameter in sorted(found.stored & set(passed)):
            if passed[parameter] in read:
                return f"{function.name} works in place on {passed[parameter]}: a second run starts from other values"
    return ""
