"""Row loops opened: a loop over a row's tiles that runs once becomes its body, and what repeats is merged."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from ._lanes import REDUCTIONS, RowLoop, accesses, has_effect, is_lane, lane_names, pairwise, pointer_root, row_loop
from ._lines import Line, Section, assemble, calls_of, names_loaded, rename, rewrite, sections, tl_name
from ._values import Step, definitions, drop_dead, merge_equal, pinned_names, pretty, steps_of, version

_JUMPS = (ast.Break, ast.Continue, ast.Return)


class CannotOpenError(Exception):
    """A row loop that cannot be opened; the message says why."""


def row_loops(lines: Sequence[Line], constexprs: frozenset[str]) -> list[RowLoop]:
    """All row loops of a body, inner blocks included."""
    found: list[RowLoop] = []
    for line in lines:
        loop = row_loop(line, constexprs)
        if loop is not None:
            found.append(loop)
        elif line.compound:
            for section in sections(line):
                found += row_loops(section.lines, constexprs)
    return found


def open_row_loops(
    lines: Sequence[Line], key: tuple[str, str], constexprs: frozenset[str], *, early_loads: bool
) -> list[Line]:
    """The body with every row loop of this (length, block) opened.

    Raises CannotOpenError when a loop is left early or its counter outlives it.
    """
    return _open(lines, key, constexprs, outer=frozenset(), after=frozenset(), early_loads=early_loads)


def _open(
    lines: Sequence[Line],
    key: tuple[str, str],
    constexprs: frozenset[str],
    *,
    outer: frozenset[str],
    after: frozenset[str],
    early_loads: bool,
) -> list[Line]:
    steps: list[Step] = []
    for index, line in enumerate(lines):
        loop = row_loop(line, constexprs)
        if loop is not None and loop.key == key:
            if calls_like(line, _JUMPS):
                raise CannotOpenError("a loop over the row is left early")
            steps += steps_of(_once(loop), inlined=True)
        elif line.compound:
            rest = {n for other in (*lines[:index], *lines[index + 1 :]) for n in (*other.reads, *other.writes)}
            steps.append(Step(_open_inside(line, key, constexprs, outer | after | rest)))
        else:
            steps += steps_of([line])
    if not any(s.inlined for s in steps):
        return [s.line if not s.augmented else line for s, line in zip(steps, lines, strict=True)]
    pinned = pinned_names([s.line for s in steps]) | set(outer) | set(after)
    steps = version(steps, pinned)
    steps = fold_accumulators(steps, key[1])
    steps = merge_equal(steps, pinned)
    if early_loads:
        steps = loads_first(steps, key[1])
    steps = drop_dead(steps, set(outer) | set(after))
    return pretty(steps, pinned)


def _open_inside(
    line: Line, key: tuple[str, str], constexprs: frozenset[str], outside: frozenset[str] | set[str]
) -> Line:
    parts: list[Section] = []
    changed = False
    for section in sections(line):
        if any(loop.key == key for loop in row_loops(section.lines, constexprs)):
            others = {n for s in sections(line) if s is not section for x in s.lines for n in (*x.reads, *x.writes)}
            seen = frozenset(outside) | others
            inner = _open(section.lines, key, constexprs, outer=seen, after=frozenset(), early_loads=False)
            parts.append(Section(section.header, tuple(inner)))
            changed = True
        else:
            parts.append(section)
    return Line(assemble(parts).text, line.lead) if changed else line


def calls_like(line: Line, kinds: tuple[type[ast.AST], ...]) -> bool:
    """True when a node of one of these types stands in the statement."""
    return any(isinstance(n, kinds) for n in ast.walk(line.tree))


def _once(loop: RowLoop) -> list[Line]:
    """The loop's body for its first and only round."""
    done: list[Line] = []
    for line in loop.lines:
        new = line
        if loop.variable in line.reads:
            new = fold_zeros(rename(line, {loop.variable: "0"}, stores=False))
        done.append(new)
    return done


def fold_zeros(line: Line) -> Line:
    """``0 + x``, ``x + 0``, ``0 * x`` with a literal integer zero, folded."""

    def zero(node: ast.AST) -> bool:
        return isinstance(node, ast.Constant) and node.value == 0 and isinstance(node.value, int)

    def change(node: ast.AST, at: Line) -> str | None:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            if zero(node.left):
                return _keep(at, node, node.right)
            if zero(node.right):
                return _keep(at, node, node.left)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and (zero(node.left) or zero(node.right)):
            return "0"
        return None

    return rewrite(line, change)


def _keep(line: Line, whole: ast.expr, part: ast.expr) -> str:
    """Text of ``part`` to stand in place of ``whole``, with the parentheses it needs there."""
    text = line.segment(part)
    if isinstance(part, ast.BinOp | ast.Compare | ast.BoolOp | ast.UnaryOp | ast.IfExp):
        return text if whole is line.value or _in_parentheses(line, whole) else f"({text})"
    return text


def _in_parentheses(line: Line, node: ast.expr) -> bool:
    full = line.segment(node)
    at = line.text.find(full)
    before = line.text[:at].rstrip()
    after = line.text[at + len(full) :].lstrip()
    return line.text.count(full) == 1 and before.endswith("(") and after[:1] in (")", ",")


# ---------------------------------------------------------------------------------------------- accumulators
def _identity(node: ast.expr, block: str) -> tuple[str, bool, str] | None:
    """(operation whose identity this is, is a vector, its type) of an accumulator's first value."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        text = ast.unparse(node)
        return ("max", False, "") if "inf" in text else None
    if isinstance(node, ast.Constant):
        return ("sum", False, "") if node.value in (0, 0.0) and not isinstance(node.value, bool) else None
    if not isinstance(node, ast.Call):
        return None
    name = tl_name(node)
    if name == "zeros":
        vector = is_lane(node, set(), block)
        dtype = next((ast.unparse(k.value) for k in node.keywords if k.arg == "dtype"), "")
        dtype = dtype or (ast.unparse(node.args[1]) if len(node.args) > 1 else "")
        return ("sum", vector, dtype) if vector else None
    if name == "full" and len(node.args) >= 2:
        inner = _identity(node.args[1], block)
        dtype = next((ast.unparse(k.value) for k in node.keywords if k.arg == "dtype"), "")
        dtype = dtype or (ast.unparse(node.args[2]) if len(node.args) > 2 else "")
        return (inner[0], True, dtype) if inner and is_lane(node, set(), block) else None
    if name in ("float", "float32", "float64", "float16", "constexpr") and len(node.args) == 1:
        argument = node.args[0]
        if name == "float" and isinstance(argument, ast.Constant) and isinstance(argument.value, str):
            return {"-inf": ("max", False, ""), "inf": ("min", False, "")}.get(argument.value)
        return _identity(argument, block)
    return None


def fold_accumulators(steps: Sequence[Step], block: str) -> list[Step]:
    """``acc = 0; acc += x`` --> ``acc = x`` (also products of that zero, and maxima from minus infinity)."""
    known = definitions(steps)
    first = {n: i for n, v in known.items() if (i := _identity(v, block)) is not None}
    lanes = lane_names([s.line for s in steps], block)
    floats = float32_names(steps)
    done: list[Step] = []
    for step in steps:
        line = step.line
        if step.inlined and not line.compound and any(n in first for n in line.reads):
            line = rewrite(line, _folder(first, lanes, floats, block))
        done.append(Step(line, step.augmented, step.inlined))
    return done


def _folder(first: dict[str, tuple[str, bool, str]], lanes: set[str], floats: set[str], block: str):
    def start(node: ast.AST, operation: str) -> tuple[str, bool, str] | None:
        if isinstance(node, ast.Name) and node.id in first and first[node.id][0] == operation:
            return first[node.id]
        if (
            operation == "sum"
            and isinstance(node, ast.Constant)
            and node.value == 0.0
            and isinstance(node.value, float)
        ):
            return ("sum", False, "")
        return None

    def kept(line: Line, whole: ast.expr, part: ast.expr, identity: tuple[str, bool, str]) -> str | None:
        if identity[1] and not is_lane(part, lanes, block):
            return None  # a scalar added to a vector: opening would change the shape
        text = _keep(line, whole, part)
        if identity[1] and identity[2].endswith("float32") and not is_float32(part, floats):
            text = (
                f"{text}.to(tl.float32)"
                if isinstance(part, ast.Name | ast.Call)
                else f"({line.segment(part)}).to(tl.float32)"
            )
        return text

    def change(node: ast.AST, line: Line) -> str | None:
        if isinstance(node, ast.BinOp):
            left, right = start(node.left, "sum"), start(node.right, "sum")
            if isinstance(node.op, ast.Add) and left is not None:
                return kept(line, node, node.right, left)
            if isinstance(node.op, ast.Add) and right is not None:
                return kept(line, node, node.left, right)
            if isinstance(node.op, ast.Mult) and any(e is not None and not e[1] for e in (left, right)):
                return "0.0"
        if isinstance(node, ast.Call):
            for operation in ("max", "min"):
                if pairwise(node, operation):
                    for here, there in (node.args, node.args[::-1]):
                        identity = start(here, operation)
                        if identity is not None:
                            return kept(line, node, there, identity)
        return None

    return change


def is_float32(node: ast.AST, floats: set[str]) -> bool:
    """True when an expression is surely fp32 (given names that are)."""
    if isinstance(node, ast.Name):
        return node.id in floats
    if isinstance(node, ast.BinOp):
        return is_float32(node.left, floats) or is_float32(node.right, floats)
    if isinstance(node, ast.UnaryOp):
        return is_float32(node.operand, floats)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "cast"):
            return bool(node.args) and ast.unparse(node.args[0]).endswith("float32")
        name = tl_name(node)
        if name == "where" and len(node.args) == 3:
            return any(is_float32(a, floats) for a in node.args[1:])
        if name in ("zeros", "full", "cast"):
            return "float32" in ast.unparse(node)
        if name in (*REDUCTIONS, "exp", "exp2", "log", "sqrt", "rsqrt", "abs", "sigmoid", "maximum", "minimum", "fma"):
            return any(is_float32(a, floats) for a in node.args)
    return False


def float32_names(steps: Sequence[Step]) -> set[str]:
    """Versions that are surely fp32."""
    floats: set[str] = set()
    for step in steps:
        if step.line.target is not None and step.line.value is not None and is_float32(step.line.value, floats):
            floats.add(step.line.target)
    return floats


# ---------------------------------------------------------------------------------------------- loads
def loads_first(steps: Sequence[Step], block: str) -> list[Step]:
    """Move the loads of a row, and what their addresses need, up before the first reduction.

    A load stays when its address or mask comes from a reduction or a compound statement, or when something was stored
    through its pointer before it.
    """
    known = definitions(steps)
    lanes = lane_names([s.line for s in steps], block)
    first = next((i for i, s in enumerate(steps) if calls_of(s.line.tree, *REDUCTIONS)), len(steps))
    fixed = {n for s in steps[first:] for n in s.line.writes}
    stored: set[str] = set()
    moved: list[int] = []
    for index in range(first, len(steps)):
        line = steps[index].line
        if line.compound or has_effect(line):
            stored |= accesses(line, known)[1]
            continue
        movable = line.target is not None and not calls_of(line.tree, *REDUCTIONS) and not line.reads & fixed
        if not movable or not _addressing(steps, index, lanes):
            continue
        if {pointer_root(c.args[0], known) for c in calls_of(line.tree, "load")} & stored:
            continue
        moved.append(index)
        fixed -= line.writes
    early = [steps[i] for i in moved]
    late = [s for i, s in enumerate(steps) if i >= first and i not in moved]
    return [*steps[:first], *early, *late]


def _addressing(steps: Sequence[Step], index: int, lanes: set[str]) -> bool:
    """The statement is a lane load, or only feeds the address or mask of one."""
    line = steps[index].line
    if calls_of(line.tree, "load"):
        return bool(line.writes & lanes)
    target = line.target
    for later in steps[index + 1 :]:
        for call in calls_of(later.line.tree, "load"):
            if target in names_loaded(call):
                return True
    return False
