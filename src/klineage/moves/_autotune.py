"""Sets of launch configurations: which one is the best guess, and what a set should try."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import libcst as cst

from ..surface import Editor, Function, Launch, Module
from ..surface.pyast import parse_ast
from ..surface.query import code, literal_int, names_read
from ._evaluate import Configuration
from ._flow import flow_of
from ._grids import Grid, grid_of
from ._kernels import dots_in, function_ast
from ._launches import launcher
from ._nodes import find
from ._tiles import Tile, axis_argument, roles

SHARED_BYTES = 232448  # of one block on sm_90 and sm_100
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
_OPERAND_BYTES = 2
_ACC_REGISTERS = 128  # per thread: more leave too few of 255 for the operands
_WARPS, _STAGES = 4, 3  # Triton's defaults

# role sizes and options; what experts' sets usually hold
DOT_SET = (
    "m=128,n=256,k=64,num_warps=8,num_stages=3",
    "m=128,n=128,k=64,num_warps=8,num_stages=3",
    "m=128,n=128,k=32,num_warps=4,num_stages=4",
    "m=64,n=128,k=64,num_warps=4,num_stages=4",
    "m=64,n=64,k=64,num_warps=4,num_stages=4",
)
ROW_SET = (
    "row=4096,num_warps=8",
    "row=2048,num_warps=8",
    "row=1024,num_warps=4",
    "row=512,num_warps=4",
    "row=256,num_warps=4",
)
PLANE_SET = (
    "row=64,col=64,num_warps=4",
    "row=128,col=64,num_warps=8",
    "row=64,col=128,num_warps=8",
    "row=32,col=64,num_warps=4",
    "row=32,col=32,num_warps=4",
)
WARP_SET = ("num_warps=4", "num_warps=8", "num_warps=16", "num_warps=2", "num_warps=32")
LOOP_SET = (
    "num_warps=4,num_stages=3",
    "num_warps=8,num_stages=3",
    "num_warps=4,num_stages=4",
    "num_warps=8,num_stages=4",
    "num_warps=4,num_stages=2",
)


def best_first(module: Module, function: Function, found: Sequence[Configuration]) -> list[Configuration]:
    """The configurations by how likely each is the fastest: large tiles that fit for dots, else the middle ones."""
    named = roles(module, function)
    unique = list({tuple(sorted(c.keywords.items())): c for c in found}.values())
    if dots_in(module, function.node.body):
        return sorted(unique, key=lambda c: _dot_rank(named, c))
    ranked = sorted(unique, key=lambda c: (_volume(named, c), c.options.get("num_warps", _WARPS)))
    middle = (len(ranked) - 1) / 2
    order = sorted(range(len(ranked)), key=lambda i: (abs(i - middle), -i))
    return [ranked[i] for i in order]


def _sizes(named: Mapping[str, str], config: Configuration) -> dict[str, int]:
    return {role: v for name, role in named.items() if isinstance(v := config.values.get(name), int)}


def _volume(named: Mapping[str, str], config: Configuration) -> int:
    sizes = _sizes(named, config)
    numbers = [v for v in config.values.values() if isinstance(v, int)]
    return prod(sizes.values()) if sizes else prod(numbers)


def _dot_rank(named: Mapping[str, str], config: Configuration) -> tuple[bool, bool, int, int]:
    sizes = _sizes(named, config)
    m, n, k = (sizes.get(role, 32) for role in "mnk")
    warps = config.options.get("num_warps", _WARPS)
    stages = config.options.get("num_stages", _STAGES)
    fits = shared_bytes(m, n, k, stages) <= SHARED_BYTES
    return not fits, m * n > _ACC_REGISTERS * 32 * warps, -m * n, -k * stages


def shared_bytes(m: int, n: int, k: int, stages: int) -> int:
    """Bytes of the 16-bit operand tiles that a pipelined dot loop keeps in shared memory."""
    return (m + n) * k * _OPERAND_BYTES * max(stages, 1)


def parse_set(text: str) -> list[dict[str, str]]:
    """``m=128,num_warps=8;m=64,num_warps=4`` as dictionaries."""
    parts = [p for p in text.split(";") if p]
    return [dict(_pair(item) for item in p.split(",") if "=" in item) for p in parts]


def _pair(item: str) -> tuple[str, str]:
    name, _, value = item.partition("=")
    return name.strip(), value.strip()


def format_set(module: Module, function: Function, found: Sequence[Configuration]) -> str:
    """The carrier's text of a set, tiles by role, so that it can be tried on another kernel."""
    named = roles(module, function)
    texts = [",".join(f"{named.get(n, n)}={v}" for n, v in c.keywords.items()) for c in found]
    return ";".join(texts)


# ---------------------------------------------------------------------- grids
@dataclass(frozen=True)
class Tunable:
    """A launch whose tiles an autotuner may choose: the tiles, and the grid as a function of them."""

    tiles: tuple[Tile, ...]
    grid: Grid | None
    grid_text: str  # "" when the grid need not change


def tunable(module: Module, launch: Launch, found: Sequence[Tile]) -> Tunable:
    """The tiles that the launcher uses for the launch and its grid alone (none when that cannot be told)."""
    passed = tuple(t for t in found if t.name in launch.bound)
    grid = grid_of(module, launch)
    nothing = Tunable((), grid, "")
    if grid is None or grid.shared or not passed:
        return nothing
    if _used_elsewhere(module, launch, passed, grid):
        return nothing
    text = code(grid.node).strip()
    meta = grid.meta or "META"
    rewritten = _with_meta(module, launch, passed, grid, meta)
    if rewritten is None:
        return nothing
    if rewritten == text:
        return Tunable(passed, grid, "")
    return Tunable(passed, grid, rewritten if grid.meta else f"lambda {meta}: {rewritten}")


def _with_meta(module: Module, launch: Launch, found: Sequence[Tile], grid: Grid, meta: str) -> str | None:
    """The grid's text with tiles read from the autotuner's choice (None: a literal's meaning is unclear)."""
    edits: list[tuple[int, int, str]] = []
    start, end = module.outer_span(grid.node)
    by_name: dict[str, list[Tile]] = {}
    for tile in found:
        if tile.constant.name is not None:
            by_name.setdefault(tile.constant.name, []).append(tile)
    if any(len(same) > 1 for same in by_name.values()):
        return None
    literals = [t for t in found if t.constant.name is None]
    for node in find(grid.node, cst.Name):
        if node.value in by_name and not isinstance(module.parent(node), cst.Attribute):
            edits.append((*module.span(node), f'{meta}["{by_name[node.value][0].name}"]'))
    for call in find(grid.node, cst.Call):
        if not code(call.func).strip().endswith("cdiv") or len(call.args) != 2:
            continue
        value = literal_int(call.args[1].value)
        same = [t for t in literals if t.constant.value == value]
        if len(same) > 1:
            flow = flow_of(module.functions[launch.kernel])
            extent = code(call.args[0].value).strip()
            same = [t for t in same if extent in axis_argument(launch, flow, t.name)]
        if len(same) == 1:
            edits.append((*module.span(call.args[1].value), f'{meta}["{same[0].name}"]'))
        elif value is not None and any(t.constant.value == value for t in literals):
            return None
    data = module.data
    parts: list[bytes] = []
    at = start
    for left, right, text in sorted(edits):
        parts += [data[at:left], text.encode()]
        at = right
    return b"".join([*parts, data[at:end]]).decode()


def _used_elsewhere(module: Module, launch: Launch, found: Sequence[Tile], grid: Grid) -> bool:
    """Whether the launcher uses a tile's name or number outside the launch, the grid and its own definition."""
    host = launcher(module, launch)
    scope: cst.CSTNode = module.tree if host is None else host.node.body
    names = {t.constant.name for t in found if t.constant.name}
    values = {v for t in found if t.constant.name is None for v in (t.constant.value, t.constant.value - 1)}
    inside = {*find(launch.call, cst.Name), *find(launch.call, cst.Integer)}
    inside |= {*find(grid.node, cst.Name), *find(grid.node, cst.Integer)}
    for node in find(scope, cst.Name):
        if node.value in names and node not in inside and not _target(module, node):
            return True
    if any(node.value in names for arg in _other_args(launch, found) for node in find(arg, cst.Name)):
        return True
    for node in find(scope, cst.Integer):
        if node not in inside and int(node.value, 0) in values and _counts(module, node):
            return True
    return False


def _other_args(launch: Launch, found: Sequence[Tile]) -> Iterator[cst.Arg]:
    taken = {launch.bound[t.name] for t in found}
    yield from (arg for arg in launch.call.args if arg not in taken)


def _target(module: Module, node: cst.Name) -> bool:
    return any(isinstance(up, cst.AssignTarget) for up in module.ancestors(node)[:3])


def _counts(module: Module, node: cst.Integer) -> bool:
    for up in module.ancestors(node):
        if isinstance(up, cst.BinaryOperation | cst.Comparison):
            return True
        if isinstance(up, cst.Call) and code(up.func).split(".")[-1] in ("cdiv", "range", "TensorDescriptor"):
            return True
        if isinstance(up, cst.BaseCompoundStatement | cst.SimpleStatementLine):
            return False
    return False


# ------------------------------------------------------------------ tidying up
def drop_unread(editor: Editor, module: Module, names: set[str], away: cst.FunctionDef) -> None:
    """Remove module-level constants and helpers that only the decorators of ``away`` read."""
    statements = [s for s in module.tree.body if isinstance(s, cst.SimpleStatementLine | cst.FunctionDef)]
    bare = away.with_changes(decorators=[])
    read = {s: names_read(bare if s is away else s) for s in module.tree.body}
    gone: list[cst.CSTNode] = []
    wanted = list(names)
    while wanted:
        name = wanted.pop()
        owners = [s for s in statements if s is not away and s not in gone and _defines(s, name)]
        if len(owners) != 1 or any(name in read[s] for s in read if s is not owners[0] and s not in gone):
            continue
        gone.append(owners[0])
        wanted += sorted(read[owners[0]])
    for statement in gone:
        editor.remove_statement(statement)


def _defines(statement: cst.CSTNode, name: str) -> bool:
    if isinstance(statement, cst.FunctionDef):
        return statement.name.value == name and not statement.decorators
    tree = parse_ast(code(statement).strip())
    only = tree.body[0] if len(tree.body) == 1 else None
    target = only.targets[0] if isinstance(only, ast.Assign) and len(only.targets) == 1 else None
    return isinstance(target, ast.Name) and target.id == name


def size_parameters(function: Function) -> list[str]:
    """Runtime parameters that bound a loop, a mask or a tile count: what a tuned choice depends on."""
    found: list[str] = []
    for node in ast.walk(function_ast(function)):
        parts: list[ast.expr] = []
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Lt):
            parts = node.comparators
        elif isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("cdiv", "range"):
            parts = node.args
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            parts = [node.right]
        found += [n.id for p in parts for n in ast.walk(p) if isinstance(n, ast.Name)]
    return [p for p in function.params if p in found and p not in function.constexprs]
