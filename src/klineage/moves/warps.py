"""Warps per program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import libcst as cst

from ..model import SiteKind
from ..surface import Editor, Launch, Module, make_site
from ..surface.query import argument, code, literal_int, normal
from ._kernels import dots_in
from ._launches import constant, is_tuned, launch_site, tuned_kernels, visible_names
from ._tiles import MAX_REGISTERS, accumulator_registers, tiles
from .base import Condition, Context, Hints, Move, Proposal, Unsupported, ordered, predicate

DEFAULT = 4  # Triton's num_warps when a launch says nothing
FROM_BLOCK = "from block"  # carrier value of a count that the launcher computes from the row's block
_LADDER = "32 if {b} >= 32768 else 16 if {b} >= 8192 else 8 if {b} >= 2048 else 4"


@predicate
def warps_valid(context: Context, _args: Mapping[str, str]) -> bool | None:
    """num_warps is a power of two from 1 to 32 (1,024 threads, the most a block can hold)."""
    try:
        warps = int(context.params["num_warps"])
    except (KeyError, ValueError):
        return None if not context.reports else all(r.num_warps in _VALID for r in context.reports)
    return warps in _VALID


_VALID = (1, 2, 4, 8, 16, 32)


class Warps(Move):
    """Warps per program.

    The number of warps sets how many threads share one program's tile: registers per thread, loads in flight and the
    depth of a block-wide reduction all follow from it. Wide rows and large matrix tiles want 8 to 32; the default is 4.

    ```python
    kernel[grid](x, y, n, BLOCK=8192)
    -->
    kernel[grid](x, y, n, BLOCK=8192, num_warps=16)
    ```

    Must hold:
    - num_warps is a power of two from 1 to 32.

    Refused:
    - kernels that take num_warps as a parameter of their own (the body depends on it);
    - autotuned kernels whose configurations differ in num_warps (the set has to go first);
    - matrix tiles whose accumulator would not fit the registers of 4 warps (the tile has to go first).
    """

    rank = 95
    anchors: ClassVar = (SiteKind.LAUNCH, SiteKind.AUTOTUNE)
    carriers: ClassVar = ("num_warps",)
    conditions: ClassVar = (Condition("warps_valid", "num_warps is a power of two from 1 to 32"),)

    def simplify(self, module: Module) -> Iterator[Proposal | Unsupported]:
        for launch in module.launches:
            site = launch_site(module, launch)
            if "num_warps" in module.functions[launch.kernel].params:
                reason = f"{launch.kernel} takes num_warps as a parameter of its own"
                yield Unsupported(self.name, "simplify", site, reason)
            elif (option := launch.options.get("num_warps")) is not None:
                value = _value(module, launch, option.value)
                if value != str(DEFAULT) and (registers := _too_many(module, launch)):
                    reason = (
                        f"at {DEFAULT} warps the accumulator alone would take {registers} of {MAX_REGISTERS} registers "
                        "a thread; tile_size goes first"
                    )
                    yield Unsupported(self.name, "simplify", site, reason)
                elif value != str(DEFAULT):
                    editor = Editor(module)
                    editor.remove_argument(launch.call, option)
                    note = f"num_warps was {code(option.value).strip()}"
                    yield Proposal(self.name, "simplify", site, editor.apply(), {"num_warps": value}, note)
        yield from self._simplify_configs(module)

    def _simplify_configs(self, module: Module) -> Iterator[Proposal | Unsupported]:
        for function, decorator, configs in tuned_kernels(module):
            site = make_site(module, SiteKind.AUTOTUNE, decorator)
            values = {_config_warps(c) for c in configs}
            if values == {str(DEFAULT)}:
                continue
            if len(values) > 1:
                reason = f"the configurations of {function.name} carry different num_warps; autotune_set goes first"
                yield Unsupported(self.name, "simplify", site, reason)
                continue
            editor = Editor(module)
            for config in configs:
                editor.remove_keyword(config, "num_warps")
            yield Proposal(self.name, "simplify", site, editor.apply(), {"num_warps": values.pop()})

    def materialize(
        self, module: Module, hints: Hints | None = None, *, checked: bool = True
    ) -> Iterator[Proposal | Unsupported]:
        for launch in module.launches:
            if "num_warps" in module.functions[launch.kernel].params or is_tuned(module, launch):
                continue
            option = launch.options.get("num_warps")
            if option is not None and literal_int(option.value) != DEFAULT:
                continue
            site = launch_site(module, launch)
            for value, text in self._candidates(module, launch, hints, checked):
                editor = Editor(module)
                editor.set_option(launch, "num_warps", text)
                yield Proposal(self.name, "materialize", site, editor.apply(), {"num_warps": value})
        for _function, decorator, configs in tuned_kernels(module):
            if {_config_warps(c) for c in configs} != {str(DEFAULT)}:
                continue
            site = make_site(module, SiteKind.AUTOTUNE, decorator)
            for value in _numbers(ordered(("8", "16", "2"), hints, "num_warps"), checked):
                editor = Editor(module)
                for config in configs:
                    editor.set_keyword(config, "num_warps", value)
                yield Proposal(self.name, "materialize", site, editor.apply(), {"num_warps": value})

    @staticmethod
    def _candidates(module: Module, launch: Launch, hints: Hints | None, checked: bool) -> Iterator[tuple[str, str]]:
        computed = list(dict.fromkeys(_computed(module, launch)))
        defaults = ([FROM_BLOCK] if computed else []) + ["8", "16", "2", "1", "32"]
        wanted = ordered(defaults, hints, "num_warps")
        numbers = _numbers(wanted, checked)
        for value in wanted:
            if value == FROM_BLOCK:
                yield from ((value, text) for text in computed)
            elif value in numbers:
                yield value, value
        yield from ((value, value) for value in numbers if value not in wanted)


def _too_many(module: Module, launch: Launch) -> int:
    """Registers a thread would need for the accumulator at the default warps, when that is more than there are."""
    if not dots_in(module, module.functions[launch.kernel].node.body):
        return 0
    needed = accumulator_registers({t.role: t.constant.value for t in tiles(module, launch)}, DEFAULT)
    return needed if needed > MAX_REGISTERS else 0


def _value(module: Module, launch: Launch, node: cst.BaseExpression) -> str:
    found = constant(module, launch, node)
    return FROM_BLOCK if found is None else str(found.value)


def _config_warps(config: cst.Call) -> str:
    arg = argument(config, "num_warps", 1)
    return str(DEFAULT) if arg is None else code(arg.value).strip()


def _numbers(values: list[str], checked: bool) -> list[str]:
    """The values that are warp counts; unchecked, two that Triton cannot run come last."""
    numbers = [v for v in values if v.isdigit() and v != str(DEFAULT) and (int(v) in _VALID or not checked)]
    return numbers if checked else [*numbers, *(v for v in ("3", "64") if v not in numbers)]


def _computed(module: Module, launch: Launch) -> Iterator[str]:
    """Expressions of the launcher that give a count fit for a whole-row block."""
    names = visible_names(module, launch)
    yield from (name for name in names if name == "num_warps" or name.endswith(("_num_warps", "_warps")))
    function = module.functions[launch.kernel]
    for parameter, arg in launch.bound.items():
        if parameter not in function.constexprs or not isinstance(arg.value, cst.Name):
            continue
        name = arg.value.value
        value = names.get(name)
        if (value is not None and "next_power_of_2" in normal(value)) or _from_settings(module, launch, name):
            yield _LADDER.format(b=name)


def _from_settings(module: Module, launch: Launch, name: str) -> bool:
    """Whether ``name`` is unpacked from a call beside others (``BLOCK, num_warps = settings(n)``)."""
    host = module.functions.get(launch.function)
    if host is None:
        return False
    for statement in host.statements:
        for small in getattr(statement, "body", ()) if isinstance(statement, cst.SimpleStatementLine) else ():
            if not isinstance(small, cst.Assign) or not isinstance(small.value, cst.Call):
                continue
            target = small.targets[0].target
            if isinstance(target, cst.Tuple) and code(target.elements[0].value).strip() == name:
                return True
    return False
