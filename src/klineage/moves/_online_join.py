"""A maximum pass and the sums against that maximum, joined into one loop with a running maximum."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace

from ..surface.pyast import parse_ast
from ._lines import Line, atom, names_loaded, rename, splice, tl_name, unique
from ._loop_values import Body, loop_body, original, pure_body, rebuild, without_repeats
from ._online import EXPONENTIALS, LATE, closure_of, running_maximum
from ._values import Step, base_name


def join_passes(
    first: Line, second: Line, taken: set[str], *, together: Iterable[str] = (), checked: bool = True
) -> Line | None:
    """One loop from a maximum pass and the pass that sums exponentials against that maximum; None when they are not.

    ``together`` are names that both loops advance from the same start. ``checked=False`` lets sums pass that the
    factor does not rescale.
    """
    one, two = loop_body(first), loop_body(second)
    if one is None or two is None or not _same_range(first, second) or not pure_body(one) or not pure_body(two):
        return None
    maxima = running_maximum(one)
    if len(maxima) != 1:
        return None
    name, new = maxima[0]
    if name in two.last or any(name in closure_of(one, c) for c in one.carried - {name}):
        return None
    entered = {n for s in two.steps for n in s.line.reads} & set(one.last) - {name}
    if entered - set(together) or any(n in two.last for n in entered & set(together) if n not in two.carried):
        return None
    exponents = _exponents(two, name)
    sums = {c: _linear_update(two, c, name) for c in two.carried if name in closure_of(two, c)}
    if len(exponents) != 1 or not sums or (checked and not all(sums.values())):
        return None
    return _joined(one, two, (name, new), next(iter(exponents)), sorted(sums), taken)


def _same_range(first: Line, second: Line) -> bool:
    trees = first.tree, second.tree
    if not all(isinstance(t, ast.For) for t in trees):
        return False
    return ast.unparse(trees[0].iter) == ast.unparse(trees[1].iter)  # type: ignore[union-attr]


def _exponents(body: Body, name: str) -> set[tuple[str, str, bool]]:
    """(function, factor text, broadcast) of each exponential that has ``- m`` in it."""
    found: set[tuple[str, str, bool]] = set()
    for step in body.steps:
        for node in ast.walk(step.line.tree):
            if isinstance(node, ast.Call) and tl_name(node) in EXPONENTIALS and node.args:
                argument = node.args[0]
                if isinstance(argument, ast.Name) and argument.id in body.values:
                    argument = body.values[argument.id]
                form = _minus_maximum(argument, name)
                if form is not None:
                    found.add((step.line.segment(node.func), *form))
    return found


def _minus_maximum(node: ast.expr, name: str) -> tuple[str, bool] | None:
    factor = ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for inner, other in ((node.left, node.right), (node.right, node.left)):
            if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Sub) and name not in names_loaded(other):
                factor, node = ast.unparse(other), inner
                break
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and name not in names_loaded(node.left):
        right = node.right
        if isinstance(right, ast.Name) and right.id == name:
            return factor, False
        if isinstance(right, ast.Subscript) and isinstance(right.value, ast.Name) and right.value.id == name:
            return factor, True
    return None


def _linear_update(body: Body, carried: str, name: str) -> bool:
    """``c = c + T`` or ``c = tl.dot(P, v, c)`` with T and P proportional to exp(... - m)."""
    last = original(body.last[carried], body)
    value = body.values[last]
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        for own, term in ((value.left, value.right), (value.right, value.left)):
            if isinstance(own, ast.Name) and original(own.id, body) == carried and _linear(term, name, body):
                return True
    if tl_name(value) == "dot" and isinstance(value, ast.Call) and len(value.args) == 3:
        own = value.args[2]
        return isinstance(own, ast.Name) and original(own.id, body) == carried and _linear(value.args[0], name, body)
    return False


def _linear(node: ast.expr, name: str, body: Body) -> bool:
    """The value is proportional to one exponential of ``... - m``."""
    if isinstance(node, ast.Name):
        return node.id in body.values and _linear(body.values[node.id], name, body)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        left, right = _depends(node.left, name, body), _depends(node.right, name, body)
        return left != right and _linear(node.left if left else node.right, name, body)
    if isinstance(node, ast.Subscript):
        return _linear(node.value, name, body)
    if isinstance(node, ast.Call):
        called = tl_name(node)
        if called in EXPONENTIALS:
            return _depends(node, name, body)
        if called in ("sum", "dot", "trans", "cast") and node.args:
            rest = node.args[1:]
            return _linear(node.args[0], name, body) and not any(_depends(a, name, body) for a in rest)
        if called == "where" and len(node.args) == 3:
            zero = isinstance(node.args[2], ast.Constant) and node.args[2].value == 0
            return zero and _linear(node.args[1], name, body) and not _depends(node.args[0], name, body)
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "cast"):
            return _linear(node.func.value, name, body)
    return False


def _depends(node: ast.expr, name: str, body: Body) -> bool:
    seen: set[str] = set()
    stack = list(names_loaded(node))
    while stack:
        current = stack.pop()
        if current == name:
            return True
        if current not in seen:
            seen.add(current)
            if current in body.values:
                stack += names_loaded(body.values[current])
    return False


def _joined(
    one: Body,
    two: Body,
    maximum: tuple[str, str],
    exponent: tuple[str, str, bool],
    sums: list[str],
    taken: set[str],
) -> Line:
    name, new = maximum
    fresh = f"{unique(f'{name}_new', taken)}__v1"
    function, factor, broadcast = exponent
    difference = f"({name} - {fresh}) * {atom(factor)}" if factor else f"{name} - {fresh}"
    scale = f"{function}({difference})"
    steps: list[Step] = []
    counters = {_counter(one): _counter(two)}
    for step in one.steps:
        if original(step.line.target or "", one) == new and step.line.target != new:
            continue  # m = m_new comes last
        line = rename(step.line, counters, stores=False)
        steps.append(replace(step, line=rename(line, {new: fresh})))
    later = {v: f"{v}{LATE}" for v in two.values}
    if len(sums) > 1:
        alpha = f"{unique('alpha', {*taken, base_name(fresh)})}__v1"
        steps.append(Step(Line(f"{alpha} = {scale}")))
        scale = alpha
    for step in two.steps:
        line = rename(step.line, {name: fresh}, stores=False)
        for carried in sums:
            if original(two.last[carried], two) == step.line.target:
                line = _rescale(line, carried, scale, broadcast, two)
        steps.append(Step(rename(line, later), step.augmented))
    outs = {c: f"{two.last[c]}{LATE}" for c in two.carried}
    outs |= {c: one.last[c] for c in one.carried - {name}}
    steps, outs = without_repeats(steps, outs)
    steps.append(Step(Line(f"{name}__v{LATE} = {fresh}")))
    return rebuild(two.header, steps, {name: f"{name}__v{LATE}", **outs})


def _counter(body: Body) -> str:
    tree = parse_ast(f"{body.header}\n    pass").body[0]
    return tree.target.id if isinstance(tree, ast.For) and isinstance(tree.target, ast.Name) else ""


def _rescale(line: Line, carried: str, scale: str, broadcast: bool, body: Body) -> Line:
    value = line.value
    edits: list[tuple[ast.AST, str]] = []
    if value is None:
        return line
    wide = broadcast and not _reduced(value, body)
    factor = f"{scale}[:, None]" if wide else scale
    for node in ast.walk(value):
        if isinstance(node, ast.Name) and original(node.id, body) == carried:
            edits.append((node, f"{node.id} * {factor}"))
    return line.with_text(splice(line.text, edits))


def _reduced(value: ast.expr, body: Body) -> bool:
    """The term that is added has lost its columns to a sum."""
    if isinstance(value, ast.BinOp):
        return any(_reduced(side, body) for side in (value.left, value.right))
    if isinstance(value, ast.Name) and value.id in body.values:
        return _reduced(body.values[value.id], body)
    return tl_name(value) == "sum"
