"""Choosing among launch configurations by timing them (``@triton.autotune``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

import libcst as cst

from ..model import SiteKind
from ..surface import Editor, Function, Launch, Module, make_site
from ..surface.pyast import parse_ast
from ..surface.query import argument, code, literal_int, names_read
from ._autotune import (
    DOT_SET,
    LOOP_SET,
    OPTIONS,
    PLANE_SET,
    ROW_SET,
    SHARED_BYTES,
    WARP_SET,
    Tunable,
    best_first,
    drop_unread,
    format_set,
    parse_set,
    shared_bytes,
    size_parameters,
    tunable,
)
from ._evaluate import Configuration, NotConstantError, configurations
from ._kernels import dot_load_loops, dots_in
from ._launches import assigned, launch_site, local_definitions
from ._nodes import find
from ._pointers import unsafe_to_rerun
from ._tiles import roles, tiles
from .base import Condition, Context, Hints, Move, Proposal, Unsupported, ordered, predicate

_SIMPLER = 4  # proposals per tuned kernel
_LARGEST_SET = 6
_KEPT_FROM_HINT = 8


@predicate
def safe_to_rerun(context: Context, _args: Mapping[str, str]) -> bool | None:
    """The kernel writes no tensor that it reads, and accumulates nothing: a second run gives the same result."""
    if context.site is None:
        return None
    name = context.site.detail.get("kernel") or context.site.function
    function = context.module.jit_functions.get(name)
    if function is None:
        return None
    return not unsafe_to_rerun(context.module, function, context.module.launches_of(name))


class AutotuneSet(Move):
    """Choosing among launch configurations by timing them.

    ``@triton.autotune`` runs the kernel with each configuration of a set when it first meets a new value of the key,
    and keeps the fastest. It pays where the best tile depends on the shape; it costs a compilation and a few runs per
    configuration.

    ```python
    @triton.jit
    def scale(x_ptr, y_ptr, n, BLOCK: tl.constexpr): ...
    scale[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024, num_warps=4)
    -->
    @triton.autotune(configs=[
        triton.Config({"BLOCK": 1024}, num_warps=4),
        triton.Config({"BLOCK": 4096}, num_warps=8),
    ], key=["n"])
    @triton.jit
    def scale(x_ptr, y_ptr, n, BLOCK: tl.constexpr): ...
    scale[lambda META: (triton.cdiv(n, META["BLOCK"]),)](x, y, n)
    ```

    Must hold:
    - the kernel may run twice on the same tensors: it stores to nothing that it reads and uses no atomics.

    Refused:
    - configurations that do not follow from the module's text, or that carry a pre_hook;
    - kernels launched from several places, or with options that the launcher computes.
    """

    rank = 5
    anchors: ClassVar = (SiteKind.AUTOTUNE, SiteKind.LAUNCH)
    carriers: ClassVar = ("configs",)
    conditions: ClassVar = (
        Condition("safe_to_rerun", "the kernel writes no tensor that it reads and accumulates nothing"),
    )

    # --------------------------------------------------------------- simplify
    def simplify(self, module: Module) -> Iterator[Proposal | Unsupported]:
        for function in module.kernels.values():
            decorator = function.decorator("autotune")
            if decorator is None:
                continue
            site = make_site(module, SiteKind.AUTOTUNE, decorator)
            try:
                found = _configurations(module, decorator)
            except NotConstantError as error:
                yield Unsupported(self.name, "simplify", site, f"the configurations are not written out: {error}")
                continue
            reason = _objection(module, function, found)
            if reason:
                yield Unsupported(self.name, "simplify", site, reason)
                continue
            ranked = best_first(module, function, found)
            params = {"configs": format_set(module, function, ranked[:_KEPT_FROM_HINT])}
            for config in ranked[:_SIMPLER]:
                chosen = ", ".join(f"{n}={v}" for n, v in config.keywords.items())
                source = _fixed(module, function, decorator, config)
                yield Proposal(self.name, "simplify", site, source, params, f"one of {len(found)}: {chosen}")

    def amount(self, module: Module) -> int:
        """Tuned kernels that can be given one configuration."""
        return len({p.site.start for p in self.simplify(module) if isinstance(p, Proposal)})

    # ------------------------------------------------------------ materialize
    def materialize(
        self, module: Module, hints: Hints | None = None, *, checked: bool = True
    ) -> Iterator[Proposal | Unsupported]:
        for function in module.kernels.values():
            launches = module.launches_of(function.name)
            if any(d.split(".")[-1] in ("autotune", "libtuner", "libentry") for d in function.decorators):
                continue
            site = launch_site(module, launches[0])
            reason = _refusal(function, launches)
            if not reason and checked:
                reason = unsafe_to_rerun(module, function, launches)
            if reason:
                yield Unsupported(self.name, "materialize", site, reason)
                continue
            yield from self._sets(module, function, launches[0], hints)

    def _sets(
        self, module: Module, function: Function, launch: Launch, hints: Hints | None
    ) -> Iterator[Proposal | Unsupported]:
        may = tunable(module, launch, tiles(module, launch))
        seen: list[str] = []
        for text in ordered(_defaults(module, function, may), hints, "configs"):
            found = _set(module, function, launch, may, parse_set(text))
            source = _tuned(module, function, launch, may, found) if len(found) > 1 else ""
            if source and source not in seen:
                seen.append(source)
                params = {"configs": format_set(module, function, found)}
                yield Proposal(self.name, "materialize", launch_site(module, launch), source, params)


# ------------------------------------------------------------------- simplify
def _configurations(module: Module, decorator: cst.Decorator) -> list[Configuration]:
    call = decorator.decorator
    arg = argument(call, "configs", 0) if isinstance(call, cst.Call) else None
    if arg is None:
        raise NotConstantError("the autotuner has no configs argument")
    return configurations(parse_ast(module.source), parse_ast(code(arg.value).strip(), mode="eval").body)


def _objection(module: Module, function: Function, found: Sequence[Configuration]) -> str:
    if not found:
        return f"the set of {function.name} is empty"
    if any(c.hooked for c in found):
        return f"the configurations of {function.name} carry a pre_hook"
    unknown = sorted({n for c in found for n in c.values} - set(function.params))
    if unknown:
        return f"{function.name} has no parameter {unknown[0]}"
    for node in find(module.tree, cst.Attribute):
        if isinstance(node.value, cst.Name) and node.value.value == function.name:
            return f"the module reads {function.name}.{node.attr.value}"
    for launch in module.launches_of(function.name):
        passed = sorted({*launch.bound, *launch.options} & {n for c in found for n in c.keywords})
        if passed:
            return f"a launch of {function.name} passes {passed[0]} beside the configurations"
    return ""


def _fixed(module: Module, function: Function, decorator: cst.Decorator, config: Configuration) -> str:
    """The module with one configuration written at every launch."""
    editor = Editor(module)
    editor.remove_statement(decorator)
    drop_unread(editor, module, names_read(decorator.decorator), function.node)
    text = ", ".join(f"{name}={value}" for name, value in config.keywords.items())
    for launch in module.launches_of(function.name):
        if text:
            editor.append_argument(launch.call, text)
    return editor.apply()


# ---------------------------------------------------------------- materialize
def _refusal(function: Function, launches: Sequence[Launch]) -> str:
    if len(launches) != 1:
        return f"{function.name} is launched from several places"
    own = [o for o in OPTIONS if o in function.params]
    if own:
        return f"{function.name} takes {own[0]} as a parameter of its own"
    if any(arg.star for arg in launches[0].call.args):
        return f"the launch of {function.name} passes arguments by star"
    for name, arg in launches[0].options.items():
        if name in OPTIONS and literal_int(arg.value) is None:
            return f"the launcher computes {name} of {function.name}"
    return ""


def _defaults(module: Module, function: Function, may: Tunable) -> list[str]:
    """Sets worth trying, by what the kernel's tiles are."""
    dot = dots_in(module, function.node.body)
    options = ";".join(LOOP_SET if dot_load_loops(module, function) else WARP_SET)
    present = {t.role for t in may.tiles}
    if dot and present >= {"m", "n"}:
        return [";".join(DOT_SET), options]
    if not dot and present == {"row", "col"}:
        return [";".join(PLANE_SET), options]
    return [";".join(ROW_SET), options] if not dot and present == {"row"} else [options]


def _set(
    module: Module, function: Function, launch: Launch, may: Tunable, wanted: Sequence[Mapping[str, str]]
) -> list[Configuration]:
    """The launch's own configuration, then the wanted ones as far as they apply to this kernel."""
    given = {n: v for n in OPTIONS if (v := launch.option_int(n)) is not None}
    present = {t.name: t.constant.value for t in may.tiles}
    named = roles(module, function)
    found = [Configuration(present, given)]
    for entry in wanted:
        numbers = {n: int(v) for n, v in entry.items() if v.isdigit()}
        values = {name: numbers.get(named.get(name, name), value) for name, value in present.items()}
        options = {**given, **{n: v for n, v in numbers.items() if n in OPTIONS}}
        config = Configuration(values, options)
        if config not in found and _fits({named.get(n, n): v for n, v in values.items()}, options):
            found.append(config)
    return found[:_LARGEST_SET]


def _fits(sizes: Mapping[str, int], options: Mapping[str, int]) -> bool:
    if not {"m", "n", "k"} <= set(sizes):
        return True
    return shared_bytes(sizes["m"], sizes["n"], sizes["k"], options.get("num_stages", 3)) <= SHARED_BYTES


def _tuned(module: Module, function: Function, launch: Launch, may: Tunable, found: Sequence[Configuration]) -> str:
    """The module with the set as the kernel's decorator, and the launch without what the set gives."""
    editor = Editor(module)
    lines = [f"        triton.Config({_dictionary(c)}{_options(c)})," for c in found]
    key = ", ".join(f'"{p}"' for p in size_parameters(function))
    text = "@triton.autotune(\n    configs=[\n{}\n    ],\n    key=[{}],\n)\n".format("\n".join(lines), key)
    start = module.span(function.node.decorators[0])[0]
    editor.replace_span(start, start, text)
    for name, arg in (*launch.bound.items(), *launch.options.items()):
        if name in found[0].values or name in OPTIONS:
            editor.remove_argument(launch.call, arg)
    if may.grid is not None and may.grid_text and may.tiles:
        editor.replace(may.grid.node, may.grid_text)
    _drop_names(editor, module, launch, may)
    return editor.apply()


def _dictionary(config: Configuration) -> str:
    return "{" + ", ".join(f'"{n}": {v!r}' for n, v in config.values.items()) + "}"


def _options(config: Configuration) -> str:
    return "".join(f", {n}={v}" for n, v in config.options.items())


def _drop_names(editor: Editor, module: Module, launch: Launch, may: Tunable) -> None:
    """Remove launcher lines that only named tiles that the set now gives."""
    names = {t.constant.name for t in may.tiles if t.constant.name}
    local = local_definitions(module, launch)
    host = module.functions.get(launch.function)
    if host is None:
        return
    for statement in find(host.node.body, cst.SimpleStatementLine):
        bound = set(assigned(statement))
        if bound and bound <= names and all(local.get(n) is not None for n in bound):
            editor.remove_statement(statement)
