"""How a kernel indexes its elements: by row and column of a tile, or by one flat index."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..surface import Function
from ._flow import Flow, flow_of
from ._kernels import dots_in, function_ast
from ._tiles import bounds, roles

ROW, COL, FLAT, MASK = "ROW__", "COL__", "FLAT__", "MASK__"
SYMBOLS = frozenset((ROW, COL, FLAT, MASK))


@dataclass(frozen=True)
class Space:
    """Canonical texts of a kernel's index vectors, and the parameters that bound them.

    A kernel of tiles has ``row`` and ``col``, an elementwise kernel may have ``flat`` alone.
    """

    row: str = ""
    col: str = ""
    flat: str = ""
    row_name: str = ""  # the kernel's own text for the row vector
    col_name: str = ""
    row_extent: str = ""
    col_extent: str = ""
    blocks: tuple[str, ...] = ()  # the tile constexprs, rows first

    def symbol(self, text: str) -> str | None:
        """The symbol of an index vector's canonical text."""
        for symbol, known in ((ROW, self.row), (COL, self.col), (FLAT, self.flat)):
            if known and text == known:
                return symbol
        return None


def space_of(function: Function) -> Space | None:
    """The index space of a kernel: rows and columns of its tiles, or one flat range; None when it has neither."""
    flow, module = flow_of(function), function.module
    vectors = {tile: (text, canonical) for tile, text, canonical in _vectors(flow, function)}
    dots = dots_in(module, function.node.body)
    if len(vectors) == 1 and not dots:
        ((tile, (_, canonical)),) = vectors.items()
        return Space(flat=canonical, blocks=(tile,))
    role = roles(module, function) if dots else _roles_by_axis(flow, function, vectors)
    tiles = {r: t for t, r in role.items() if t in vectors}
    if not {"m", "n"} <= set(tiles):
        return None
    rows, cols = tiles["m"], tiles["n"]
    row_extent, col_extent = (next(iter(bounds(flow, t)), "") for t in (rows, cols))
    (row_name, row), (col_name, col) = vectors[rows], vectors[cols]
    return Space(row, col, "", row_name, col_name, row_extent, col_extent, (rows, cols))


def _vectors(flow: Flow, function: Function) -> Iterator[tuple[str, str, str]]:
    """(tile, text, canonical text) of each ``index * TILE + arange(0, TILE)`` of the kernel, the first of each tile."""
    seen: set[str] = set()
    named = [(n, d.value) for n in flow.definitions if (d := flow.single(n)) is not None and d.value is not None]
    bare = [(f"({ast.unparse(n)})", n) for n in ast.walk(function_ast(function)) if isinstance(n, ast.BinOp)]
    for text, value in [*named, *bare]:
        found = flow.match("X * T + tl.arange(0, T)", value) if isinstance(value, ast.BinOp) else None
        tile = None if found is None else found["T"]
        if isinstance(tile, ast.Name) and tile.id in function.constexprs and tile.id not in seen:
            seen.add(tile.id)
            yield tile.id, text, flow.canonical(value)


def _roles_by_axis(flow: Flow, function: Function, vectors: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """m for the tile whose vector is used as ``v[:, None]``, n for the other one of two."""
    rows: set[str] = set()
    for node in ast.walk(function_ast(function)):
        if isinstance(node, ast.Subscript) and ast.unparse(node.slice).strip("()") == ":, None":
            text = flow.canonical(node.value)
            rows |= {tile for tile, (_, canonical) in vectors.items() if canonical in text}
    if len(vectors) != 2 or len(rows) != 1:
        return {}
    return {tile: "m" if tile in rows else "n" for tile in vectors}
