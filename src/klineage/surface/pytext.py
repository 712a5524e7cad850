"""Python text with ``ast`` nodes located by byte, for the passes that parse many times over.

LibCST parses a large module in a second or so; slicing reads whole packages and specialising parses after every
round, so both use ``ast`` (a hundred times faster) and splice the original text, which keeps formatting as LibCST does.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from ..errors import KernelError
from .pyast import parse_ast

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class Edit:
    """Bytes [start, end) become ``text``."""

    start: int
    end: int
    text: str


class PyText:
    """A module's text, its tree, and the way from nodes to bytes.

    Raises KernelError when the text is not Python.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        self.data = source.encode()
        try:
            self.tree = parse_ast(source)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or 1
            raise KernelError(f"syntax error on line {line}: {error}", "correct the kernel's Python text") from error
        self._starts = [0]
        for line in self.data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def at(self, line: int, column: int = 0) -> int:
        """Byte offset of a line (from 1) and byte column."""
        return self._starts[min(line, len(self._starts)) - 1] + column

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Byte offsets [start, end) of an expression or statement (decorators not included)."""
        start = self.at(node.lineno, node.col_offset)  # type: ignore[attr-defined]
        end = self.at(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]
        return start, end

    def outer_span(self, node: ast.AST, inside: int = 0) -> tuple[int, int]:
        """As ``span`` with the parentheses around the node that open at or after byte ``inside``.

        Parentheses of a call or a definition are taken for the node's own unless ``inside`` excludes them.
        """
        start, end = self.span(node)
        while True:
            before = self.data[:start].rstrip()
            after = self._skip(end)
            if len(before) <= inside or not before.endswith(b"(") or self.data[after : after + 1] != b")":
                return start, end
            start, end = len(before) - 1, after + 1

    def _skip(self, at: int) -> int:
        """The next byte that is neither white space nor in a comment."""
        while at < len(self.data):
            byte = self.data[at : at + 1]
            if byte == b"#":
                at = self.data.find(b"\n", at)
                if at < 0:
                    return len(self.data)
            elif not byte.isspace() and byte != b"\\":
                return at
            at += 1
        return at

    def text(self, node: ast.AST) -> str:
        """The node's own source text."""
        start, end = self.span(node)
        return self.data[start:end].decode()

    def first_line(self, node: ast.stmt) -> int:
        """The line a statement begins on, its decorators included."""
        decorators = getattr(node, "decorator_list", [])
        return min([node.lineno, *(d.lineno for d in decorators)])

    def lines(self, first: int, last: int) -> str:
        """Text of whole lines ``first`` to ``last``, both from 1 and included."""
        return self.data[self.at(first) : self.at(last + 1)].decode()

    def line_text(self, line: int) -> str:
        """One line without its end."""
        return self.lines(line, line).rstrip("\r\n")

    @property
    def line_count(self) -> int:
        """How many lines there are."""
        return len(self._starts) - 1

    def comment_above(self, node: ast.stmt) -> int:
        """First line of the comment block that stands directly above a statement (its own first line when none)."""
        first = self.first_line(node)
        indent = node.col_offset
        while first > 1:
            above = self.line_text(first - 1)
            if not above.lstrip().startswith("#") or len(above) - len(above.lstrip()) != indent:
                break
            first -= 1
        return first

    def block_end(self, block: list[ast.stmt]) -> int:
        """Last line of a block: its last statement and the comments after it that stand at its depth."""
        last = block[-1].end_lineno or block[-1].lineno
        line = last + 1
        while line <= self.line_count:
            text = self.line_text(line)
            stripped = text.lstrip()
            if stripped.startswith("#") and len(text) - len(stripped) >= block[0].col_offset > 0:
                last = line
            elif stripped:
                break
            line += 1
        return last

    @cached_property
    def string_lines(self) -> frozenset[int]:
        """Lines that begin inside a string: their leading white space is content."""
        found: set[int] = set()
        kinds = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
        for token in tokenize.generate_tokens(io.StringIO(self.source).readline):
            if token.type in kinds:
                found.update(range(token.start[0] + 1, token.end[0] + 1))
        return frozenset(found)

    def outdented(self, first: int, last: int, columns: int) -> str:
        """Whole lines moved left by ``columns``; the inside of strings stays as it is."""
        parts: list[str] = []
        for line in range(first, last + 1):
            text = self.lines(line, line)
            blank = len(text) - len(text.lstrip(" \t"))
            parts.append(text if line in self.string_lines else text[min(columns, blank) :])
        return "".join(parts)

    def apply(self, edits: Iterable[Edit], together: bool = False) -> str:
        """New text. Edits inside another edit are dropped (the passes run again); equal spans keep the first.

        With ``together`` the edits only make sense as a whole: when one would be lost, other than inside a removal,
        the text stays as it is.
        """
        kept: list[Edit] = []
        for edit in sorted(edits, key=lambda e: (e.start, -e.end)):
            if kept and edit.start < kept[-1].end:
                if together and (kept[-1].text or edit.end > kept[-1].end):
                    return self.source
                continue
            kept.append(edit)
        parts: list[bytes] = []
        at = 0
        for edit in kept:
            parts += [self.data[at : edit.start], edit.text.encode()]
            at = edit.end
            if not edit.text and self._leaves_gap(b"".join(parts[-6:]), at):
                at = self.data.index(b"\n", at) + 1
        parts.append(self.data[at:])
        return b"".join(parts).decode()

    def _leaves_gap(self, before: bytes, at: int) -> bool:
        """True when whole lines of a body went and a blank line is left where one is enough, or none."""
        rest = self.data[at:]
        blank = rest[: rest.find(b"\n") + 1]
        if not blank or blank.strip() or not before.endswith(b"\n"):
            return False
        following = rest.lstrip(b"\n")
        above = before.rstrip(b" ")[:-1].rsplit(b"\n", 1)[-1].strip()
        return following.startswith((b" ", b"\t")) and (not above or above.endswith(b":"))


def dotted_name(node: ast.AST) -> str | None:
    """``a.b.c`` of a Name/Attribute chain, else None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = dotted_name(node.value)
        return None if head is None else f"{head}.{node.attr}"
    return None


def parameters(arguments: ast.arguments) -> list[ast.arg]:
    """Every parameter, ``*args`` and ``**kwargs`` included."""
    found = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return found + [a for a in (arguments.vararg, arguments.kwarg) if a is not None]


def is_jit(node: ast.AST) -> bool:
    """True for a function compiled by Triton (``@triton.jit``, with or without arguments)."""
    if not isinstance(node, ast.FunctionDef):
        return False
    for decorator in node.decorator_list:
        name = dotted_name(decorator.func if isinstance(decorator, ast.Call) else decorator)
        if name is not None and name.split(".")[-1] == "jit":
            return True
    return False
