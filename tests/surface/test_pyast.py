"""Parsing from several threads at once."""

from __future__ import annotations

import ast
import gc
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


class Lingering:
    """Garbage in a cycle whose finalizer runs Python, wherever the collector happens to start."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        for _ in range(50):
            pass


def dumped(_: int) -> str:
    for _ in range(30):
        Lingering()
    return ast.dump(parse_ast(TEXT))


def test_many_threads_parse_at_once():
    """With ``ast.parse`` this raises SystemError on CPython 3.11: a finalizer lets another thread into the parser."""
    before, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(50)
    try:
        with ThreadPoolExecutor(8) as pool:
            dumps = set(pool.map(dumped, range(60)))
    finally:
        sys.setswitchinterval(before)
        gc.set_threshold(*threshold)
    assert len(dumps) == 1


def test_modes_and_literals():
    assert isinstance(parse_ast("x + 1", mode="eval").body, ast.BinOp)
    assert literal(" (1, 'a')") == (1, "a")
