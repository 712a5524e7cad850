"""What launches pass, and where each constant is written: shared by the moves that turn launch options and tiles."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import libcst as cst

from ..model import Site, SiteKind
from ..surface import Editor, Function, Launch, Module, make_site
from ..surface.pyast import parse_ast
from ..surface.query import assignment, code, literal_int, names_written
from ._nodes import calls, find


@dataclass(frozen=True)
class Constant:
    """An integer a launch passes. ``node`` is the literal to edit; ``name`` the launcher's name for it, if any."""

    value: int
    node: cst.BaseExpression
    name: str | None = None


def launch_site(module: Module, launch: Launch) -> Site:
    """The site value of a launch."""
    return make_site(module, SiteKind.LAUNCH, launch.call, kernel=launch.kernel)


def launcher(module: Module, launch: Launch) -> Function | None:
    """The function the launch stands in (None at module level)."""
    return module.functions.get(launch.function)


@lru_cache(maxsize=128)
def _bindings(host: Function) -> dict[str, cst.BaseExpression | None]:
    found: dict[str, cst.BaseExpression | None] = {}
    for statement in find(host.node.body, cst.SimpleStatementLine):
        values = assigned(statement)
        for name in names_written(statement):
            found[name] = values.get(name) if name not in found else None
    for parameter in host.params:
        found[parameter] = None
    for loop in find(host.node.body, cst.For):
        for name in find(loop.target, cst.Name):
            found[name.value] = None
    return found


def local_definitions(module: Module, launch: Launch) -> dict[str, cst.BaseExpression | None]:
    """Names bound in the launcher: the value when bound once by ``name = value``, else None."""
    host = launcher(module, launch)
    return {} if host is None else dict(_bindings(host))


def assigned(statement: cst.CSTNode) -> dict[str, cst.BaseExpression]:
    """name -> value of ``a = v`` and ``a, b = v, w`` lines."""
    pair = assignment(statement)
    if pair is not None:
        return {pair[0]: pair[1]}
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) and statement.body else None
    if not isinstance(small, cst.Assign) or len(small.targets) != 1:
        return {}
    target, value = small.targets[0].target, small.value
    if not isinstance(target, cst.Tuple) or not isinstance(value, cst.Tuple):
        return {}
    if len(target.elements) != len(value.elements):
        return {}
    pairs = zip(target.elements, value.elements, strict=True)
    return {t.value.value: v.value for t, v in pairs if isinstance(t.value, cst.Name)}


def module_constants(module: Module) -> dict[str, cst.BaseExpression]:
    """Module-level ``NAME = value`` bindings (last one wins)."""
    found: dict[str, cst.BaseExpression] = {}
    for statement in module.tree.body:
        found |= assigned(statement)
    return found


def constant(module: Module, launch: Launch, node: cst.BaseExpression) -> Constant | None:
    """The integer behind an argument: a literal, or a name bound once (launcher first, then module) to one."""
    value = literal_int(node)
    if value is not None:
        return Constant(value, node)
    if not isinstance(node, cst.Name):
        return None
    local = local_definitions(module, launch)
    bound = local[node.value] if node.value in local else module_constants(module).get(node.value)
    value = None if bound is None else literal_int(bound)
    return None if value is None or bound is None else Constant(value, bound, node.value)


def expanded(module: Module, launch: Launch, node: cst.BaseExpression, depth: int = 6) -> str:
    """Text of a launcher expression with names bound once replaced by their values (to compare, not to insert)."""
    local = local_definitions(module, launch)

    class Inline(ast.NodeTransformer):
        def __init__(self, left: int) -> None:
            self.left = left

        def visit_Name(self, node: ast.Name) -> ast.AST:
            bound = local.get(node.id)
            if bound is None or self.left <= 0 or isinstance(bound, cst.Lambda):
                return node
            return Inline(self.left - 1).visit(parse_ast(code(bound).strip(), mode="eval").body)

    tree = parse_ast(code(node).strip(), mode="eval")
    return ast.unparse(Inline(depth).visit(tree))


def visible_names(module: Module, launch: Launch) -> dict[str, cst.BaseExpression | None]:
    """Launcher names bound before the launch, with their value when bound once."""
    limit = module.span(launch.call)[0]
    host = launcher(module, launch)
    if host is None:
        return {}
    before: set[str] = set(host.params)
    for statement in find(host.node.body, cst.SimpleStatementLine):
        if module.span(statement)[0] < limit:
            before |= names_written(statement)
    return {name: value for name, value in local_definitions(module, launch).items() if name in before}


# ------------------------------------------------------------------- autotune
def config_calls(function: Function) -> list[cst.Call]:
    """The ``triton.Config(...)`` calls written in the kernel's own ``@autotune`` decorator."""
    found = function.decorator("autotune")
    return [] if found is None else calls(found, "triton.Config", "Config")


def tuned_kernels(module: Module) -> Iterator[tuple[Function, cst.Decorator, list[cst.Call]]]:
    """Launched kernels whose ``@autotune`` decorator writes its configurations out."""
    for function in module.kernels.values():
        decorator = function.decorator("autotune")
        if decorator is not None and (configs := config_calls(function)):
            yield function, decorator, configs


def is_tuned(module: Module, launch: Launch) -> bool:
    """Whether launch options of this kernel come from an autotuner."""
    return module.functions[launch.kernel].decorator("autotune") is not None


# ------------------------------------------------------------- launch editing
def drop_parameter(editor: Editor, function: Function, name: str) -> None:
    """Take a constexpr parameter out of a kernel, its launches, and its autotune configurations."""
    module = editor.module
    editor.remove_parameter(function, name)
    for launch in module.launches_of(function.name):
        if name in launch.bound:
            editor.remove_argument(launch.call, launch.bound[name])
    for config in config_calls(function):
        for entry in find(config, cst.DictElement):
            if isinstance(entry.key, cst.SimpleString) and entry.key.evaluated_value == name:
                remove_entry(editor, config, entry)


def remove_items(editor: Editor, items: Sequence[cst.Arg] | Sequence[cst.Param], gone: Container[cst.CSTNode]) -> None:
    """Remove several arguments or parameters of one list, with their commas (``Editor`` removes one at a time)."""
    module = editor.module
    index = 0
    while index < len(items):
        if items[index] not in gone:
            index += 1
            continue
        last = index
        while last + 1 < len(items) and items[last + 1] in gone:
            last += 1
        start, end = module.span(items[index])[0], item_end(module, items[last])
        if last + 1 < len(items):
            end = module.span(items[last + 1])[0]
        elif index > 0:
            start = item_end(module, items[index - 1])
        editor.replace_span(start, end, "")
        index = last + 1


def item_end(module: Module, item: cst.Arg | cst.Param) -> int:
    """End of an argument or parameter without its comma."""
    end = module.span(item)[1]
    text = module.data[:end].rstrip()
    return len(text) - 1 if text.endswith(b",") else len(text)


def remove_parameters(editor: Editor, function: Function, names: Container[str]) -> None:
    """Take parameters out of a kernel's signature and out of all its launches."""
    params = [*function.node.params.posonly_params, *function.node.params.params]
    remove_items(editor, params, {p for p in params if p.name.value in names})
    for launch in editor.module.launches_of(function.name):
        remove_items(editor, launch.call.args, {arg for name, arg in launch.bound.items() if name in names})


def remove_entry(editor: Editor, config: cst.Call, entry: cst.DictElement) -> None:
    """Remove one ``"NAME": value`` of a configuration's dictionary with its comma."""
    owner = next(d for d in find(config, cst.Dict) if any(e is entry for e in d.elements))
    items = list(owner.elements)
    module = editor.module
    index = next(i for i, item in enumerate(items) if item is entry)
    start, end = _entry_span(module, entry)
    if index + 1 < len(items):
        end = module.span(items[index + 1])[0]
    elif index > 0:
        start = _entry_span(module, items[index - 1])[1]
    editor.replace_span(start, end, "")


def _entry_span(module: Module, entry: cst.BaseDictElement) -> tuple[int, int]:
    start = module.span(entry)[0]
    return start, module.outer_span(entry.value)[1]


def add_constexpr(editor: Editor, function: Function, name: str, value: str, launches: Iterable[Launch]) -> None:
    """Give a kernel a constexpr parameter and pass ``value`` for it in the launches."""
    params = [*function.node.params.posonly_params, *function.node.params.params]
    default = f" = {value}" if params and params[-1].default is not None else ""
    editor.add_parameter(function, f"{name}: tl.constexpr{default}")
    for launch in launches:
        add_launch_keyword(editor, launch, name, value)


def add_launch_keyword(editor: Editor, launch: Launch, name: str, value: str) -> None:
    """Pass ``name=value`` after the kernel's own arguments and before launch options."""
    options = [arg for arg in launch.call.args if arg in launch.options.values()]
    if options:
        start = editor.module.span(options[0])[0]
        editor.replace_span(start, start, f"{name}={value}, ")
    else:
        editor.append_argument(launch.call, f"{name}={value}")


def fresh_name(module: Module, wanted: str, function: Function | None = None) -> str:
    """``wanted``, or ``wanted_2`` and so on when it is taken in the function (or module)."""
    scope: cst.CSTNode = module.tree if function is None else function.node
    taken = {n.value for n in find(scope, cst.Name)}
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    return name
