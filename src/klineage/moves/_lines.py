"""Kernel code as statements: each keeps its own text, and knows what it reads and writes.

Analysis uses Python's ``ast``; edits splice the statement's text, so what is not edited keeps its look.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from ..surface import Editor, Function, Module
from ..surface.pyast import parse_ast

Node = ast.expr | ast.stmt


@dataclass(frozen=True)
class Line:
    """One statement, dedented. ``lead`` holds the comment and blank rows above it."""

    text: str
    lead: tuple[str, ...] = ()

    @cached_property
    def tree(self) -> ast.stmt:
        """The parsed statement."""
        return _parse_statement(self.text)

    @cached_property
    def reads(self) -> frozenset[str]:
        """Names loaded anywhere in the statement."""
        return frozenset(names_loaded(self.tree))

    @cached_property
    def writes(self) -> frozenset[str]:
        """Names bound anywhere in the statement."""
        return frozenset(n.id for n in ast.walk(self.tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))

    @property
    def compound(self) -> bool:
        """True for ``if``, ``for``, ``while``, ``with``."""
        return isinstance(self.tree, ast.If | ast.For | ast.While | ast.With)

    @property
    def target(self) -> str | None:
        """The one name assigned (plain, annotated or augmented), else None."""
        tree = self.tree
        if isinstance(tree, ast.Assign) and len(tree.targets) == 1 and isinstance(tree.targets[0], ast.Name):
            return tree.targets[0].id
        if isinstance(tree, ast.AnnAssign | ast.AugAssign) and isinstance(tree.target, ast.Name):
            return tree.target.id
        return None

    @property
    def value(self) -> ast.expr | None:
        """The expression of an assignment or of an expression statement."""
        tree = self.tree
        return tree.value if isinstance(tree, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr) else None

    def segment(self, node: ast.AST) -> str:
        """Source text of a node of this statement."""
        start, end = _span(self.text, node)
        return self.text.encode()[start:end].decode()

    def with_text(self, text: str) -> Line:
        """The same place, other text."""
        return Line(text, self.lead)

    def bare(self) -> Line:
        """Without the comments above."""
        return Line(self.text)


@lru_cache(maxsize=4096)
def _parse_statement(text: str) -> ast.stmt:
    body = parse_ast(text).body
    if len(body) != 1:
        raise ValueError(f"not one statement: {text!r}")
    return body[0]


def names_loaded(node: ast.AST) -> set[str]:
    """Names read below a node, an augmented target included."""
    read = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    return read | {
        n.target.id for n in ast.walk(node) if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)
    }


def dotted_name(node: ast.AST) -> str:
    """``a.b.c`` of a name or attribute chain, else ""."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        head = dotted_name(node.value)
        return f"{head}.{node.attr}" if head else ""
    return ""


_TL = ("tl.", "triton.language.", "tl.math.", "triton.language.math.", "libdevice.", "tldevice.")


def tl_name(node: ast.AST) -> str:
    """``sum`` for a call of ``tl.sum`` (or a bare imported ``sum``); "" when the node is not such a call."""
    if not isinstance(node, ast.Call):
        return ""
    name = dotted_name(node.func)
    for prefix in sorted(_TL, key=len, reverse=True):
        if name.startswith(prefix) and "." not in name[len(prefix) :]:
            return name[len(prefix) :]
    return name if "." not in name else ""


def calls_of(node: ast.AST, *names: str) -> list[ast.Call]:
    """Calls below a node whose Triton name is one of ``names``."""
    return [n for n in ast.walk(node) if isinstance(n, ast.Call) and tl_name(n) in names]


def call_argument(call: ast.Call, keyword: str, position: int | None = None) -> ast.expr | None:
    """An argument by keyword, else by position."""
    for k in call.keywords:
        if k.arg == keyword:
            return k.value
    if position is not None and position < len(call.args) and not isinstance(call.args[position], ast.Starred):
        return call.args[position]
    return None


# ---------------------------------------------------------------------------------------------- text edits
def _span(text: str, node: ast.AST) -> tuple[int, int]:
    if not isinstance(node, ast.expr | ast.stmt | ast.keyword):
        raise ValueError("a node without a place in the text")
    starts = [0]
    for row in text.encode().split(b"\n"):
        starts.append(starts[-1] + len(row) + 1)
    end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
    return starts[node.lineno - 1] + node.col_offset, starts[end_line - 1] + end_column


def splice(text: str, edits: Iterable[tuple[ast.AST, str]]) -> str:
    """Replace nodes of a statement's text (edits must not nest)."""
    data = text.encode()
    for start, end, new in sorted(((*_span(text, n), new) for n, new in edits), reverse=True):
        data = data[:start] + new.encode() + data[end:]
    return data.decode()


def atom(text: str) -> str:
    """The expression, in parentheses unless it binds as tightly as a name or call."""
    node = parse_ast(text.strip(), mode="eval").body
    tight = ast.Name | ast.Call | ast.Attribute | ast.Subscript | ast.Constant | ast.Tuple | ast.List
    if isinstance(node, tight) and not text.strip().startswith("-"):
        return text.strip()
    return f"({text.strip()})"


def rename(line: Line, mapping: Mapping[str, str], *, loads: bool = True, stores: bool = True) -> Line:
    """Replace names by other names or expressions (keyword names and attributes are no names).

    An expression is put in parentheses where it stands inside another expression.
    """
    wholes = {id(n.value) for n in ast.walk(line.tree) if isinstance(n, ast.Assign | ast.Expr | ast.AugAssign)}
    edits: list[tuple[ast.AST, str]] = []
    for node in ast.walk(line.tree):
        if isinstance(node, ast.Name) and node.id in mapping:
            wanted = loads if isinstance(node.ctx, ast.Load) else stores
            if wanted:
                new = mapping[node.id]
                edits.append((node, new if new.isidentifier() or id(node) in wholes else atom(new)))
    return line.with_text(splice(line.text, edits)) if edits else line


def rewrite(line: Line, change: Callable[[ast.AST, Line], str | None]) -> Line:
    """Apply ``change`` to expressions until none changes: it returns a node's new text, or None."""
    for _ in range(200):
        for node in ast.walk(line.tree):
            if isinstance(node, ast.expr):
                new = change(node, line)
                if new is not None and new != line.segment(node):
                    line = line.with_text(splice(line.text, [(node, new)]))
                    break
        else:
            return line
    raise ValueError("a rewrite that never ends")


# ---------------------------------------------------------------------------------------------- structure
@dataclass(frozen=True)
class Section:
    """A header such as ``for i in range(n):`` with its statements."""

    header: str
    lines: tuple[Line, ...]


def cut(rows: Sequence[str], body: Sequence[ast.stmt], after: int) -> tuple[Line, ...]:
    """Statements of a block as lines. ``rows`` are the text's rows; ``after`` the row number the block starts after."""
    found: list[Line] = []
    previous = after
    for index, node in enumerate(body):
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
        last = node.end_lineno or first
        shared = first <= previous or (index + 1 < len(body) and body[index + 1].lineno == last)
        lead = tuple(r.strip() for r in rows[previous : first - 1])
        text = ast.unparse(node) if shared else textwrap.dedent("\n".join(rows[first - 1 : last]))
        found.append(Line(text, lead))
        previous = last
    return tuple(found)


@lru_cache(maxsize=8192)
def sections(line: Line) -> tuple[Section, ...]:
    """The headers and bodies of a compound statement, in order (``else`` included)."""
    tree = line.tree
    rows = line.text.split("\n")
    found: list[Section] = []

    def add(start: int, body: list[ast.stmt]) -> None:
        first = body[0].lineno
        if first == start:  # body on the header's own row
            found.append(
                Section(rows[start - 1][: body[0].col_offset].strip(), tuple(Line(ast.unparse(s)) for s in body))
            )
            return
        end = start
        while not rows[end - 1].split("#")[0].rstrip().endswith(":"):
            end += 1
        header = textwrap.dedent("\n".join(rows[start - 1 : end]))
        found.append(Section(header.strip(), cut(rows, body, end)))

    def visit(node: ast.stmt) -> None:
        if not isinstance(node, ast.If | ast.For | ast.While | ast.With):
            return
        body = node.body
        add(node.lineno, body)
        orelse: list[ast.stmt] = [] if isinstance(node, ast.With) else node.orelse
        if not orelse:
            return
        if isinstance(orelse[0], ast.If) and rows[orelse[0].lineno - 1].strip().startswith("elif"):
            visit(orelse[0])
            return
        last = body[-1].end_lineno or node.lineno
        for row in range(last, len(rows)):
            if rows[row].strip().startswith("else"):
                add(row + 1, orelse)
                return

    if line.compound:
        visit(tree)
    return tuple(found)


def join(lines: Iterable[Line]) -> str:
    """Lines as text, with the comments and blank rows above them."""
    rows: list[str] = []
    for line in lines:
        rows += line.lead if rows else [r for r in line.lead if r]
        rows.append(line.text)
    return "\n".join(rows)


def assemble(parts: Iterable[Section]) -> Line:
    """A compound statement from its sections."""
    text = "\n".join(f"{s.header}\n{indent(join(s.lines) or 'pass')}" for s in parts)
    return Line(text)


def indent(text: str) -> str:
    """One level deeper."""
    return textwrap.indent(text, "    ")


def body_lines(module: Module, function: Function) -> tuple[Line, ...]:
    """The statements of a function, its docstring excluded."""
    return _body_lines(module.source, function.name, module.line(function.node))


@lru_cache(maxsize=512)
def _body_lines(source: str, name: str, line: int) -> tuple[Line, ...]:
    node = _function_tree(source, name, line)
    body = node.body
    rows = source.split("\n")
    if ast.get_docstring(node) is not None:
        after = body[0].end_lineno or body[0].lineno
        body = body[1:]
    else:
        after = body[0].lineno - 1
    return cut(rows, body, after) if body else ()


@lru_cache(maxsize=64)
def source_tree(source: str) -> ast.Module:
    """A module's text as ``ast``."""
    return parse_ast(source)


@lru_cache(maxsize=512)
def _function_tree(source: str, name: str, line: int) -> ast.FunctionDef:
    found = [n for n in ast.walk(source_tree(source)) if isinstance(n, ast.FunctionDef) and n.name == name]
    return min(found, key=lambda n: abs(n.lineno - line))


def replace_body(editor: Editor, function: Function, lines: Iterable[Line]) -> None:
    """Put other statements in a function's body; the docstring stays."""
    statements = function.statements
    module = function.module
    tree = _function_tree(module.source, function.name, module.line(function.node))
    first = 1 if ast.get_docstring(tree) is not None and len(statements) > 1 else 0
    kept = body_lines(module, function)[0].lead  # stays above the first statement
    new = list(lines)
    if new and new[0].lead == kept:
        new[0] = new[0].bare()
    editor.replace_statements(statements[first], statements[len(statements) - 1], join(new))


def walk_lines(lines: Iterable[Line]) -> Iterator[Line]:
    """Lines and, below compound ones, their inner lines."""
    for line in lines:
        yield line
        for section in sections(line):
            yield from walk_lines(section.lines)


def unique(name: str, taken: Iterable[str]) -> str:
    """``name``, or ``name_1``, ``name_2`` ... when it is taken."""
    used = set(taken)
    if name not in used:
        return name
    number = 1
    while f"{name}_{number}" in used:
        number += 1
    return f"{name}_{number}"
