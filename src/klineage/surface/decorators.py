"""Decorators of a package that a task vouches for: dropped, or another one in their place."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from ..errors import KernelError
from .pytext import Edit, PyText, dotted_name


def replace_decorators(source: str, known: Mapping[str, str]) -> str:
    """The module's text with every decorator named in ``known`` replaced; "" takes its line out.

    ``@cached(configs, key=[])`` under ``{"cached": "triton.autotune"}`` becomes ``@triton.autotune(configs, key=[])``:
    only the name changes, its arguments stay. A name that decorates nothing is an error, so that a mistyped one, or
    one that a newer package no longer uses, shows.

    Raises KernelError when the text is not Python or a name decorates nothing.
    """
    text = PyText(source)
    edits: list[Edit] = []
    found: set[str] = set()
    for node in ast.walk(text.tree):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            continue
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            name = dotted_name(called)
            if name is None or name not in known:
                continue
            found.add(name)
            if known[name]:
                edits.append(Edit(*text.span(called), known[name]))
            else:
                last = decorator.end_lineno or decorator.lineno
                edits.append(Edit(text.at(decorator.lineno), text.at(last + 1), ""))
    if missing := sorted(set(known) - found):
        raise KernelError(f"no decorator named {missing[0]}", "correct the name, or leave it out")
    return text.apply(edits)
