"""Python text to syntax trees, one at a time: CPython's own parser is not safe to use from several threads (a switch of
threads inside it makes it raise SystemError, "AST constructor recursion depth mismatch")."""

from __future__ import annotations

import ast
import threading
from typing import Any, Literal, overload

_LOCK = threading.Lock()


@overload
def parse_ast(source: str, *, mode: Literal["exec"] = "exec") -> ast.Module: ...
@overload
def parse_ast(source: str, *, mode: Literal["eval"]) -> ast.Expression: ...
def parse_ast(source: str, *, mode: Literal["exec", "eval"] = "exec") -> ast.Module | ast.Expression:
    """As ``ast.parse``, from any thread. Raises SyntaxError, and ValueError for text with null bytes."""
    with _LOCK:
        return ast.parse(source, mode="eval") if mode == "eval" else ast.parse(source)


def literal(source: str) -> Any:
    """As ``ast.literal_eval`` of a text, from any thread. Raises SyntaxError or ValueError."""
    return ast.literal_eval(parse_ast(source.lstrip(" \t"), mode="eval"))
