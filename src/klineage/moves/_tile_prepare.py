"""One-pass row code made ready for tiling: its length, reductions on their own, one meaning a name."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from ..surface.pyast import parse_ast
from ._lanes import is_lane, lane_names, reduction_calls
from ._lines import Line, call_argument, calls_of, rename, splice, tl_name, unique, walk_lines

_METADATA = ("dtype",)


class CannotTileError(Exception):
    """Row code that cannot be cut into tiles; the message says why."""


@dataclass(frozen=True)
class Row:
    """What is known of the row: the tile's constexpr, the row's length, and a free name for the loop's counter."""

    block: str
    length: str
    counter: str


def row_lanes(lines: Sequence[Line], row: Row, outer: Sequence[Line]) -> set[str]:
    """Names that are row vectors in a block, those of the enclosing blocks included."""
    return lane_names([*outer, *lines], row.block)


def resolve_dtypes(lines: list[Line], row: Row, outer: Sequence[Line]) -> list[Line]:
    """``t = x.dtype`` of a loaded row --> the pointer's element type, so that it can stand outside the loops."""
    lanes = row_lanes(lines, row, outer)
    known: dict[str, ast.expr] = {}
    for line in outer:
        if line.target is not None and line.value is not None:
            known[line.target] = line.value
    done: list[Line] = []
    for line in lines:
        new = line
        if not line.compound and line.value is not None and not is_lane(line.value, lanes, row.block):
            new = _replace_dtypes(line, known, lanes)
        done.append(new)
        target = line.target
        if target is not None and line.value is not None and not isinstance(line.tree, ast.AugAssign):
            known[target] = _freeze(line.value, target, known)
        elif target is not None:
            known.pop(target, None)
    return done


def _freeze(value: ast.expr, target: str, known: dict[str, ast.expr]) -> ast.expr:
    """``x = x.to(t)``: chase the old x now, since the name is about to mean something else."""
    if not isinstance(value, ast.Name) and any(isinstance(n, ast.Name) and n.id == target for n in ast.walk(value)):
        text = _element_type(value, known)
        return parse_ast(f"_.to({text})", mode="eval").body if text else ast.Constant(None)
    return value


def _replace_dtypes(line: Line, known: dict[str, ast.expr], lanes: set[str]) -> Line:
    edits: list[tuple[ast.AST, str]] = []
    for node in ast.walk(line.tree):
        if isinstance(node, ast.Attribute) and node.attr in _METADATA and isinstance(node.value, ast.Name):
            if node.value.id not in lanes:
                continue
            text = _element_type(node.value, known)
            if text is None and node is line.value:
                return line  # stays with the lanes
            if text is None:
                raise CannotTileError(f"the type of {node.value.id} is needed outside the loops and is not plain")
            edits.append((node, text))
    return line.with_text(splice(line.text, edits)) if edits else line


def _element_type(node: ast.expr, known: dict[str, ast.expr], depth: int = 0) -> str | None:
    if depth > 20:
        return None
    if isinstance(node, ast.Name) and node.id in known:
        return _element_type(known[node.id], known, depth + 1)
    if isinstance(node, ast.Call) and tl_name(node) == "load":
        root = _left_name(node.args[0])
        return f"{root}.dtype.element_ty" if root else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "cast"):
        target = node.args[0] if node.args else None
        if isinstance(target, ast.Attribute) and target.attr == "dtype" and isinstance(target.value, ast.Name):
            return _element_type(target.value, known, depth + 1)
        return ast.unparse(target) if target is not None else None
    return None


def _left_name(node: ast.expr) -> str:
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        node = node.left
    return node.id if isinstance(node, ast.Name) else ""


def split_reductions(lines: list[Line], row: Row, outer: Sequence[Line], taken: set[str]) -> list[Line]:
    """Give every reduction over the row a statement of its own."""
    done: list[Line] = []
    for original in lines:
        line = original
        while not line.compound and line.value is not None:
            lanes = row_lanes([*lines, *done], row, outer)
            found = reduction_calls(line.value, lanes, row.block)
            if not found or (len(found) == 1 and found[0] is line.value and isinstance(line.tree, ast.Assign)):
                break
            call = found[0]
            if call is line.value and isinstance(line.tree, ast.Assign):
                break
            stem = line.target or "row"
            name = unique(f"{stem}_{tl_name(call) or 'sum'}", taken)
            taken.add(name)
            done.append(Line(f"{name} = {line.segment(call)}", line.lead))
            line = Line(splice(line.text, [(call, name)]))
        done.append(line)
    return done


def separate_names(lines: list[Line], row: Row, outer: Sequence[Line], taken: set[str]) -> list[Line]:
    """A name that means a row vector here and a scalar there, or a scalar set anew after lanes read it, is split."""
    lanes = row_lanes(lines, row, outer)
    kinds: dict[str, list[str]] = {}
    read_by_lane: set[str] = set()
    current_lanes = {n for line in outer for n in line.writes} & lanes
    split: set[str] = set()
    for line in lines:
        if line.compound or line.target is None or line.value is None:
            read_by_lane |= line.reads if calls_of(line.tree, "store") else set()
            continue
        augmented = isinstance(line.tree, ast.AugAssign) and line.target in current_lanes
        lane = augmented or is_lane(line.value, current_lanes, row.block)
        name = line.target
        reduces = bool(reduction_calls(line.value, current_lanes, row.block))
        if lane or reduces:
            read_by_lane |= line.reads
        kinds.setdefault(name, []).append("lane" if lane else "scalar")
        if not lane and name in read_by_lane and (len(kinds[name]) > 1 or name not in line.reads or reduces):
            split.add(name)
        (current_lanes.add if lane else current_lanes.discard)(name)
    split |= {n for n, k in kinds.items() if len(set(k)) > 1}
    return _split_versions(lines, split, taken) if split else lines


def _split_versions(lines: list[Line], split: set[str], taken: set[str]) -> list[Line]:
    current: dict[str, str] = {}
    seen: set[str] = set()
    done: list[Line] = []
    for line in lines:
        if line.compound and line.writes & split:
            raise CannotTileError(f"{', '.join(sorted(line.writes & split))} is set in a branch and used as two things")
        new = line
        target = line.target
        if target in split and isinstance(line.tree, ast.AugAssign):
            value = line.segment(line.tree.value)
            operator = line.text[len(target or "") :].lstrip().split("=")[0]
            new = line.with_text(f"{target} = {target} {operator} ({value})")
        new = rename(new, current, stores=False)
        if target is not None and target in split:
            name = target if target not in seen else unique(target, taken)
            seen.add(target)
            taken.add(name)
            current[target] = name
            new = rename(new, {target: name}, loads=False)
        done.append(new)
    return done


def row_length(lines: Sequence[Line], block: str) -> str | None:
    """The length that bounds the columns ``tl.arange(0, block)``: of ``cols < n``; None when unbounded or not one."""
    columns = pure_columns(lines, block)
    found: list[str] = []
    for line in walk_lines(lines):
        for node in [n for n in ast.walk(line.tree) if isinstance(n, ast.Compare)] if not line.compound else []:
            if len(node.ops) == 1 and isinstance(node.ops[0], ast.Lt) and _is_columns(node.left, columns, block):
                found.append(ast.unparse(node.comparators[0]))
    return found[0] if len(set(found)) == 1 else None


def pure_columns(lines: Sequence[Line], block: str) -> set[str]:
    """Names that hold exactly the column numbers of a whole row."""
    columns: set[str] = set()
    spoilt: set[str] = set()
    for line in walk_lines(lines):
        if line.compound or line.value is None or line.target is None:
            continue
        if not isinstance(line.tree, ast.AugAssign) and _is_columns(line.value, columns, block):
            columns.add(line.target)
        else:
            spoilt.add(line.target)
    return columns - spoilt


def _is_columns(node: ast.expr, columns: set[str], block: str) -> bool:
    if isinstance(node, ast.Name):
        return node.id in columns
    if isinstance(node, ast.Call):
        name = tl_name(node)
        if name == "arange":
            size = call_argument(node, "end", 1)
            first = call_argument(node, "start", 0)
            return isinstance(size, ast.Name) and size.id == block and first is not None and ast.unparse(first) == "0"
        if name in ("multiple_of", "max_contiguous"):
            return _is_columns(node.args[0], columns, block)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            return _is_columns(node.func.value, columns, block)
    return False
