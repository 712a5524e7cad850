"""Branches whose test is constant, expressions that became constant, and names with a constant value."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .flow import Flow
from .fold import Known, Value
from .program import Program
from .purity import pure
from .pytext import Edit, PyText

_FOLDED = (ast.Compare, ast.BoolOp, ast.Subscript, ast.Call, ast.Attribute)


class Pruner:
    """Edits for one function; every edit stands on its own."""

    def __init__(self, program: Program, flow: Flow) -> None:
        self.program = program
        self.text: PyText = program.text
        self.flow = flow

    def edits(self) -> list[Edit]:
        """All edits of this round. Edits inside a removed branch are dropped when they are applied."""
        found: list[Edit] = []
        for node in ast.walk(self.flow.function):
            for field in ("body", "orelse", "finalbody"):
                block = getattr(node, field, None)
                if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                    found += self._block(node, field, block)
            if isinstance(node, ast.expr):
                found += self._expression(node)
        return found

    # ------------------------------------------------------------------ statements
    def _block(self, owner: ast.AST, field: str, block: list[ast.stmt]) -> Iterator[Edit]:
        first_dead = next((i for i, s in enumerate(block) if id(s) in self.flow.dead), None)
        if first_dead:  # what follows a return; a branch that is dead altogether goes with its if
            yield self._removal(block[first_dead], block, block[first_dead:])
            block = block[:first_dead]
        elif first_dead == 0:
            return
        elif_chain = isinstance(owner, ast.If) and field == "orelse" and self._is_elif(block)
        for statement in block:
            if isinstance(statement, ast.If):
                yield from self._if(statement, block, bool(elif_chain))
            elif self._holds(statement) or (isinstance(statement, ast.Pass) and len(block) > 1):
                yield self._removal(statement, block, [statement])

    def _holds(self, statement: ast.stmt) -> bool:
        """An assert or static assert whose test is certain."""
        if isinstance(statement, ast.Assert):
            return self.flow.truths.get(id(statement.test)) is True
        call = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(call, ast.Call) or ast.unparse(call.func) not in ("tl.static_assert", "static_assert"):
            return False
        return bool(call.args) and self.flow.truths.get(id(call.args[0])) is True

    def _is_elif(self, block: list[ast.stmt]) -> bool:
        start = self.text.span(block[0])[0]
        return len(block) == 1 and isinstance(block[0], ast.If) and self.text.data[start : start + 4] == b"elif"

    def _if(self, node: ast.If, block: list[ast.stmt], is_elif: bool) -> Iterator[Edit]:
        truth = self.flow.truths.get(id(node.test))
        if truth is None:
            yield from self._empty(node, block, is_elif)
        elif is_elif:
            yield self._elif(node, truth)
        elif truth:
            yield self._replace_by(node, node.body, self._header_end(node))
        elif not node.orelse:
            yield self._removal(node, block, [node])
        elif self._is_elif(node.orelse):
            yield Edit(self._start(node), self.text.span(node.orelse[0])[0] + 2, self._indent(node))  # "if" of "elif"
        else:
            yield self._replace_by(node, node.orelse, self._else_line(node))

    def _empty(self, node: ast.If, block: list[ast.stmt], is_elif: bool) -> Iterator[Edit]:
        """Branches that came to nothing."""
        nothing = all(isinstance(s, ast.Pass) for s in node.body)
        if node.orelse and all(isinstance(s, ast.Pass) for s in node.orelse):
            start, end = self.text.at(self._else_line(node)), self.text.at(self.text.block_end(node.orelse) + 1)
            yield Edit(start, end, "")
        elif nothing and not node.orelse and not is_elif and pure(node.test, self.program, self.flow.kernel):
            yield self._removal(node, block, [node])

    def _elif(self, node: ast.If, truth: bool) -> Edit:
        start = self._start(node)
        indent = self._indent(node)
        if truth:  # the last branch of the chain from now on
            end = self.text.at(self.text.block_end(node.body) + 1)
            body = self.text.data[self.text.at(self._header_end(node) + 1) : end].decode()
            return Edit(start, self._chain_end(node), f"{indent}else:\n{body}")
        if not node.orelse:
            return Edit(start, self.text.at(self.text.block_end(node.body) + 1), "")
        if self._is_elif(node.orelse):
            return Edit(start, self._start(node.orelse[0]), "")
        return Edit(start, self.text.at(self._else_line(node)), "")

    def _replace_by(self, node: ast.If, taken: list[ast.stmt], header_line: int) -> Edit:
        """The whole if becomes one branch, moved out by one level."""
        last = self.text.block_end(taken)
        columns = taken[0].col_offset - node.col_offset
        if taken[0].lineno == header_line:  # if x: y = 1
            inside = "".join(f"{self._indent(node)}{self.text.text(s)}\n" for s in taken)
        else:
            inside = self.text.outdented(header_line + 1, last, columns)
        return Edit(self._start(node), self._chain_end(node), inside)

    def _chain_end(self, node: ast.If) -> int:
        current: list[ast.stmt] = [node]
        last = node.end_lineno or node.lineno
        while current and isinstance(current[-1], ast.If):
            inner = current[-1]
            current = inner.orelse or inner.body
            last = max(last, self.text.block_end(current))
            if not self._is_elif(current):
                break
        return self.text.at(last + 1)

    def _header_end(self, node: ast.If) -> int:
        """The line that holds the colon after the test."""
        line = node.test.end_lineno or node.lineno
        while ":" not in self.text.line_text(line).split("#")[0] and line < node.body[0].lineno:
            line += 1
        return line

    def _else_line(self, node: ast.If) -> int:
        line = node.orelse[0].lineno
        while line > node.lineno:
            if self.text.line_text(line).lstrip().startswith("else") and line not in self.text.string_lines:
                return line
            line -= 1
        return node.orelse[0].lineno

    def _start(self, node: ast.stmt) -> int:
        return self.text.at(node.lineno)

    def _indent(self, node: ast.stmt) -> str:
        return self.text.line_text(node.lineno)[: node.col_offset]

    def _removal(self, node: ast.stmt, block: list[ast.stmt], gone: list[ast.stmt]) -> Edit:
        return removal(self.text, node, block, gone)

    # ------------------------------------------------------------------ expressions
    def _expression(self, node: ast.expr) -> Iterator[Edit]:
        parent = self.program.parents[id(node)]
        value = self.flow.known.get(id(node))
        if isinstance(node, ast.IfExp) and id(node.test) in self.flow.truths:
            taken = node.body if self.flow.truths[id(node.test)] else node.orelse
            yield self._becomes(node, self.text.text(taken), taken)
        elif isinstance(node, ast.BoolOp):
            yield from self._bool(node)
        if isinstance(value, Known) and self._is_folded(node, parent):
            literal = value.literal()
            if literal is not None and not _inside_string(node, self.program):
                yield self._becomes(node, _guarded(literal, parent), None)

    def _becomes(self, node: ast.expr, text: str, taken: ast.expr | None) -> Edit:
        if taken is not None and "\n" in text:
            text = f"({text})"
        parent = self.program.parents[id(node)]
        own = isinstance(parent, ast.Assign | ast.AnnAssign | ast.Return | ast.keyword)
        span = self.text.outer_span(node) if own and "\n" not in text else self.text.span(node)
        return Edit(*span, text)

    def _is_folded(self, node: ast.expr, parent: ast.AST) -> bool:
        if not isinstance(getattr(node, "ctx", None) or ast.Load(), ast.Load):
            return False
        if isinstance(node, ast.Name):
            return self._is_substituted(node)
        if isinstance(node, ast.UnaryOp):
            return isinstance(node.op, ast.Not)
        if isinstance(node, ast.Call):
            return not self.flow.kernel
        if isinstance(node, ast.Attribute) and self.flow.kernel:
            return False
        return isinstance(node, _FOLDED) and not isinstance(parent, ast.Expr)

    def _is_substituted(self, node: ast.Name) -> bool:
        """A Python variable with a constant value, unless it reads like a named tile size."""
        value: Value | None = self.flow.known.get(id(node))
        if self.flow.kernel or not isinstance(node.ctx, ast.Load) or node.id not in self.flow.locals:
            return False
        if not isinstance(value, Known) or isinstance(value.value, tuple | list | dict):
            return False
        return not is_tile(node.id, value.value)

    def _bool(self, node: ast.BoolOp) -> Iterator[Edit]:
        """Parts of and/or that decide nothing."""
        if id(node) in self.flow.truths and isinstance(self.flow.known.get(id(node)), Known):
            return
        neutral = isinstance(node.op, ast.And)
        truths = [self.flow.truths.get(id(v)) for v in node.values]
        whole = self.flow.truths.get(id(node))
        if whole is not None and self._is_test(node) and pure(node, self.program, self.flow.kernel):
            yield Edit(*self.text.span(node), repr(whole))
            return
        droppable = [t is neutral for t in truths]
        if not self.flow.kernel and not self._is_test(node):  # in Python ``x and True`` is not x
            for index in range(1, len(droppable)):
                droppable[index] = droppable[index] and droppable[index - 1] and index + 1 < len(droppable)
        kept = [v for v, drop in zip(node.values, droppable, strict=True) if not drop]
        if not kept or len(kept) == len(node.values):
            return
        word = " and " if neutral else " or "
        parts = [self._operand(v, len(kept)) for v in kept]
        yield Edit(*self.text.span(node), word.join(parts))

    def _operand(self, node: ast.expr, count: int) -> str:
        text = self.text.text(node)
        loose = isinstance(node, ast.BoolOp | ast.IfExp | ast.Lambda | ast.NamedExpr)
        return f"({text})" if loose or (count > 1 and "\n" in text) else text

    def _is_test(self, node: ast.expr) -> bool:
        parent = self.program.parents[id(node)]
        if isinstance(parent, ast.If | ast.While | ast.IfExp | ast.Assert):
            return parent.test is node
        if isinstance(parent, ast.UnaryOp):
            return isinstance(parent.op, ast.Not)
        return isinstance(parent, ast.BoolOp) and self._is_test(parent)


def removal(text: PyText, node: ast.stmt, block: list[ast.stmt], gone: list[ast.stmt]) -> Edit:
    """Remove consecutive statements of a block with the comments that belong to them."""
    last = text.block_end(gone) if gone[0].col_offset > 0 else gone[-1].end_lineno or gone[-1].lineno
    if gone[-1] is not block[-1]:  # comments after it belong to what follows
        last = _end_of_branches(text, gone[-1])
    start, end = text.at(text.comment_above(node)), text.at(last + 1)
    if len(gone) == len(block):
        return Edit(text.at(node.lineno), end, f"{' ' * node.col_offset}pass\n")
    above = text.comment_above(node) - 1
    blank_above = above >= 1 and not text.line_text(above).strip()
    blank_below = last < text.line_count and not text.line_text(last + 1).strip()
    if blank_above and (blank_below or gone[-1] is block[-1]):
        start = text.at(above)
    elif blank_below and gone[0] is block[0]:
        end = text.at(last + 2)
    return Edit(start, end, "")


def _end_of_branches(text: PyText, node: ast.stmt) -> int:
    """Last line of a statement with the comments that end its innermost block."""
    last = node.end_lineno or node.lineno
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
            last = max(last, text.block_end(block))
    return last


def is_tile(name: str, value: object) -> bool:
    """True for integers that moves tune: they keep their name."""
    if isinstance(value, bool) or not isinstance(value, int) or value <= 1:
        return False
    return name.isupper() or name.lower().startswith(("num_", "block", "tile")) or name.lower().endswith("_warps")


def _guarded(literal: str, parent: ast.AST) -> str:
    negative = literal.startswith("-") and isinstance(parent, ast.BinOp | ast.UnaryOp)
    return f"({literal})" if negative or isinstance(parent, ast.Attribute) else literal


def _inside_string(node: ast.AST, program: Program) -> bool:
    current: ast.AST | None = node
    while current is not None and not isinstance(current, ast.stmt):
        if isinstance(current, ast.JoinedStr):
            return True
        current = program.parents.get(id(current))
    return False


def dead_code(program: Program) -> list[Edit]:
    """The pruning edits of every function."""
    found: list[Edit] = []
    for name in program.functions:
        found += Pruner(program, program.flows.of[name]).edits()
    return found
