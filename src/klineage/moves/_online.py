"""The running-maximum recurrence of an online softmax: found, split into two passes, and put together."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from ._lanes import pairwise
from ._lines import Line, rename, rewrite, tl_name, unique
from ._loop_values import Body, closure, loop_body, original, rebuild, without_repeats
from ._values import Step, base_name, drop_dead

EXPONENTIALS = ("exp", "exp2")
LATE = 999  # a version number that no definition of a loop body reaches


class NotOnlineError(Exception):
    """A loop that looks like an online softmax and cannot be split; the message says why."""


@dataclass(frozen=True)
class Online:
    """``maximum`` is the carried name, ``new`` its next version, ``scaled`` the accumulators that are rescaled."""

    body: Body
    maximum: str
    new: str
    factors: frozenset[str]  # versions that hold exp(m - m_new)
    scaled: frozenset[str]


def running_maximum(body: Body) -> list[tuple[str, str]]:
    """(carried name, version) of each ``m_new = tl.maximum(m, ...)`` that becomes the next round's m."""
    found: list[tuple[str, str]] = []
    for name in sorted(body.carried):
        new = original(body.last[name], body)
        value = body.values.get(new)
        sides = value.args if isinstance(value, ast.Call) and pairwise(value, "max") else []
        if any(isinstance(a, ast.Name) and original(a.id, body) == name for a in sides):
            found.append((name, new))
    return found


def online(line: Line) -> Online | None:
    """The loop as an online softmax (by its first running maximum), else None."""
    return next(iter(every_online(line)), None)


def every_online(line: Line) -> list[Online]:
    """The loop as an online softmax, once for each running maximum."""
    body = loop_body(line)
    every: list[Online] = []
    for name, new in running_maximum(body) if body is not None else ():
        if body is None:
            continue
        factors = {n for n, v in body.values.items() if _is_factor(v, name, new, body)}
        scaled = {c for c in body.carried if c != name and any(_scales(s.line, c, name, new, body) for s in body.steps)}
        if scaled:
            every.append(Online(body, name, new, frozenset(factors), frozenset(scaled)))
    return every


def _is_factor(node: ast.expr, name: str, new: str, body: Body) -> bool:
    """``exp(m - m_new)``, ``exp2((m - m_new) * c)``, or such a value under another name."""
    if isinstance(node, ast.Name):
        value = body.values.get(node.id)
        return value is not None and _is_factor(value, name, new, body)
    if isinstance(node, ast.Subscript):
        return _is_factor(node.value, name, new, body)
    if isinstance(node, ast.Call) and tl_name(node) in EXPONENTIALS and len(node.args) == 1:
        argument = node.args[0]
        if isinstance(argument, ast.Name) and argument.id in body.values:
            argument = body.values[argument.id]
        if isinstance(argument, ast.BinOp) and isinstance(argument.op, ast.Mult):
            argument = next((a for a in (argument.left, argument.right) if isinstance(a, ast.BinOp)), argument)
        if isinstance(argument, ast.BinOp) and isinstance(argument.op, ast.Sub):
            ends = [original(a.id, body) if isinstance(a, ast.Name) else "" for a in (argument.left, argument.right)]
            return ends == [name, new]
    return False


def _scales(line: Line, carried: str, name: str, new: str, body: Body) -> bool:
    """The statement multiplies a value of the carried name by the factor."""
    for node in ast.walk(line.tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for value, factor in ((node.left, node.right), (node.right, node.left)):
                versions = isinstance(value, ast.Name) and base_name(original(value.id, body)) == carried
                if versions and _is_factor(factor, name, new, body):
                    return True
    return False


# ---------------------------------------------------------------------------------------------- apart
def split(found: Online, taken: set[str]) -> list[Line]:
    """Two loops: the maximum, then everything else with the final maximum.

    Raises NotOnlineError when something else in the loop needs the running maximum.
    """
    body, name, new = found.body, found.maximum, found.new
    needs_running = {c for c in body.carried - found.scaled - {name} if name in closure_of(body, c)}
    first = closure(body, [new, *(body.last[c] for c in needs_running)])
    if first & found.scaled:
        raise NotOnlineError("the maximum depends on what it rescales")
    before, maxima = _maximum_pass(found, first, needs_running, taken)
    copies = _copies(body, new)
    outs = {c: v for c, v in body.last.items() if c in body.carried and c != name and c not in needs_running}
    kept = [s for s in body.steps if not s.line.writes & (copies | {body.last[name]})]
    late = [replace(s, line=rewrite(s.line, lambda node, at: _unscaled(node, at, found))) for s in kept]
    if any(name in s.line.reads for s in drop_dead([*late, Step(Line(f"_({', '.join(outs.values())})"))], set())):
        raise NotOnlineError("something else than a rescaling needs the running maximum")
    late = [replace(s, line=rename(s.line, dict.fromkeys(copies, name), stores=False)) for s in late]
    late = [replace(s, augmented=s.augmented or _now_augmented(s.line)) for s in late]
    late, outs = without_repeats(late, outs)
    second = rebuild(body.header, late, outs)
    return [*before, maxima, second]


def closure_of(body: Body, carried: str) -> set[str]:
    """What a carried name's update needs, the running maximum's own updates left out."""
    defined = {n: s.line for s in body.steps for n in s.line.writes}
    wanted: set[str] = set()
    stack = [body.last[carried]]
    while stack:
        current = stack.pop()
        if current not in wanted:
            wanted.add(current)
            stack += defined[current].reads if current in defined else ()
    return wanted


def _copies(body: Body, new: str) -> set[str]:
    return {v for v in body.values if original(v, body) == new}


def _now_augmented(line: Line) -> bool:
    value = line.value
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and isinstance(value.left, ast.Name):
        return line.target is not None and base_name(value.left.id) == base_name(line.target)
    return False


def _unscaled(node: ast.AST, line: Line, found: Online) -> str | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for value, factor in ((node.left, node.right), (node.right, node.left)):
            named = isinstance(value, ast.Name) and base_name(original(value.id, found.body)) in found.scaled
            if named and _is_factor(factor, found.maximum, found.new, found.body):
                return line.segment(value)
    return None


def _maximum_pass(found: Online, needed: set[str], others: set[str], taken: set[str]) -> tuple[list[Line], Line]:
    """The first loop, and copies of what both loops carry along (pointers)."""
    body = found.body
    steps = [s for s in body.steps if s.line.writes & needed]
    copies: dict[str, str] = {}
    for name in sorted(body.carried & needed - {found.maximum} - others):
        copies[name] = unique(f"{name}_max", taken)
        taken.add(copies[name])
    final = f"{found.maximum}__v{LATE}"
    outs = {found.maximum: final}
    renamed: list[Step] = []
    for step in steps:
        if step.line.target in _copies(body, found.new) - {found.new}:
            continue
        line = rename(step.line, {**copies, **dict.fromkeys(_copies(body, found.new), final)})
        new = {
            v: f"{copies[base_name(v)]}{v[len(base_name(v)) :]}"
            for v in line.writes | line.reads
            if base_name(v) in copies
        }
        renamed.append(replace(step, line=rename(line, new)))
    for name, copy in copies.items():
        outs[copy] = f"{copy}{body.last[name][len(name) :]}"
    for name in others:
        outs[name] = body.last[name]
    lines = [Line(f"{copy} = {name}") for name, copy in copies.items()]
    return lines, rebuild(body.header, renamed, outs)
