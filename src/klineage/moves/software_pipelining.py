"""Software pipelining of loads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar

import libcst as cst

from ..model import SiteKind
from ..surface import Editor, Function, Launch, Module, make_site
from ..surface.query import argument, code, is_call, literal_int
from ._kernels import dot_load_loops, helpers_of, load_loops
from ._launches import constant, is_tuned, launch_site, tuned_kernels
from .base import Hints, Move, Proposal, Unsupported, ordered
from .predicates import SHARED_MEMORY_FITS

DEFAULT = 3  # Triton's num_stages when a launch says nothing
_CHOICES = ("3", "4", "2", "5")


class SoftwarePipelining(Move):
    """Software pipelining of loads.

    The compiler starts the loads of later iterations before the current one computes, into ``num_stages`` buffers, so
    that memory latency hides behind arithmetic. The launch option acts on loops that feed a ``tl.dot``; other loops are
    pipelined only when ``tl.range`` says so. A launch of a dot loop that says nothing has Triton's default of 3 stages.

    ```python
    for k in range(0, K, BLOCK_K): ...        kernel[grid](a, b, c, num_stages=1)
    -->
    for k in range(0, K, BLOCK_K): ...        kernel[grid](a, b, c, num_stages=3)
    ```

    Must hold:
    - the buffers of all stages fit one block's shared memory.

    Refused:
    - kernels that take num_stages as a parameter of their own;
    - autotuned kernels whose configurations differ in num_stages (the set has to go first).
    """

    rank = 90
    anchors: ClassVar = (SiteKind.LAUNCH, SiteKind.LOOP, SiteKind.AUTOTUNE)
    carriers: ClassVar = ("num_stages", "form")
    conditions: ClassVar = (SHARED_MEMORY_FITS,)

    # --------------------------------------------------------------- simplify
    def simplify(self, module: Module) -> Iterator[Proposal | Unsupported]:
        for launch in module.launches:
            yield from self._simplify_launch(module, launch)
        for loop, call in _staged_ranges(module):
            site = make_site(module, SiteKind.LOOP, loop)
            editor = Editor(module)
            _plain_range(editor, call)
            params = {"num_stages": _stages_text(call), "form": "range"}
            yield Proposal(self.name, "simplify", site, editor.apply(), params)
        for function, decorator, configs in tuned_kernels(module):
            yield from self._simplify_configs(module, function, decorator, configs)

    def _simplify_launch(self, module: Module, launch: Launch) -> Iterator[Proposal | Unsupported]:
        function = module.functions[launch.kernel]
        site = launch_site(module, launch)
        if not _loops(module, function, load_loops):
            return
        if "num_stages" in function.params:
            reason = f"{launch.kernel} takes num_stages as a parameter of its own"
            yield Unsupported(self.name, "simplify", site, reason)
            return
        stages = _launch_stages(module, launch)
        if stages is None or (stages == str(DEFAULT) and is_tuned(module, launch)):
            return
        editor = Editor(module)
        editor.set_option(launch, "num_stages", "1")
        params = {"num_stages": stages, "form": "launch"}
        yield Proposal(self.name, "simplify", site, editor.apply(), params)

    def _simplify_configs(
        self, module: Module, function: Function, decorator: cst.Decorator, configs: list[cst.Call]
    ) -> Iterator[Proposal | Unsupported]:
        if not _loops(module, function, dot_load_loops):
            return
        site = make_site(module, SiteKind.AUTOTUNE, decorator)
        values = {_config_stages(c) for c in configs}
        if values == {"1"}:
            return
        if len(values) > 1:
            reason = f"the configurations of {function.name} carry different num_stages; autotune_set goes first"
            yield Unsupported(self.name, "simplify", site, reason)
            return
        editor = Editor(module)
        for config in configs:
            editor.set_keyword(config, "num_stages", "1")
        params = {"num_stages": values.pop(), "form": "launch"}
        yield Proposal(self.name, "simplify", site, editor.apply(), params)

    # ------------------------------------------------------------ materialize
    def materialize(
        self, module: Module, hints: Hints | None = None, *, checked: bool = True
    ) -> Iterator[Proposal | Unsupported]:
        values = [v for v in ordered(_CHOICES, hints, "num_stages") if v.isdigit() and int(v) > 1]
        if not checked:
            values = [*values, *(v for v in ("8", "16") if v not in values)]
        for launch in module.launches:
            yield from self._materialize_launch(module, launch, values)
        for loop, call in _bare_ranges(module):
            site = make_site(module, SiteKind.LOOP, loop)
            for value in values:
                editor = Editor(module)
                if literal := argument(call, "num_stages"):
                    editor.replace(literal.value, value)
                else:
                    editor.replace(call.func, "tl.range")
                    editor.append_argument(call, f"num_stages={value}")
                params = {"num_stages": value, "form": "range"}
                yield Proposal(self.name, "materialize", site, editor.apply(), params)
        for function, decorator, configs in tuned_kernels(module):
            if {_config_stages(c) for c in configs} != {"1"} or not _loops(module, function, dot_load_loops):
                continue
            for value in values:
                editor = Editor(module)
                for config in configs:
                    editor.set_keyword(config, "num_stages", value)
                site = make_site(module, SiteKind.AUTOTUNE, decorator)
                params = {"num_stages": value, "form": "launch"}
                yield Proposal(self.name, "materialize", site, editor.apply(), params)

    def _materialize_launch(self, module: Module, launch: Launch, values: list[str]) -> Iterator[Proposal]:
        function = module.functions[launch.kernel]
        option = launch.options.get("num_stages")
        if option is None or literal_int(option.value) != 1 or "num_stages" in function.params:
            return
        if not _loops(module, function, load_loops):
            return
        for value in values:
            editor = Editor(module)
            editor.replace(option.value, value)
            params = {"num_stages": value, "form": "launch"}
            yield Proposal(self.name, "materialize", launch_site(module, launch), editor.apply(), params)


def _loops(module: Module, function: Function, which: Callable[[Module, Function], list[cst.For]]) -> bool:
    return any(which(module, part) for part in helpers_of(module, function))


def _launch_stages(module: Module, launch: Launch) -> str | None:
    """Stages a launch asks for, when more than one: a number or the expression's text."""
    option = launch.options.get("num_stages")
    if option is None:
        pipelined = _loops(module, module.functions[launch.kernel], dot_load_loops)
        return str(DEFAULT) if pipelined else None
    found = constant(module, launch, option.value)
    if found is None:
        return code(option.value).strip()
    return str(found.value) if found.value > 1 else None


def _config_stages(config: cst.Call) -> str:
    arg = argument(config, "num_stages", 2)
    return str(DEFAULT) if arg is None else code(arg.value).strip()


def _ranges(module: Module) -> Iterator[tuple[cst.For, cst.Call]]:
    for function in module.kernels.values():
        for part in helpers_of(module, function):
            for loop in load_loops(module, part):
                if is_call(loop.iter, "range") and isinstance(loop.iter, cst.Call):
                    yield loop, loop.iter


def _stages_text(call: cst.Call) -> str:
    arg = argument(call, "num_stages")
    return "" if arg is None else code(arg.value).strip()


def _staged_ranges(module: Module) -> Iterator[tuple[cst.For, cst.Call]]:
    """``tl.range(..., num_stages=N)`` loops with N above 1 (or not a literal)."""
    for loop, call in _ranges(module):
        if _stages_text(call) not in ("", "0", "1"):
            yield loop, call


def _bare_ranges(module: Module) -> Iterator[tuple[cst.For, cst.Call]]:
    """Innermost loading loops that no launch option pipelines and that ask for no stages themselves."""
    for function in module.kernels.values():
        for part in helpers_of(module, function):
            dotted_loops = dot_load_loops(module, part)
            loops = load_loops(module, part)
            for loop in loops:
                inner = any(loop in module.loops_around(other) for other in loops)
                call = loop.iter
                if loop in dotted_loops or inner or not isinstance(call, cst.Call) or not is_call(call, "range"):
                    continue
                if _stages_text(call) in ("", "0", "1"):
                    yield loop, call


def _plain_range(editor: Editor, call: cst.Call) -> None:
    editor.remove_keyword(call, "num_stages")
    if all(a.keyword is None or a.keyword.value == "num_stages" for a in call.args):
        editor.replace(call.func, "range")
