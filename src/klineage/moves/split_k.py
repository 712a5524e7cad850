"""Splitting the reduction axis of a matrix product over several programs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import ClassVar

import libcst as cst

from ..model import SiteKind
from ..surface import Editor, Function, Launch, Module, make_site
from ..surface.query import argument, code, literal_int, names_read, normal
from ._flow import flow_of, parse
from ._fold import fold
from ._grids import Grid, grid_of
from ._kernels import dots_in
from ._launches import add_launch_keyword, constant, drop_parameter, fresh_name, is_tuned, launcher
from ._nodes import calls, find
from ._outputs import output_of, start_anyhow, start_at_zero
from ._persistent import drop_dead_locals
from ._pointers import bases_of
from ._splits import CannotSplitError, Reduction, epilogue, narrowing_casts, reduction
from .base import Condition, Context, Hints, Move, Proposal, Unsupported, ordered, predicate

_CHOICES = ("4", "2", "8")
_NAME = re.compile(r"SPLIT|SLICE", re.IGNORECASE)
_ATOMIC_ONLY = ("sem", "scope")


@predicate
def epilogue_is_linear(context: Context, _args: Mapping[str, str]) -> bool | None:
    """Between the reduction and the store the accumulator is only scaled, cast, or added to by one split."""
    if context.site is None or context.site.function not in context.module.functions:
        return None
    function = context.module.functions[context.site.function]
    try:
        found = reduction(context.module, function)
    except CannotSplitError:
        return None
    return None if found is None else not epilogue(function, found).objection


class SplitK(Move):
    """Splitting the reduction axis of a matrix product over several programs.

    A product with few output tiles and a long reduction leaves most multiprocessors idle. Each of ``SPLIT_K`` programs
    takes every ``SPLIT_K``-th block of the reduction, and all add their partial sums to an fp32 output that starts at
    zero. The price is the zeroing, the atomic traffic, and sums whose order changes from run to run.

    ```python
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        ...
        a_ptrs += BLOCK_K * stride_ak
    tl.store(c_ptrs, acc, mask=c_mask)
    -->
    pid_k = tl.program_id(1)
    a_ptrs += pid_k * (BLOCK_K * stride_ak)
    for k in range(pid_k, tl.cdiv(K, BLOCK_K), SPLIT_K):
        ...
        a_ptrs += SPLIT_K * (BLOCK_K * stride_ak)
    tl.atomic_add(c_ptrs, acc, mask=c_mask)
    ```

    Must hold:
    - between the loop and the store the accumulator is only scaled or cast; what is added to it, one split adds.

    Refused:
    - loops whose turns hand on more than sums and pointers that advance by a fixed step;
    - outputs that the launcher does not allocate itself, stores through descriptors, autotuned kernels (each trial
      would add again).
    """

    rank = 15
    anchors: ClassVar = (SiteKind.LOOP, SiteKind.ATOMIC, SiteKind.STORE, SiteKind.LAUNCH)
    carriers: ClassVar = ("split_k",)
    conditions: ClassVar = (
        Condition("epilogue_is_linear", "after the reduction the accumulator is only scaled, cast or added to"),
    )

    # --------------------------------------------------------------- simplify
    def simplify(self, module: Module) -> Iterator[Proposal | Unsupported]:
        for function in module.kernels.values():
            atomics = calls(function.node.body, "atomic_add")
            if not atomics or not dots_in(module, function.node.body):
                continue
            yield self._join(module, function, atomics)

    def _join(self, module: Module, function: Function, atomics: list[cst.Call]) -> Proposal | Unsupported:
        site = make_site(module, SiteKind.ATOMIC, atomics[0])
        launches = module.launches_of(function.name)
        outputs = {base for c in atomics for base in bases_of(flow_of(function), parse(code(c.args[0].value)))}
        reason, axis = _split_axis(module, function, launches)
        if not reason and len(outputs) != 1:
            reason = "the kernel accumulates into several tensors"
        if not reason and any(module.loops_around(c) for c in atomics):
            reason = "the kernel accumulates inside a loop"
        if reason or axis is None:
            return Unsupported(self.name, "simplify", site, reason)
        splits, index = axis
        size = constant(module, launches[0], launches[0].bound[splits].value)
        value = code(launches[0].bound[splits].value).strip() if size is None else str(size.value)
        editor = Editor(module)
        away: set[str] = set()
        for launch in launches:
            found, grid = output_of(module, launch, min(outputs)), grid_of(module, launch)
            reason = found if isinstance(found, str) else start_anyhow(editor, found)
            if reason or grid is None:
                return Unsupported(self.name, "simplify", site, reason)
            away |= names_read(launch.bound[splits].value)
            grid.rewrite(editor, list(grid.parts[:index]))
        drop_parameter(editor, function, splits)
        _one_split_in_heuristics(editor, function, splits)
        text = fold(Module.parse(editor.apply()), function.name, {splits: 1, **_program_ids(index)})
        source = _plain_stores(Module.parse(text), function.name)
        for host in {launch.function for launch in launches}:
            source = drop_dead_locals(source, host, away)
        return Proposal(self.name, "simplify", site, source, {"split_k": value})

    # ------------------------------------------------------------ materialize
    def materialize(
        self, module: Module, hints: Hints | None = None, *, checked: bool = True
    ) -> Iterator[Proposal | Unsupported]:
        values = [v for v in ordered(_CHOICES, hints, "split_k") if v.isdigit() and int(v) > 1]
        for function in module.kernels.values():
            try:
                found = reduction(module, function)
                if found is None or calls(function.node.body, "atomic_add"):
                    continue
                site = make_site(module, SiteKind.LOOP, found.loop)
                for value in values:
                    source = _split(module, function, found, value, checked)
                    yield Proposal(self.name, "materialize", site, source, {"split_k": value})
            except CannotSplitError as error:
                site = make_site(module, SiteKind.KERNEL, function.node)
                yield Unsupported(self.name, "materialize", site, str(error))


# ------------------------------------------------------------------- simplify
def _split_axis(module: Module, function: Function, launches: tuple[Launch, ...]) -> tuple[str, tuple[str, int] | None]:
    """(reason, (constexpr, grid axis)) of the splits: the last axis of the grid counts them."""
    found: set[tuple[str, int]] = set()
    for launch in launches:
        grid = grid_of(module, launch)
        if is_tuned(module, launch):
            return f"{function.name} is autotuned; autotune_set goes first", None
        if grid is None or grid.shared:
            return "the grid is not written at the launch, or serves another kernel too", None
        named = [(p, i) for p in _candidates(function) for i in _axes(module, launch, grid, p)]
        if not named:
            return "cannot tell which programs share a tile", None
        if named[0][1] != len(grid.parts) - 1 or named[0][1] == 0:
            return "the splits are not the last axis of the grid", None
        found.add(named[0])
    if len(found) != 1:
        return "the launches split in different ways", None
    return "", found.pop()


def _candidates(function: Function) -> list[str]:
    """Constexprs that may count splits, those that say so first."""
    names = [p for p in function.params if p in function.constexprs]
    return sorted(names, key=lambda p: not _NAME.search(p))


def _axes(module: Module, launch: Launch, grid: Grid, parameter: str) -> list[int]:
    arg = launch.bound.get(parameter)
    if arg is None:
        return []
    meta = {f'{grid.meta}["{parameter}"]', f"{grid.meta}['{parameter}']"}
    size = constant(module, launch, arg.value)
    found: list[int] = []
    for index, part in enumerate(grid.parts):
        literal = literal_int(cst.parse_expression(part))
        same = normal(part) == normal(arg.value) or part in meta
        if same or (_NAME.search(parameter) and size is not None and literal == size.value):
            found.append(index)
    return found


def _program_ids(axis: int) -> dict[str, int]:
    return {f"tl.program_id({axis})": 0, f"tl.program_id(axis={axis})": 0}


def _one_split_in_heuristics(editor: Editor, function: Function, splits: str) -> None:
    """Heuristics that read the number of splits from the launch's arguments get 1."""
    decorator = function.decorator("heuristics")
    for node in [] if decorator is None else find(decorator, cst.Subscript):
        if code(node).strip().endswith((f'["{splits}"]', f"['{splits}']")):
            editor.replace(node, "1")


def _plain_stores(module: Module, name: str) -> str:
    editor = Editor(module)
    for call in calls(module.functions[name].node.body, "atomic_add"):
        editor.replace(call.func, "tl.store")
        for keyword in _ATOMIC_ONLY:
            editor.remove_keyword(call, keyword)
    return editor.apply()


# ---------------------------------------------------------------- materialize
def _split(module: Module, function: Function, found: Reduction, value: str, checked: bool) -> str:
    """The module with the loop split ``value`` ways.

    Raises CannotSplitError when that cannot be done.
    """
    launches = module.launches_of(function.name)
    ending = epilogue(function, found)
    if checked and ending.objection:
        raise CannotSplitError(ending.objection)
    if len(launches) != 1 or is_tuned(module, launches[0]):
        raise CannotSplitError(f"{function.name} is autotuned or launched from several places")
    launch = launches[0]
    grid = grid_of(module, launch)
    if grid is None or grid.shared:
        raise CannotSplitError("the grid is not written at the launch, or serves another kernel too")
    axis = len(grid.parts)
    asked = [argument(c, "axis", 0) for c in calls(function.node.body, "program_id", "num_programs")]
    if axis > 2 or any(a is None or literal_int(a.value) not in range(axis) for a in asked):
        raise CannotSplitError("the grid has no axis left for the splits")
    editor = Editor(module)
    _split_kernel(editor, function, found, axis, [] if ending.objection else list(ending.additions))
    _split_launcher(editor, module, launch, grid, _output(function, found), value)
    return editor.apply()


def _output(function: Function, found: Reduction) -> str:
    bases = bases_of(flow_of(function), parse(code(found.store.args[0].value)))
    if len(bases) != 1:
        raise CannotSplitError("the address of the store has no single pointer as its base")
    return bases.pop()


def _split_kernel(
    editor: Editor, function: Function, found: Reduction, axis: int, additions: list[cst.SimpleStatementLine]
) -> None:
    module = editor.module
    splits = fresh_name(module, "SPLIT_K", function)
    index = fresh_name(module, "pid_k", function)
    lines = [f"{index} = tl.program_id({axis})"]
    for advance in found.advances:
        step = _factor(advance.step)
        lines.append(f"{advance.name} {advance.sign} {index} * {step}")
        editor.replace_statement(advance.statement, f"{advance.name} {advance.sign} {splits} * {step}")
    editor.insert_before(found.loop, "\n".join(lines))
    args = [code(a.value).strip() for a in found.call.args if a.keyword is None]
    start, stop = ("0", args[0]) if len(args) == 1 else (args[0], args[1])
    step = args[2] if len(args) > 2 else "1"
    moved = index if step == "1" else f"{index} * {_factor(step)}"
    start = moved if start == "0" else f"{start} + {moved}"
    step = splits if step == "1" else f"{_factor(step)} * {splits}"
    rest = [code(a).strip().rstrip(",") for a in found.call.args if a.keyword is not None]
    editor.replace(found.call, f"{code(found.call.func).strip()}({', '.join([start, stop, step, *rest])})")
    output = _output(function, found)
    inside = {c for c, _ in narrowing_casts(function, found, output)}
    for call, inner in narrowing_casts(function, found, output):
        if not any(up in inside for up in module.ancestors(call)):
            left, right = module.outer_span(inner)
            editor.replace(call, module.data[left:right].decode())
    for statement in additions:
        editor.replace_statement(statement, f"if {index} == 0:\n    {code(statement).strip()}")
    editor.replace(found.store.func, "tl.atomic_add")
    for keyword in ("eviction_policy", "cache_modifier"):
        editor.remove_keyword(found.store, keyword)
    editor.append_argument(found.store, 'sem="relaxed"')
    params = [*function.node.params.posonly_params, *function.node.params.params]
    default = " = 1" if params and params[-1].default is not None else ""
    editor.add_parameter(function, f"{splits}: tl.constexpr{default}")


def _split_launcher(editor: Editor, module: Module, launch: Launch, grid: Grid, output: str, value: str) -> None:
    found = output_of(module, launch, output)
    reason = found if isinstance(found, str) else start_at_zero(editor, found)
    if reason:
        raise CannotSplitError(reason)
    function = module.functions[launch.kernel]
    name = fresh_name(module, "SPLIT_K", launcher(module, launch))
    editor.insert_before(module.statement(grid.node), f"{name} = {value}")
    grid.rewrite(editor, [*grid.parts, name])
    add_launch_keyword(editor, launch, fresh_name(module, "SPLIT_K", function), name)


def _factor(text: str) -> str:
    return text if text.isidentifier() or text.isdigit() else f"({text})"
