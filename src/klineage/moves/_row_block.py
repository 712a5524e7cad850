"""Changes of what a launcher passes for a constexpr of a kernel."""

from __future__ import annotations

import ast

from ..surface import Editor, Launch, Module
from ..surface.pyast import parse_ast
from ._lines import body_lines, dotted_name, names_loaded, source_tree


def bound_text(module: Module, launch: Launch, parameter: str) -> str | None:
    """Text of the argument bound to a kernel parameter, else None."""
    arg = launch.bound.get(parameter)
    return None if arg is None else module.text(arg.value)


def launcher_tree(module: Module, launch: Launch) -> ast.FunctionDef | None:
    """The launcher's function as ``ast``."""
    for node in ast.walk(source_tree(module.source)):
        if isinstance(node, ast.FunctionDef) and node.name == launch.function:
            return node
    return None


def definition_of(module: Module, launch: Launch, name: str) -> ast.expr | None:
    """The value of the only plain assignment to ``name`` in the launcher, else None."""
    tree = launcher_tree(module, launch)
    if tree is None:
        return None
    stores = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)]
    plain = [
        n
        for n in ast.walk(tree)
        if isinstance(n, ast.Assign) and len(n.targets) == 1 and isinstance(n.targets[0], ast.Name)
        if n.targets[0].id == name
    ]
    return plain[0].value if len(stores) == 1 and len(plain) == 1 else None


def set_bound(editor: Editor, launch: Launch, parameter: str, text: str) -> None:
    """Pass ``text`` for a constexpr.

    When the launcher keeps the value in a variable that serves this argument alone, that variable changes instead.
    """
    module = editor.module
    arg = launch.bound[parameter]
    name = module.text(arg.value)
    tree = launcher_tree(module, launch)
    if tree is not None and name.isidentifier():
        value = definition_of(module, launch, name)
        reads = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load)]
        late = {
            n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            if value is not None and n.lineno > value.lineno
        }  # fmt: skip
        if value is not None and len(reads) == 1 and not late & names_loaded(parse_ast(text)):
            start, end = _bytes_of(module, value)
            editor.replace_span(start, end, text)
            return
    editor.replace(arg.value, text)


def _bytes_of(module: Module, node: ast.expr) -> tuple[int, int]:
    starts = [0]
    for row in module.data.split(b"\n"):
        starts.append(starts[-1] + len(row) + 1)
    end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
    return starts[node.lineno - 1] + node.col_offset, starts[end_line - 1] + end_column


def in_launcher(module: Module, launch: Launch, expression: str) -> str | None:
    """A kernel expression over parameters written with the launch's arguments; None when that cannot be done.

    A parameter that the kernel sets anew no longer means what the launch passes.
    """
    tree = parse_ast(expression, mode="eval").body
    kernel = module.functions[launch.kernel]
    if any(names_loaded(tree) & line.writes for line in body_lines(module, kernel)):
        return None
    parts = expression
    texts: dict[str, str] = {}
    for name in names_loaded(tree):
        text = bound_text(module, launch, name)
        if text is None:
            return None
        texts[name] = text
    if isinstance(tree, ast.Name):
        return texts[tree.id]
    for node in sorted(
        (n for n in ast.walk(tree) if isinstance(n, ast.Name)), key=lambda n: n.col_offset, reverse=True
    ):
        text = texts[node.id]
        parts = parts[: node.col_offset] + (text if text.isidentifier() else f"({text})") + parts[node.end_col_offset :]
    return parts


def block_variable(module: Module, launch: Launch, length: str) -> str | None:
    """A launcher's variable that already holds the row's block: ``next_power_of_2(length)``, or what a settings
    helper of the module made from that length returns first.
    """
    tree = launcher_tree(module, launch)
    wanted = ast.unparse(parse_ast(length, mode="eval").body)
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.value, ast.Call):
            continue
        target, call = node.targets[0], node.value
        name = dotted_name(call.func)
        if not call.args or ast.unparse(call.args[0]) != wanted:
            continue
        if isinstance(target, ast.Name) and name.split(".")[-1] == "next_power_of_2":
            return target.id
        helper = module.functions.get(name)
        block = target.elts[0] if isinstance(target, ast.Tuple) else None
        if isinstance(block, ast.Name) and helper is not None and "next_power_of_2" in module.text(helper.node):
            return block.id
    return None
