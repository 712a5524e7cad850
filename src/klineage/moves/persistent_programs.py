"""Persistent programs: as many as the device has multiprocessors, each working through several tiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import libcst as cst

from ..model import SiteKind
from ..surface import Editor, Function, Launch, Module, make_site
from ..surface.query import argument, code, names_read
from ._flow import flow_of
from ._grids import Grid, grid_of
from ._kernels import dots_in, helpers_of
from ._launches import add_launch_keyword, drop_parameter, fresh_name, is_tuned, launch_site, launcher
from ._nodes import calls, find
from ._persistent import (
    TileLoop,
    close_loop,
    device_text,
    drop_dead_locals,
    open_loop,
    tile_loop,
    tiles_of_grid,
    without_shadows,
)
from ._pointers import accesses
from .base import Condition, Context, Hints, Move, Proposal, Unsupported, ordered, predicate

_FORMS = ("range", "tl.range flatten=True")
_PER_SM = ("1", "2", "4")


@predicate
def tiles_are_independent(context: Context, _args: Mapping[str, str]) -> bool | None:
    """The kernel asks for its program id along the first axis alone, and never for the number of programs."""
    if context.site is None:
        return None
    name = context.site.detail.get("kernel") or context.site.function
    function = context.module.jit_functions.get(name)
    return None if function is None else not _asks_more(context.module, function)


class PersistentPrograms(Move):
    """Persistent programs.

    A grid of one program per multiprocessor, each of which works through every n-th tile, saves the launch of many
    short programs, lets the loads of the next tile start while the last one is stored, and gives each multiprocessor
    the same share of the work.

    ```python
    pid = tl.program_id(0)
    ...
    kernel[(tiles,)](...)
    -->
    for pid in range(tl.program_id(0), num_tiles, NUM_PROGRAMS):
        ...
    kernel[(min(NUM_SMS, num_tiles),)](..., num_tiles=num_tiles, NUM_PROGRAMS=NUM_SMS)
    ```

    Must hold:
    - tiles are independent: the kernel asks for its program id along the first axis alone, and never for the number of
      programs.

    Refused:
    - kernels that return early, or that assign a parameter in a way that the next tile would see;
    - loops over tiles that are flattened with the reduction's loop, or carry a value from tile to tile.
    """

    rank = 10
    anchors: ClassVar = (SiteKind.KERNEL, SiteKind.LOOP, SiteKind.PROGRAM_ID)
    carriers: ClassVar = ("programs_per_sm", "form")
    conditions: ClassVar = (
        Condition("tiles_are_independent", "the kernel asks for its program id along the first axis alone"),
    )

    # --------------------------------------------------------------- simplify
    def simplify(self, module: Module) -> Iterator[Proposal | Unsupported]:
        for name, function in module.kernels.items():
            plain = without_shadows(module, function)
            own = module if plain is None else Module.parse(plain)
            found = tile_loop(own.functions[name])
            if isinstance(found, str):
                yield Unsupported(self.name, "simplify", make_site(module, SiteKind.KERNEL, function.node), found)
            elif found is not None:
                yield self._open(own, own.functions[name], found)

    def _open(self, module: Module, function: Function, found: TileLoop) -> Proposal | Unsupported:
        site = make_site(module, SiteKind.LOOP, found.loop)
        editor = Editor(module)
        away: set[str] = set()
        hosts: set[str] = set()
        per_sm = "1"
        for launch in module.launches_of(function.name):
            grid = grid_of(module, launch)
            tiles = None
            if grid is not None and not grid.shared and len(grid.parts) == 1:
                tiles = tiles_of_grid(module, launch, grid, found)
            if grid is None or tiles is None:
                return Unsupported(self.name, "simplify", site, "the number of tiles does not follow from the launch")
            away |= names_read(grid.node)
            grid.rewrite(editor, [tiles])
            hosts.add(launch.function)
            per_sm = _per_sm(launch, found, per_sm)
        open_loop(editor, function, found)
        for parameter in _unread(function, found):
            for launch in module.launches_of(function.name):
                away |= names_read(launch.bound[parameter].value) if parameter in launch.bound else set()
            drop_parameter(editor, function, parameter)
        source = editor.apply()
        for host in hosts:
            source = drop_dead_locals(source, host, away)
        params = {"programs_per_sm": per_sm, "form": found.form}
        return Proposal(self.name, "simplify", site, source, params)

    # ------------------------------------------------------------ materialize
    def materialize(
        self, module: Module, hints: Hints | None = None, *, checked: bool = True
    ) -> Iterator[Proposal | Unsupported]:
        for function in module.kernels.values():
            if tile_loop(function) is not None:
                continue
            launches = module.launches_of(function.name)
            if not calls(function.node.body, "program_id") or any(len(_parts(module, x)) != 1 for x in launches):
                continue
            site = launch_site(module, launches[0])
            reason = _refusal(module, function, launches)
            if not reason and checked:
                reason = _asks_more(module, function)
            if reason:
                yield Unsupported(self.name, "materialize", site, reason)
                continue
            forms = ordered(_FORMS if dots_in(module, function.node.body) else _FORMS[:1], hints, "form")
            counts = [c for c in ordered(_PER_SM, hints, "programs_per_sm") if c.isdigit() and int(c) > 0]
            choices = [(form, counts[0]) for form in forms] + [(forms[0], c) for c in counts[1:]]
            for form, count in choices:
                result = self._close(module, function, launches[0], form, count)
                yield result
                if isinstance(result, Unsupported):
                    break

    def _close(
        self, module: Module, function: Function, launch: Launch, form: str, per_sm: str
    ) -> Proposal | Unsupported:
        site = launch_site(module, launch)
        editor = Editor(module)
        grid = grid_of(module, launch)
        device = device_text(launch, _pointers(module, function))
        if grid is None or device is None:
            reason = "the launcher's grid or the device of its tensors is not written at the launch"
            return Unsupported(self.name, "materialize", site, reason)
        count = fresh_name(module, "num_tiles", function)
        step = fresh_name(module, "NUM_PROGRAMS", function)
        reason = close_loop(editor, function, count, step, form)
        if reason:
            return Unsupported(self.name, "materialize", site, reason)
        default = " = 1" if _defaulted(function) else ""
        editor.add_parameter(function, f"{count}{default}, {step}: tl.constexpr{default}")
        _launch_persistent(editor, module, launch, grid, (count, step), device, per_sm)
        params = {"programs_per_sm": per_sm, "form": form}
        return Proposal(self.name, "materialize", site, editor.apply(), params)


def _launch_persistent(
    editor: Editor, module: Module, launch: Launch, grid: Grid, names: tuple[str, str], device: str, per_sm: str
) -> None:
    count, step = names
    host = launcher(module, launch)
    tiles = fresh_name(module, "num_tiles", host)
    programs = fresh_name(module, "NUM_SMS", host)
    times = "" if per_sm == "1" else f"{per_sm} * "
    existing = grid.parts[0]
    lines = [f"{programs} = torch.cuda.get_device_properties({device}).multi_processor_count"]
    if existing.isidentifier():
        tiles = existing
    else:
        lines.insert(0, f"{tiles} = {existing}")
    statement = module.statement(grid.node)
    editor.insert_before(statement, "\n".join(lines))
    grid.rewrite(editor, [f"min({times}{programs}, {tiles})"])
    add_launch_keyword(editor, launch, count, f"{tiles}, {step}={times}{programs}")


def _parts(module: Module, launch: Launch) -> list[str]:
    """Elements of the grid, axes of one program left out."""
    grid = grid_of(module, launch)
    return [] if grid is None else [p for i, p in enumerate(grid.parts) if i == 0 or p != "1"]


def _refusal(module: Module, function: Function, launches: tuple[Launch, ...]) -> str:
    if len(launches) != 1:
        return f"{function.name} is launched from several places"
    if is_tuned(module, launches[0]):
        return f"{function.name} is autotuned; its tiles are not known to the launcher"
    grid = grid_of(module, launches[0])
    if grid is None or grid.meta is not None or grid.shared:
        return "the grid is a function of the configuration, or serves another kernel too"
    if find(function.node.body, cst.Return):
        return f"{function.name} returns early"
    if any(calls(part.node.body, "program_id") for part in helpers_of(module, function)[1:]):
        return f"a device function of {function.name} asks for the program id"
    if not any(isinstance(s, cst.SimpleStatementLine) and "import torch" in code(s) for s in module.tree.body):
        return "the module does not import torch"
    if any(arg.star for arg in launches[0].call.args):
        return f"the launch of {function.name} passes arguments by star"
    return ""


def _asks_more(module: Module, function: Function) -> str:
    """Why tiles are not independent ("" when they are)."""
    for part in helpers_of(module, function):
        for call in calls(part.node.body, "program_id"):
            axis = argument(call, "axis", 0)
            if axis is None or code(axis.value).strip() != "0":
                return f"{function.name} asks for its program id along another axis"
        if calls(part.node.body, "num_programs"):
            return f"{function.name} asks for the number of programs"
    return ""


def _unread(function: Function, found: TileLoop) -> list[str]:
    """Parameters that only the loop's header, or definitions that go with it, read."""
    flow = flow_of(function)
    gone: set[cst.CSTNode] = {found.loop, *flow.dead_after({found.loop}, set())}
    header = {n for s in gone for n in names_read(s.iter if isinstance(s, cst.For) else s)}
    return [p for p in function.params if p in header and all(r in gone for r in flow.readers(p))]


def _per_sm(launch: Launch, found: TileLoop, otherwise: str) -> str:
    """``2`` of ``NUM_PROGRAMS=2 * NUM_SMS``."""
    arg = launch.bound.get(found.step)
    if arg is None or not isinstance(arg.value, cst.BinaryOperation):
        return otherwise
    left = code(arg.value.left).strip()
    return left if left.isdigit() and isinstance(arg.value.operator, cst.Multiply) else otherwise


def _pointers(module: Module, function: Function) -> frozenset[str]:
    found = accesses(module, function)
    return found.loaded | found.stored


def _defaulted(function: Function) -> bool:
    params = [*function.node.params.posonly_params, *function.node.params.params]
    return bool(params) and params[-1].default is not None
