"""Tensor descriptors taken back to pointers: those made in the kernel, and those behind a constexpr flag."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from ..surface import Editor, Module
from ..surface.query import assignment, calls, expression, find
from ._lines import Line, Section, assemble, atom, call_argument, sections, splice, tl_name, unique, walk_lines

MAKERS = ("make_tensor_descriptor", "make_tensor_descriptor_fn")


class CannotPointError(Exception):
    """A descriptor that has no plain pointer form; the message says why."""


@dataclass(frozen=True)
class Descriptor:
    """What ``tl.make_tensor_descriptor`` was given."""

    name: str
    base: str
    shape: tuple[str, ...]
    strides: tuple[str, ...]
    block: tuple[str, ...]


def descriptor_of(line: Line) -> Descriptor | None:
    """The descriptor that a statement makes, else None."""
    value = line.value
    if line.target is None or not isinstance(value, ast.Call) or tl_name(value) not in MAKERS:
        return None
    names = ("shape", "strides", "block_shape")
    lists: list[tuple[str, ...]] = []
    for position, name in enumerate(names, start=1):
        given = call_argument(value, name, position)
        if not isinstance(given, ast.List | ast.Tuple):
            raise CannotPointError(f"the {name} of {line.target} is not written out")
        lists.append(tuple(line.segment(e) for e in given.elts))
    base = call_argument(value, "base", 0)
    if base is None:
        raise CannotPointError(f"{line.target} has no base")
    return Descriptor(line.target, line.segment(base), *lists)


def uses_descriptors(lines: Sequence[Line]) -> bool:
    """A statement makes a descriptor."""
    return any(tl_name(n) in MAKERS for line in lines for n in ast.walk(line.tree))


def to_pointers(lines: Sequence[Line], known: dict[str, Descriptor], taken: set[str]) -> list[Line]:
    """The statements with every descriptor access as a masked access through pointers.

    Raises CannotPointError for gathers, reductions through descriptors, and descriptors passed on.
    """
    done: list[Line] = []
    for line in lines:
        if line.compound:
            parts = [Section(s.header, tuple(to_pointers(s.lines, known, taken))) for s in sections(line)]
            done.append(Line(assemble(parts).text, line.lead))
            continue
        made = descriptor_of(line)
        if made is not None:
            known[made.name] = made
            continue
        done += _plain_access(line, known, taken)
    return done


def _plain_access(line: Line, known: dict[str, Descriptor], taken: set[str]) -> list[Line]:
    before: list[Line] = []
    edits: list[tuple[ast.AST, str]] = []
    inside: set[int] = set()
    for node in ast.walk(line.tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner = node.func.value
        if not isinstance(owner, ast.Name) or owner.id not in known:
            continue
        inside.add(id(owner))
        if node.func.attr not in ("load", "store"):
            raise CannotPointError(f"{owner.id}.{node.func.attr} has no plain pointer form")
        made, text = _access(line, node, known[owner.id], taken)
        before += made
        edits.append((node, text))
    loose = [n.id for n in ast.walk(line.tree) if isinstance(n, ast.Name) and n.id in known and id(n) not in inside]
    if loose:
        raise CannotPointError(f"{loose[0]} is used for more than loads and stores")
    if not edits:
        return [line]
    first = before[0] if before else line
    return [Line(first.text, line.lead), *before[1:], Line(splice(line.text, edits))]


def _access(line: Line, call: ast.Call, made: Descriptor, taken: set[str]) -> tuple[list[Line], str]:
    offsets = call.args[0] if call.args else None
    if not isinstance(offsets, ast.List | ast.Tuple) or len(offsets.elts) != len(made.block):
        raise CannotPointError(f"the offsets of {made.name} are not written out")
    if len(made.block) > 2:
        raise CannotPointError(f"{made.name} has {len(made.block)} dimensions")
    stem = made.name.removesuffix("_desc").removeprefix("desc_")
    names = (f"{stem}_rows", f"{stem}_cols") if len(made.block) == 2 else (f"{stem}_cols",)
    marks = ("[:, None]", "[None, :]") if len(made.block) == 2 else ("",)
    lines: list[Line] = []
    address = made.base
    bounds: list[str] = []
    for axis, (name, mark) in enumerate(zip(names, marks, strict=True)):
        index = unique(name, taken)
        taken.add(index)
        start = line.segment(offsets.elts[axis])
        span = f"tl.arange(0, {made.block[axis]})"
        lines.append(Line(f"{index} = {span}" if start == "0" else f"{index} = {start} + {span}"))
        stride = made.strides[axis]
        address += f" + {index}{mark}" + ("" if stride == "1" else f" * {atom(stride)}")
        bounds.append(f"({index}{mark} < {made.shape[axis]})")
    mask = " & ".join(bounds) if len(bounds) > 1 else bounds[0][1:-1]
    if isinstance(call.func, ast.Attribute) and call.func.attr == "store":
        return lines, f"tl.store({address}, {line.segment(call.args[1])}, mask={mask})"
    return lines, f"tl.load({address}, mask={mask}, other=0.0)"


# ---------------------------------------------------------------------------------------------- behind a flag
def pointer_branches(lines: Sequence[Line], constexprs: frozenset[str]) -> tuple[list[Line], set[str]]:
    """The statements with every branch on a flag that holds descriptors dropped, and the flags met."""
    done: list[Line] = []
    met: set[str] = set()
    names = {n for line in walk_lines(lines) if tl_name(line.value or ast.Pass()) in MAKERS for n in line.writes}
    for line in lines:
        parts = sections(line)
        if not parts:
            done.append(line)
            continue
        flag = _flag(line, constexprs)
        described = [any(_touches(x, names) for x in p.lines) for p in parts]
        if flag is not None and len(parts) <= 2 and described.count(True) == 1:
            kept = next((p for p, d in zip(parts, described, strict=True) if not d), None)
            met.add(flag)
            if kept is not None:
                done += [Line(kept.lines[0].text, line.lead), *kept.lines[1:]]
            continue
        inner: list[Section] = []
        for part in parts:
            body, flags = pointer_branches(part.lines, constexprs)
            met |= flags
            inner.append(Section(part.header, tuple(body)))
        changed = any(a.lines != b.lines for a, b in zip(parts, inner, strict=True))
        done.append(Line(assemble(inner).text, line.lead) if changed else line)
    return done, met


def _flag(line: Line, constexprs: frozenset[str]) -> str | None:
    test = line.tree.test if isinstance(line.tree, ast.If) else None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        test = test.operand
    return test.id if isinstance(test, ast.Name) and test.id in constexprs else None


def _touches(line: Line, names: set[str]) -> bool:
    for node in ast.walk(line.tree):
        if tl_name(node) in MAKERS:
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("load", "store"):
            owner = node.func.value
            if isinstance(owner, ast.Name) and (owner.id in names or owner.id.endswith("_desc")):
                return True
    return False


# ---------------------------------------------------------------------------------------------- launcher
def drop_test(editor: Editor, module: Module, kernel: str, flags: set[str]) -> None:
    """Remove the launcher's variables that were made for the flags alone."""
    for launch in module.launches_of(kernel):
        for flag in flags & set(launch.bound):
            name = module.text(launch.bound[flag].value)
            host = module.functions.get(launch.function)
            if host is None or not name.isidentifier():
                continue
            uses = find(host.node.body, cst.Name, lambda n, name=name: n.value == name)
            made = [s for s in find(host.node.body, cst.SimpleStatementLine) if (assignment(s) or ("",))[0] == name]
            if len(uses) == 2 and len(made) == 1:
                editor.remove_statement(made[0])


def drop_allocator(editor: Editor, module: Module, kernel: str) -> None:
    """Remove ``triton.set_allocator`` and its function when no other kernel makes descriptors."""
    others = [f for n, f in module.jit_functions.items() if n != kernel and calls(f.node, *MAKERS)]
    if others:
        return
    for statement in find(module.tree, cst.SimpleStatementLine):
        call = expression(statement)
        if not isinstance(call, cst.Call) or module.text(call.func) != "triton.set_allocator" or not call.args:
            continue
        block = module.parent(statement)
        if isinstance(block, cst.IndentedBlock) and len(block.body) == 1:
            continue
        editor.remove_statement(statement)
        name = module.text(call.args[0].value)
        function = module.functions.get(name)
        if function is not None and len(re.findall(rf"\b{re.escape(name)}\b", module.source)) == 2:
            _remove_function(editor, module, function.node)


def _remove_function(editor: Editor, module: Module, node: cst.FunctionDef) -> None:
    start = module.data.rfind(b"\n", 0, module.span(node)[0]) + 1
    end = module.span(node)[1]
    while module.data[end : end + 1] == b"\n":
        end += 1
    editor.replace_span(start, end, "")
