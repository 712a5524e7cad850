"""Tile size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import libcst as cst

from ..model import SiteKind
from ..surface import Editor, Launch, Module
from ..surface.query import code, literal_int
from ._flow import flow_of
from ._kernels import dots_in
from ._launches import expanded, is_tuned, launch_site, launcher
from ._nodes import calls, find
from ._tiles import Tile, axis_argument, tiles, warps_for
from .base import Condition, Context, Hints, Move, Proposal, Unsupported, ordered, predicate
from .predicates import SHARED_MEMORY_FITS

Sizes = Mapping[str, int]  # role -> size

_DOT = (
    (128, 256, 64), (128, 128, 64), (128, 128, 32), (64, 128, 64), (64, 256, 64), (256, 128, 64),
    (64, 128, 32), (64, 64, 64), (64, 64, 32),
)  # fmt: skip
_ROW = (4096, 2048, 1024, 512, 8192)
_PLANE = ((64, 64), (128, 64), (64, 128), (128, 128), (32, 64))
_SMALLEST_DOT_AXIS = 16


@predicate
def tile_powers_of_two(context: Context, _args: Mapping[str, str]) -> bool | None:
    """Every tile is a power of two (tl.arange takes no other length)."""
    sizes = parse_sizes(context.params.get("tile", ""))
    return None if not sizes else all(v > 0 and v & (v - 1) == 0 for v in sizes.values())


@predicate
def dot_tiles_at_least_16(context: Context, _args: Mapping[str, str]) -> bool | None:
    """Tiles that feed tl.dot are at least 16 long on every axis (true where none does)."""
    sizes = parse_sizes(context.params.get("tile", ""))
    axes = [v for role, v in sizes.items() if role in ("m", "n", "k")]
    return None if not sizes else all(v >= _SMALLEST_DOT_AXIS for v in axes)


def parse_sizes(text: str) -> dict[str, int]:
    """``m=128,n=256,k=64`` as numbers ({} when it is not such a text)."""
    pairs = [part.partition("=") for part in text.split(",") if part]
    if not all(value.isdigit() for _, _, value in pairs):
        return {}
    return {role.strip(): int(value) for role, _, value in pairs}


def format_sizes(sizes: Sizes) -> str:
    """The carrier's text for sizes by role."""
    return ",".join(f"{role}={value}" for role, value in sizes.items())


@dataclass(frozen=True)
class _Kernel:
    """A launch with its tiles."""

    launch: Launch
    tiles: tuple[Tile, ...]
    dot: bool

    @property
    def sizes(self) -> dict[str, int]:
        return {t.role: t.constant.value for t in self.tiles}

    def smallest(self) -> dict[str, int]:
        """The naive end's sizes: 32 on every axis of a dot, 256 (or 32 by 32) elementwise."""
        sizes = self.sizes
        if self.dot:
            return {role: min(value, 32) for role, value in sizes.items()}
        if len(sizes) == 2 and sizes["row"] * sizes["col"] > 1024:
            return {role: min(value, 32) for role, value in sizes.items()}
        return {role: min(value, 256) for role, value in sizes.items()}


class TileSize(Move):
    """Tile size.

    A larger tile reuses each loaded value more often (a matrix tile of m by n loads m + n values for m n products) and
    gives every program more independent loads; too large a tile spills registers or leaves multiprocessors idle. A
    matrix tile whose accumulator would need more than 128 registers a thread brings the warps it needs.

    ```python
    kernel[(triton.cdiv(M, 32) * triton.cdiv(N, 32),)](..., BLOCK_M=32, BLOCK_N=32, BLOCK_K=32)
    -->
    kernel[(triton.cdiv(M, 128) * triton.cdiv(N, 256),)](..., BLOCK_M=128, BLOCK_N=256, BLOCK_K=64)
    ```

    Must hold:
    - every tile is a power of two;
    - tiles that feed tl.dot are at least 16 long on every axis;
    - the tiles fit one block's shared memory.

    Refused:
    - sizes written as literals when the launcher uses the same number in a way that cannot be told apart;
    - one name for two tiles that would get different sizes.
    """

    rank = 80
    anchors: ClassVar = (SiteKind.LAUNCH, SiteKind.CONSTEXPR)
    carriers: ClassVar = ("tile",)
    conditions: ClassVar = (
        Condition("tile_powers_of_two", "every tile is a power of two"),
        Condition("dot_tiles_at_least_16", "tiles that feed tl.dot are at least 16 long on every axis"),
        SHARED_MEMORY_FITS,
    )

    def simplify(self, module: Module) -> Iterator[Proposal | Unsupported]:
        for kernel in _kernels(module):
            target = kernel.smallest()
            if target != kernel.sizes:
                yield self._resized(module, kernel, target, "simplify", kernel.sizes)

    def materialize(
        self, module: Module, hints: Hints | None = None, *, checked: bool = True
    ) -> Iterator[Proposal | Unsupported]:
        for kernel in _kernels(module):
            for sizes in _candidates(kernel, hints, checked):
                yield self._resized(module, kernel, sizes, "materialize", sizes)

    def _resized(
        self, module: Module, kernel: _Kernel, sizes: Sizes, direction: str, carried: Sizes
    ) -> Proposal | Unsupported:
        way = "simplify" if direction == "simplify" else "materialize"
        site = launch_site(module, kernel.launch)
        editor = Editor(module)
        reason = _resize(editor, module, kernel, sizes)
        if reason:
            return Unsupported(self.name, way, site, reason)
        warps = warps_for(sizes) if kernel.dot and way == "materialize" else 0
        if warps > (kernel.launch.option_int("num_warps") or 4) and not is_tuned(module, kernel.launch):
            editor.set_option(kernel.launch, "num_warps", str(warps))
        return Proposal(self.name, way, site, editor.apply(), {"tile": format_sizes(carried)})


def _kernels(module: Module) -> Iterator[_Kernel]:
    for launch in module.launches:
        found = tuple(tiles(module, launch))
        if found:
            yield _Kernel(launch, found, dots_in(module, module.functions[launch.kernel].node.body))


def _candidates(kernel: _Kernel, hints: Hints | None, checked: bool) -> Iterator[dict[str, int]]:
    present = kernel.sizes
    every: list[dict[str, int]]
    if kernel.dot:
        every = [dict(zip("mnk", sizes, strict=True)) for sizes in _DOT]
    elif len(present) == 2:
        every = [dict(zip(("row", "col"), sizes, strict=True)) for sizes in _PLANE]
    else:
        every = [{"row": size} for size in _ROW]
    texts = ordered([format_sizes(s) for s in every], hints, "tile")
    if not checked:
        texts = [*texts, *(["m=48,n=48,k=48", "m=64,n=64,k=8"] if kernel.dot else ["row=384,col=48"])]
    seen: list[dict[str, int]] = [present]
    for text in texts:
        wanted = {role: value for role, value in parse_sizes(text).items() if role in present}
        sizes = {**present, **wanted}
        if checked and (not wanted or not _larger(sizes, present) or not _valid(sizes, kernel.dot)):
            continue
        if wanted and sizes not in seen:
            seen.append(sizes)
            yield sizes


def _larger(sizes: Sizes, present: Sizes) -> bool:
    def volume(values: Sizes) -> int:
        product = 1
        for value in values.values():
            product *= value
        return product

    return volume(sizes) > volume(present)


def _valid(sizes: Sizes, dot: bool) -> bool:
    least = _SMALLEST_DOT_AXIS if dot else 1
    return all(v >= least and v & (v - 1) == 0 for v in sizes.values())


# ------------------------------------------------------------------- rewriting
def _resize(editor: Editor, module: Module, kernel: _Kernel, sizes: Sizes) -> str:
    """Collect the edits that give the tiles new sizes; a reason when that cannot be done."""
    changed = [t for t in kernel.tiles if sizes[t.role] != t.constant.value]
    done: dict[cst.CSTNode, int] = {}
    for tile in kernel.tiles:
        node, size = tile.constant.node, sizes[tile.role]
        if done.setdefault(node, size) != size:
            return f"{tile.constant.name} is the size of two tiles that would differ"
    for tile in changed:
        if tile.constant.node in done:
            editor.replace(tile.constant.node, str(sizes[tile.role]))
            del done[tile.constant.node]
    literals = [t for t in changed if t.constant.name is None]
    return _follow(editor, module, kernel, literals, sizes) if literals else ""


def _follow(editor: Editor, module: Module, kernel: _Kernel, literals: list[Tile], sizes: Sizes) -> str:
    """Change the literals in the launcher's ceiling divisions that mean the resized tiles."""
    host = launcher(module, kernel.launch)
    scope: cst.CSTNode = module.tree if host is None else host.node.body
    values = {t.constant.value for t in literals}
    handled: set[cst.CSTNode] = {t.constant.node for t in kernel.tiles}
    for call in calls(scope, "triton.cdiv", "cdiv"):
        if len(call.args) != 2 or literal_int(call.args[1].value) not in values:
            continue
        meant = _meant(module, kernel, call)
        if len({sizes[t.role] for t in meant}) != 1:
            return f"cannot tell which tile {code(call).strip()} counts"
        handled.add(call.args[1].value)
        editor.replace(call.args[1].value, str(sizes[meant[0].role]))
    for node in find(scope, cst.Integer):
        if node in handled or int(node.value, 0) not in {*values, *(v - 1 for v in values)}:
            continue
        if _arithmetic(module, kernel.launch, node):
            return f"the launcher also uses {node.value} in {code(module.statement(node)).strip()[:60]}"
    return ""


def _meant(module: Module, kernel: _Kernel, call: cst.Call) -> list[Tile]:
    """The resized tiles a ``cdiv(extent, literal)`` of the launcher may count."""
    value = literal_int(call.args[1].value)
    same = [t for t in kernel.tiles if t.constant.value == value and t.constant.name is None]
    if len(same) > 1:
        flow = flow_of(module.functions[kernel.launch.kernel])
        extent = expanded(module, kernel.launch, call.args[0].value)
        texts = {code(call.args[0].value).strip(), extent}
        fitting = [t for t in same if texts & axis_argument(kernel.launch, flow, t.name)]
        same = fitting or same
    return same


def _arithmetic(module: Module, launch: Launch, node: cst.Integer) -> bool:
    """Whether a literal takes part in arithmetic, a loop bound or a block shape of the launcher."""
    for up in module.ancestors(node):
        if up is launch.call:
            return False
        if isinstance(up, cst.BinaryOperation | cst.Comparison):
            return True
        if isinstance(up, cst.Call) and code(up.func).split(".")[-1] in ("range", "TensorDescriptor", "from_tensor"):
            return True
        if isinstance(up, cst.BaseCompoundStatement | cst.SimpleStatementLine):
            return False
    return False
