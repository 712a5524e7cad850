"""Parsing from several threads at once."""

from __future__ import annotations

import ast
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from klineage.surface.pyast import literal, parse_ast

TEXT = (
    "def f(x):\n"
    + "".join(f"    x = g(x + {i}, [y[{i}] for y in z if y != {i}])\n" for i in range(60))
    + "    return x\n"
)


@pytest.mark.parametrize("text", ["def", "f(", "'"])
def test_what_is_no_python_is_a_syntax_error(text: str):
    with pytest.raises(SyntaxError):
        parse_ast(text)
    with pytest.raises((SyntaxError, ValueError)):
        literal("f(x)")


def test_many_threads_parse_at_once():
    """Without the lock, CPython 3.11 raises SystemError here in most runs."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            dumps = set(pool.map(lambda _: ast.dump(parse_ast(TEXT)), range(200)))
    finally:
        sys.setswitchinterval(before)
    assert len(dumps) == 1


def test_modes_and_literals():
    assert isinstance(parse_ast("x + 1", mode="eval").body, ast.BinOp)
    assert literal(" (1, 'a')") == (1, "a")
