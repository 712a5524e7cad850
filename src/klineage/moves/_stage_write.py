"""Writing a lifted stage into a kernel, with that kernel's texts for rows, columns and masks."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ._elementwise import function_name
from ._flow import parse
from ._spaces import COL, FLAT, MASK, ROW
from ._stages import NotAStageError


@dataclass(frozen=True)
class Texts:
    """What the symbols read in the kernel that a stage is written into.

    ``row_mask`` and ``col_mask`` are for loads that depend on that axis alone. A mask is "" where no lane is out of
    bounds.
    """

    row: str
    col: str
    flat: str
    mask: str
    row_mask: str
    col_mask: str


class Writer(ast.NodeTransformer):
    """Writes a stage's statements. ``names`` maps the stage's names to others; ``tiles`` depend on both axes."""

    def __init__(self, texts: Texts, names: Mapping[str, str], tiles: Sequence[str]) -> None:
        self.texts = texts
        self.names = names
        self.axes: dict[str, frozenset[str]] = {t: frozenset((ROW, COL)) for t in tiles}

    def lines(self, statements: Sequence[ast.stmt]) -> list[str]:
        """The written statements' lines.

        Raises NotAStageError when a statement needs a mask that the kernel does not have.
        """
        found: list[str] = []
        for statement in statements:
            written = self._write(copy.deepcopy(statement))
            found += ast.unparse(ast.fix_missing_locations(written)).split("\n")
        return found

    def _write(self, node: ast.stmt) -> ast.stmt:
        if isinstance(node, ast.If):
            node.test = self._expression(node.test)
            node.body = [self._write(s) for s in node.body]
            node.orelse = [self._write(s) for s in node.orelse]
        elif isinstance(node, ast.Assign | ast.AugAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                old = self.axes.get(target.id, frozenset[str]())
                depends = self._depends(node.value)
                node.value = self._expression(node.value)
                self.axes[target.id] = depends if isinstance(node, ast.Assign) else old | depends
                target.id = self.names.get(target.id, target.id)
        elif isinstance(node, ast.Expr):
            node.value = self._expression(node.value)
        return node

    def _expression(self, node: ast.expr) -> ast.expr:
        written = self.visit(node)
        assert isinstance(written, ast.expr)
        return written

    def _depends(self, node: ast.AST) -> frozenset[str]:
        """The axes a value of the stage depends on."""
        found: set[str] = set()
        for name in (n.id for n in ast.walk(node) if isinstance(n, ast.Name)):
            both = frozenset((ROW, COL))
            found |= both if name in (FLAT, MASK) else {name} & both or self.axes.get(name, frozenset[str]())
        return frozenset(found)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        texts = {ROW: self.texts.row, COL: self.texts.col, FLAT: self.texts.flat, MASK: self.texts.mask}
        if node.id not in texts:
            return ast.Name(self.names.get(node.id, node.id), node.ctx)
        if not texts[node.id]:
            raise NotAStageError("the bounds are tested for more than a mask, and the product's tile has none")
        return parse(texts[node.id])

    def visit_Call(self, node: ast.Call) -> ast.AST:
        last = function_name(node)
        if last not in ("load", "store"):
            return self.generic_visit(node)
        axes = self._depends(node.args[0])
        text = self.texts.mask
        if len(axes) == 1:
            text = self.texts.row_mask if ROW in axes else self.texts.col_mask
        self.generic_visit(node)
        if not axes:
            return node
        old = next((k.value for k in node.keywords if k.arg == "mask"), None)
        rest = [k for k in node.keywords if k.arg != "mask"]
        value = parse(text) if text else None
        if old is not None:
            value = old if value is None else ast.BinOp(value, ast.BitAnd(), old)
        if value is None:
            node.keywords = [k for k in rest if k.arg != "other"]
        else:
            node.keywords = [ast.keyword("mask", value), *rest]
        return node
