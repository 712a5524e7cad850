"""Small questions about LibCST nodes that slicing, sites and moves share."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from typing import TypeVar

import libcst as cst

from .pyast import literal, parse_ast

N = TypeVar("N", bound=cst.CSTNode)


_SPACE = ("whitespace", "lpar", "rpar", "lbracket", "rbracket", "leading_lines", "lines_after", "comma", "semicolon",
          "header", "footer", "indent", "trailing", "asynchronous", "colon", "first_line", "empty_lines")  # fmt: skip
_FIRST = ("decorators", "keyword", "star")  # fields that stand before others in the text but not in the dataclass


@cache
def _fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    """Names of a node type's fields that can hold code, in the order of the text."""
    names = [f.name for f in dataclasses.fields(kind) if not f.name.startswith(_SPACE)]
    if kind is cst.IfExp:
        return ("body", "test", "orelse")
    return tuple(sorted(names, key=lambda n: n not in _FIRST))


def children(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The code nodes right below a node, in source order."""
    for name in _fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            yield value
        elif isinstance(value, list | tuple):
            for item in value:
                if isinstance(item, cst.CSTNode):
                    yield item


@lru_cache(maxsize=8192)
def _below(node: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    """The node and all code below it. Nodes are compared by identity, so remembering them is safe."""
    found: list[cst.CSTNode] = [node]
    for child in children(node):
        found += _below(child) if isinstance(child, _REMEMBERED) else walk(child)
    return tuple(found)


_REMEMBERED = (cst.FunctionDef, cst.IndentedBlock, cst.SimpleStatementLine, cst.For, cst.If)


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The node and all code below it (no white space, commas or parentheses), in source order."""
    if isinstance(node, (cst.Module, *_REMEMBERED)):
        yield from _below(node)
        return
    yield node
    for child in children(node):
        yield from walk(child)


def find(node: cst.CSTNode, kind: type[N], where: Callable[[N], bool] | None = None) -> list[N]:
    """All nodes of a type below (and including) ``node``, in source order."""
    return [n for n in walk(node) if isinstance(n, kind) and (where is None or where(n))]


def dotted(node: cst.CSTNode) -> str | None:
    """``a.b.c`` of a Name/Attribute chain, else None."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        head = dotted(node.value)
        return None if head is None else f"{head}.{node.attr.value}"
    return None


def calls(node: cst.CSTNode, *names: str) -> list[cst.Call]:
    """Calls below ``node``; with names, only those whose dotted name is one of them.

    A name without a dot also matches ``tl.<name>``, ``triton.language.<name>`` and the bare name.
    """
    found: list[cst.Call] = []
    for call in find(node, cst.Call):
        if not names:
            found.append(call)
            continue
        name = dotted(call.func)
        if name is not None and any(_matches(name, wanted) for wanted in names):
            found.append(call)
    return found


def _matches(name: str, wanted: str) -> bool:
    if "." in wanted or name == wanted:
        return name == wanted
    return name in (f"tl.{wanted}", f"triton.language.{wanted}", f"tl.math.{wanted}", f"libdevice.{wanted}")


def is_call(node: cst.CSTNode | None, *names: str) -> bool:
    """True when the node itself is a call of one of the names (see ``calls``)."""
    if not isinstance(node, cst.Call):
        return False
    name = dotted(node.func)
    return name is not None and any(_matches(name, wanted) for wanted in names)


def argument(call: cst.Call, keyword: str, position: int | None = None) -> cst.Arg | None:
    """The argument passed by keyword, else by position (None: keyword only)."""
    for arg in call.args:
        if arg.keyword is not None and arg.keyword.value == keyword:
            return arg
    positional = [a for a in call.args if a.keyword is None and not a.star]
    if position is not None and position < len(positional):
        return positional[position]
    return None


def literal_int(node: cst.CSTNode) -> int | None:
    """The value of an integer literal (with sign), else None."""
    try:
        value = literal(code(node))
    except (ValueError, SyntaxError):
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def code(node: cst.CSTNode) -> str:
    """Text of a node generated alone (comments and white space inside it kept)."""
    return cst.Module([]).code_for_node(node)


def normal(text_or_node: str | cst.CSTNode) -> str:
    """Text with formatting and comments removed, so that equal code compares equal."""
    return _normal(text_or_node if isinstance(text_or_node, str) else code(text_or_node))


@lru_cache(maxsize=4096)
def _normal(text: str) -> str:
    text = text.strip().rstrip(",")
    try:
        return ast.unparse(parse_ast(text))
    except SyntaxError:
        return " ".join(text.split())


def names_read(node: cst.CSTNode) -> set[str]:
    """Names loaded anywhere below the node (attribute names, keywords and pure assignment targets excluded)."""
    try:
        tree = parse_ast(_dedent(code(node)))
    except SyntaxError:
        return {n.value for n in find(node, cst.Name)}
    read = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    read |= {n.target.id for n in ast.walk(tree) if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)}
    return read


def names_written(node: cst.CSTNode) -> set[str]:
    """Names bound anywhere below the node."""
    try:
        tree = parse_ast(_dedent(code(node)))
    except SyntaxError:
        return set()
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _dedent(text: str) -> str:
    import textwrap

    return textwrap.dedent(text.strip("\n"))


def assignment(statement: cst.CSTNode) -> tuple[str, cst.BaseExpression] | None:
    """(name, value) of a one-target ``name = value`` line, else None."""
    if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
        return None
    small = statement.body[0]
    if isinstance(small, cst.Assign) and len(small.targets) == 1:
        target = small.targets[0].target
        if isinstance(target, cst.Name):
            return target.value, small.value
    if isinstance(small, cst.AnnAssign) and isinstance(small.target, cst.Name) and small.value is not None:
        return small.target.value, small.value
    return None


def augmented(statement: cst.CSTNode) -> tuple[str, str, cst.BaseExpression] | None:
    """(name, operator such as "+=", value) of an augmented assignment to a name, else None."""
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        small = statement.body[0]
        if isinstance(small, cst.AugAssign) and isinstance(small.target, cst.Name):
            return small.target.value, code(small.operator).strip(), small.value
    return None


def expression(statement: cst.CSTNode) -> cst.BaseExpression | None:
    """The expression of an expression statement (``tl.store(...)``), else None."""
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        small = statement.body[0]
        if isinstance(small, cst.Expr):
            return small.value
    return None


class _Substitute(cst.CSTTransformer):
    def __init__(self, mapping: Mapping[str, str]) -> None:
        self.mapping = mapping

    def visit_Attribute_attr(self, node: cst.Attribute) -> None:
        return None

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        return updated_node.with_changes(attr=original_node.attr)

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        return updated_node.with_changes(keyword=original_node.keyword)

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        text = self.mapping.get(original_node.value)
        return updated_node if text is None else cst.parse_expression(text)


def substitute(text: str, mapping: Mapping[str, str]) -> str:
    """Statement or expression text with names replaced by expression texts (keywords and attributes kept)."""
    try:
        return code(cst.parse_expression(text).visit(_Substitute(mapping)))  # type: ignore[arg-type]
    except cst.ParserSyntaxError:
        return cst.parse_module(text).visit(_Substitute(mapping)).code
