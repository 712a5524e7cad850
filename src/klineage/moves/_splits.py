"""The loop over the reduction axis and what follows it: what a split over several programs must know."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

import libcst as cst

from ..surface import Function, Module
from ..surface.pyast import parse_ast
from ..surface.query import augmented, code, is_call, names_read, names_written
from ._flow import flow_of
from ._kernels import docstring_free, dots_in
from ._nodes import calls, find

_NARROW_OK = ("tl.float32",)


class CannotSplitError(Exception):
    """Why a reduction loop cannot be shared out."""


@dataclass(frozen=True)
class Advance:
    """``pointer += step`` in the loop, with a step that is the same in every turn."""

    statement: cst.SimpleStatementLine
    name: str
    sign: str  # "+=" or "-="
    step: str


@dataclass(frozen=True)
class Reduction:
    """A top-level loop that accumulates products, and the one store of the result."""

    loop: cst.For
    call: cst.Call  # range(...)
    sums: frozenset[str]
    advances: tuple[Advance, ...]
    store: cst.Call


def reduction(module: Module, function: Function) -> Reduction | None:
    """The reduction loop of a kernel with one dot loop at its top level (None: it has none).

    Raises CannotSplitError when it has one whose turns depend on one another, or whose result is not stored once.
    """
    top = docstring_free(function)
    loops = [s for s in top if isinstance(s, cst.For) and dots_in(module, s.body)]
    if len(loops) != 1 or len(_dot_loops(module, function)) != 1:
        return None
    loop = loops[0]
    if not isinstance(loop.iter, cst.Call) or code(loop.iter.func).strip() not in ("range", "tl.range"):
        return None
    if not isinstance(loop.target, cst.Name):
        return None
    sums, advances = _carried(function, loop)
    left = names_written(loop) | {loop.target.value}
    for statement in top[top.index(loop) + 1 :]:
        late = sorted((names_read(statement) & left) - sums)
        if late:
            raise CannotSplitError(f"{late[0]} is read after the loop as its last turn left it")
        left -= names_written(statement)
    return Reduction(loop, loop.iter, frozenset(sums), tuple(advances), _only_store(function, top, loop))


def _dot_loops(module: Module, function: Function) -> list[cst.For]:
    return [loop for loop in find(function.node.body, cst.For) if dots_in(module, loop.body)]


def _only_store(
    function: Function, top: list[cst.SimpleStatementLine | cst.BaseCompoundStatement], loop: cst.For
) -> cst.Call:
    stores = [c for c in calls(function.node.body) if _stores(c)]
    after = top[top.index(loop) + 1 :]
    direct = [s for s in after if isinstance(s, cst.SimpleStatementLine) and find(s, cst.Call)]
    if len(stores) != 1 or not any(stores[0] in find(s, cst.Call) for s in direct):
        raise CannotSplitError("the kernel does not store its result once, after the loop")
    if not is_call(stores[0], "store", "atomic_add") or any(
        a.keyword is not None and a.keyword.value == "boundary_check" for a in stores[0].args
    ):
        raise CannotSplitError("the result is stored through a descriptor or block pointer")
    return stores[0]


def _stores(call: cst.Call) -> bool:
    last = code(call.func).strip().split(".")[-1]
    return last == "store" or last.startswith("atomic_")


def _carried(function: Function, loop: cst.For) -> tuple[set[str], list[Advance]]:
    """Accumulators and advances; anything else that a turn hands to the next is refused."""
    written = names_written(loop)
    sums: set[str] = set()
    advances: list[Advance] = []
    bound: set[str] = {n.value for n in find(loop.target, cst.Name)}
    body = loop.body.body
    for statement in body:
        found = augmented(statement)
        read = names_read(statement)
        if found is not None and isinstance(statement, cst.SimpleStatementLine) and found[0] not in bound:
            name, sign, value = found
            if _is_sum(function, name) and sign in ("+=", "-=") and name not in names_read(value):
                sums.add(name)
                read -= {name}
            elif sign in ("+=", "-=") and not names_read(value) & written:
                advances.append(Advance(statement, name, sign, code(value).strip()))
                read -= {name}
        elif _accumulates(statement) in written and _is_sum(function, _accumulates(statement)):
            sums.add(_accumulates(statement))
            read -= {_accumulates(statement)}
        mine = {*sums, *(a.name for a in advances)}
        handed = sorted((read & written) - bound - _advanced(function, loop))
        if handed:
            raise CannotSplitError(f"{handed[0]} is carried from one turn of the loop to the next")
        bound |= names_written(statement) - mine
    if not sums:
        raise CannotSplitError("the loop has no accumulator that starts at zero")
    return sums, advances


def _advanced(function: Function, loop: cst.For) -> set[str]:
    """Names that top-level statements of the loop advance by a fixed step (reading them in a turn is fine)."""
    written = names_written(loop)
    found = [augmented(s) for s in loop.body.body]
    return {
        f[0]
        for f in found
        if f is not None and f[1] in ("+=", "-=") and not names_read(f[2]) & written and _bindings(loop, f[0]) == 1
        if not _is_sum(function, f[0])
    }


def _bindings(loop: cst.For, name: str) -> int:
    return sum(1 for s in find(loop.body, cst.SimpleStatementLine) if name in names_written(s))


def _is_sum(function: Function, name: str) -> bool:
    """Whether a name starts at zero before the loop."""
    values = [d.value for d in flow_of(function).definitions.get(name, []) if d.value is not None]
    return bool(values) and ast.unparse(values[0]).startswith("tl.zeros(")


def _accumulates(statement: cst.CSTNode) -> str:
    """The name of ``acc = tl.dot(a, b, acc)`` or ``acc = acc + ...`` ("" for other statements)."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return ""
    tree = parse_ast(code(statement).strip()).body[0]
    if not isinstance(tree, ast.Assign) or not isinstance(tree.targets[0], ast.Name):
        return ""
    name, value = tree.targets[0].id, tree.value
    others: Iterable[ast.AST] = ()
    if isinstance(value, ast.Call) and ast.unparse(value.func) in ("tl.dot", "tl.dot_scaled"):
        acc = [a for a in (*value.args, *(k.value for k in value.keywords)) if ast.unparse(a) == name]
        others = [a for a in (*value.args, *(k.value for k in value.keywords)) if ast.unparse(a) != name]
        if len(acc) != 1:
            return ""
    elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        sides = [ast.unparse(value.left), ast.unparse(value.right)]
        if sides.count(name) != 1:
            return ""
        others = [value.right if sides[0] == name else value.left]
    else:
        return ""
    inside = {n.id for o in others for n in ast.walk(o) if isinstance(n, ast.Name)}
    return "" if name in inside else name


# ------------------------------------------------------------------- epilogue
@dataclass(frozen=True)
class Epilogue:
    """What happens between the loop and the store: additions that one split alone must make, and objections."""

    additions: tuple[cst.SimpleStatementLine, ...]
    objection: str


def epilogue(function: Function, found: Reduction) -> Epilogue:
    """Whether the stored value is linear in the accumulators."""
    top = docstring_free(function)
    after = top[top.index(found.loop) + 1 :]
    tainted = set(found.sums)
    additions: list[cst.SimpleStatementLine] = []
    for statement in after:
        if not names_read(statement) & tainted:
            tainted -= names_written(statement)
            continue
        if not isinstance(statement, cst.SimpleStatementLine):
            return Epilogue((), "the accumulator is used in a branch or loop after the reduction")
        tree = parse_ast(code(statement).strip()).body[0]
        if found.store in find(statement, cst.Call):
            value = tree.value.args[1] if isinstance(tree, ast.Expr) and isinstance(tree.value, ast.Call) else None
            if value is None or _degree(value, tainted) != 1:
                return Epilogue((), f"what is stored is not linear in the accumulator: {_short(tree)}")
            continue
        if _adds(tree, tainted):
            additions.append(statement)
        elif not _linear(tree, tainted):
            return Epilogue((), f"{_short(tree)} is not linear in the accumulator")
        tainted |= names_written(statement)
    return Epilogue(tuple(additions), "")


def _short(tree: ast.stmt) -> str:
    text = " ".join(ast.unparse(tree).split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def _adds(tree: ast.stmt, tainted: set[str]) -> bool:
    """``acc += e`` or ``acc = acc + e`` where ``e`` does not read an accumulator."""
    if isinstance(tree, ast.AugAssign) and isinstance(tree.op, ast.Add | ast.Sub):
        return ast.unparse(tree.target) in tainted and _degree(tree.value, tainted) == 0
    if not isinstance(tree, ast.Assign) or not isinstance(tree.value, ast.BinOp):
        return False
    value, name = tree.value, ast.unparse(tree.targets[0])
    if not isinstance(value.op, ast.Add) or name not in tainted:
        return False
    sides = (value.left, value.right)
    other = [s for s in sides if ast.unparse(s) != name]
    return len(other) == 1 and _degree(other[0], tainted) == 0


def _linear(tree: ast.stmt, tainted: set[str]) -> bool:
    if isinstance(tree, ast.Assign) and len(tree.targets) == 1 and isinstance(tree.targets[0], ast.Name):
        return _degree(tree.value, tainted) == 1
    if isinstance(tree, ast.AugAssign) and isinstance(tree.op, ast.Mult | ast.Div):
        return _degree(tree.value, tainted) == 0
    return False


def _degree(node: ast.expr, tainted: set[str]) -> int | None:
    """0: free of accumulators; 1: linear in them without a constant part; None: anything else."""
    if not any(isinstance(n, ast.Name) and n.id in tainted for n in ast.walk(node)):
        return 0
    if isinstance(node, ast.Name):
        return 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _degree(node.operand, tainted)
    if isinstance(node, ast.BinOp):
        left, right = _degree(node.left, tainted), _degree(node.right, tainted)
        if isinstance(node.op, ast.Add | ast.Sub):
            return 1 if left == right == 1 else None
        if isinstance(node.op, ast.Mult):
            return 1 if {left, right} == {0, 1} else None
        return 1 if isinstance(node.op, ast.Div) and (left, right) == (1, 0) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "to":
            return _degree(node.func.value, tainted)
        if node.func.attr in ("trans", "reshape", "permute") and node.args:
            return _degree(node.args[0], tainted)
    return None


def narrowing_casts(function: Function, found: Reduction, output: str) -> list[tuple[cst.Call, cst.BaseExpression]]:
    """(``v.to(T)``, ``v``) after the loop for T other than fp32 or the output's own type: partial sums stay fp32."""
    top = docstring_free(function)
    kept = (*_NARROW_OK, f"{output}.dtype.element_ty")
    tainted = set(found.sums)
    casts: list[tuple[cst.Call, cst.BaseExpression]] = []
    for statement in top[top.index(found.loop) + 1 :]:
        for call in find(statement, cst.Call):
            func = call.func
            if not isinstance(func, cst.Attribute) or func.attr.value != "to" or not call.args:
                continue
            if names_read(func.value) & tainted and code(call.args[0].value).strip() not in kept:
                casts.append((call, func.value))
        if names_read(statement) & tainted:
            tainted |= names_written(statement)
    return casts
