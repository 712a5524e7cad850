"""Facts written into a module's own level, where packages ask the device what it is before any kernel runs."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from .pytext import SCOPES, Edit, PyText

_ROUNDS = 20


def pin_facts(source: str, facts: Mapping[str, object]) -> str:
    """The module's text with every fact that its own level (decorators included) asks for written out.

    ``facts`` maps expression texts to values, as for ``specialize``. An assignment to a name that is a fact takes its
    value; a choice that a constant decides (``a if True else b``, ``if False:``, ``not``, ``and``, ``or``) is made.
    Function bodies stay as they are: folding those is ``specialize``'s work. Raises KernelError when the text is
    not Python.
    """
    for _ in range(_ROUNDS):
        text = PyText(source)
        changed = text.apply(_edits(text, facts))
        if changed == source:
            break
        source = changed
    return source


def _edits(text: PyText, facts: Mapping[str, object]) -> list[Edit]:
    edits: list[Edit] = []
    for statement in text.tree.body:
        if isinstance(statement, ast.If) and isinstance(statement.test, ast.Constant):
            edits.append(_chosen(text, statement))
            continue
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            name = ast.unparse(statement.targets[0])
            if name in facts and not _is(statement.value, facts[name]):
                edits.append(Edit(*text.outer_span(statement.value), repr(facts[name])))
                continue
        for node in _own_level(statement):
            if (shorter := _shorter(text, node, facts)) is not None:
                edits.append(Edit(*text.span(node), shorter))
            if isinstance(node, ast.Call):
                edits += _empty_keywords(text, node)
    return edits


def _empty_keywords(text: PyText, call: ast.Call) -> list[Edit]:
    """Take ``**{}`` out of a call that has other arguments before it."""
    given = sorted([*call.args, *(k.value for k in call.keywords)], key=text.span)
    empty = [k.value for k in call.keywords if k.arg is None and isinstance(k.value, ast.Dict) and not k.value.keys]
    places = [(given[given.index(value) - 1], value) for value in empty if value is not given[0]]
    return [Edit(text.outer_span(before, text.span(call)[0])[1], text.span(value)[1], "") for before, value in places]


def _own_level(statement: ast.stmt) -> Iterator[ast.expr]:
    """Expressions evaluated when the module is run: of a definition, its decorators and defaults."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += [*node.decorator_list, *node.args.defaults]
        elif not isinstance(node, SCOPES):
            waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.expr):
            yield node


def _shorter(text: PyText, node: ast.expr, facts: Mapping[str, object]) -> str | None:
    """What may be written for an expression instead, None when nothing."""
    read = not isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
    if read and not isinstance(node, ast.Constant) and (name := ast.unparse(node)) in facts:
        return repr(facts[name])
    if isinstance(node, ast.IfExp) and isinstance(node.test, ast.Constant):
        return _text(text, node.body if node.test.value else node.orelse)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and isinstance(node.operand, ast.Constant):
        return repr(not node.operand.value)
    if isinstance(node, ast.BoolOp) and isinstance(first := node.values[0], ast.Constant):
        ends = bool(first.value) is isinstance(node.op, ast.Or)
        rest = node.values[1:]
        joined = f" {'or' if isinstance(node.op, ast.Or) else 'and'} ".join(_text(text, v) for v in rest)
        return repr(first.value) if ends else f"({joined})" if len(rest) > 1 else joined
    return None


def _text(text: PyText, node: ast.expr) -> str:
    return f"({text.text(node)})" if isinstance(node, ast.IfExp | ast.BoolOp | ast.Lambda) else text.text(node)


def _chosen(text: PyText, statement: ast.If) -> Edit:
    """The branch a constant test takes, in place of the whole statement."""
    taken = statement.body if statement.test.value else statement.orelse  # type: ignore[attr-defined]
    start, end = text.at(statement.lineno), text.at((statement.end_lineno or statement.lineno) + 1)
    if not taken:
        return Edit(start, end, "")
    first, last = text.first_line(taken[0]), taken[-1].end_lineno or taken[-1].lineno
    if len(taken) == 1 and isinstance(taken[0], ast.If) and taken[0].col_offset == 0:  # an elif
        return Edit(start, end, text.lines(first, last).replace("elif", "if", 1))
    return Edit(start, end, text.outdented(first, last, taken[0].col_offset))


def _is(node: ast.expr, value: object) -> bool:
    return ast.unparse(node) == repr(value)
