"""Finding an elementwise kernel that reads nothing but a product's result, element by element."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import libcst as cst

from ..surface import Editor, Function, Launch, Module
from ..surface.pyast import parse_ast
from ..surface.query import code, is_call, names_read
from ._elementwise import name_of
from ._flow import canonical, ceil_division, flow_of, parse
from ._grids import grid_of
from ._host_values import HostValues, Shape
from ._kernels import dots_in, function_ast
from ._launches import is_tuned, local_definitions
from ._nodes import calls, find
from ._pointers import accesses
from ._products import Product, accumulators, product_of
from ._spaces import Space, space_of
from ._stage_addresses import factors, names_in, opened, reaches, row_major
from ._stages import Lifter, NotAStageError, Stage

_LIKE = {"torch.empty_like": "torch.empty", "torch.zeros_like": "torch.zeros"}
TILE = "TILE__"  # stands for the element of the product in a stage
_HARMLESS = frozenset((
    "cdiv", "dim", "empty", "empty_like", "max", "min", "next_power_of_2", "numel", "size", "stride", "zeros",
    "zeros_like",
))  # fmt: skip


@dataclass(frozen=True)
class Fusion:
    """A product and the elementwise kernel after it. In ``stage`` loads of the product's result are ``TILE``."""

    product: Product
    launch: Launch
    function: Function
    stage: Stage
    temporary: str
    in_place: bool  # the elementwise kernel stores to the tensor it reads
    between: tuple[cst.CSTNode, ...]  # the launcher's statements between the two launches
    values: HostValues
    readers: tuple[cst.CSTNode, ...]  # the launcher's other statements that read the temporary or its sizes
    own_result: bool  # the launcher allocates what the elementwise kernel stores to


def fusions(module: Module, checked: bool) -> Iterator[tuple[Launch, Fusion | NotAStageError]]:
    """Each launched product that an elementwise kernel follows, with what fusing them takes or why they cannot be."""
    for launch in module.launches:
        function = module.functions[launch.kernel]
        follower = _follower(module, launch) if accumulators(function) is not None else None
        if follower is None:
            continue
        try:
            product = product_of(module, launch)
            if product is not None:
                yield launch, _fusion(module, product, follower, checked)
        except NotAStageError as reason:
            yield launch, reason


def plain_allocations(module: Module) -> Module:
    """The module with ``torch.empty_like(t, ...)`` of a product's result written out as ``torch.empty(sizes, ...)``."""
    editor = Editor(module)
    for launch in module.launches:
        function, host = module.functions[launch.kernel], module.functions.get(launch.function)
        if host is None or accumulators(function) is None or _follower(module, launch) is None:
            continue
        local = local_definitions(module, launch)
        for call in calls(host.node.body, *_LIKE):
            tensor = call.args[0].value if call.args else None
            made = local.get(tensor.value) if isinstance(tensor, cst.Name) else None
            stored = accesses(module, function).stored
            results = {code(launch.bound[p].value).strip() for p in stored if p in launch.bound}
            if (
                not isinstance(made, cst.Call)
                or not is_call(made, "torch.empty")
                or code(call.args[0].value) not in results
            ):
                continue
            own = {a.keyword.value for a in call.args if a.keyword is not None}
            kept = [a for a in made.args if a.keyword is None or a.keyword.value not in own]
            texts = [code(a).strip().rstrip(",") for a in (*kept, *call.args[1:])]
            editor.replace(call, f"{_LIKE[code(call.func).strip()]}({', '.join(texts)})")
    return Module.parse(editor.apply()) if editor.count else module


def _follower(module: Module, launch: Launch) -> Launch | None:
    """The first later launch in the same function that gets a tensor the product stores to, if no product itself."""
    stored = accesses(module, module.functions[launch.kernel]).stored
    names = {code(launch.bound[p].value).strip() for p in stored if p in launch.bound}
    for other in module.launches:
        later = module.span(other.call)[0] > module.span(launch.call)[0] and other.function == launch.function
        if later and any(code(a.value).strip() in names for a in other.bound.values()):
            return None if dots_in(module, module.functions[other.kernel].node.body) else other
    return None


def _fusion(module: Module, product: Product, launch: Launch, checked: bool) -> Fusion:
    function, host = module.functions[launch.kernel], module.functions.get(launch.function)
    result = product.launch.bound.get(product.output)
    if result is None or not isinstance(result.value, cst.Name) or host is None:
        raise NotAStageError("the launch does not pass the product's tensor by name")
    if is_tuned(module, launch) or is_tuned(module, product.launch):
        raise NotAStageError("one of the two kernels is autotuned; autotune_set goes first")
    if any(a.star for a in (*launch.call.args, *product.launch.call.args)):
        raise NotAStageError("a launch passes its arguments by unpacking")
    if len(module.launches_of(function.name)) > 1:
        raise NotAStageError(f"{function.name} is launched from several places")
    temporary = result.value.value
    between = _between(module, product.launch, launch)
    values = HostValues(module, launch)
    shape = values.shape(parse(temporary))
    if shape is None:
        raise NotAStageError(f"the launcher does not allocate {temporary} itself, as rows by columns")
    same = [p for p, a in launch.bound.items() if code(a.value).strip() == temporary]
    stage = _stage(function, launch, values, shape, same)
    _check_grid(module, launch, function, values, shape)
    _check_product(product, values, shape)
    stored = opened(stage, stage.memory("store")[0].args[0])
    into = [p for p in function.params if p in names_in(stored)]
    in_place = any(p in same for p in into)
    if in_place and not row_major(stored, same, _launch_values(launch, function, values), shape):
        raise NotAStageError("the elementwise kernel stores to the tensor it reads, at other elements")
    loads = stage.memory("load")
    if (not in_place and set(same) & stage.free) or any(reaches(stage, c, set(same)) for c in loads):
        raise NotAStageError(f"{function.name} uses the product's result in a way that is not plain")
    readers = _readers(module, host, temporary, product.launch, launch, between)
    if checked and readers and not in_place:
        raise NotAStageError(f"{temporary} is read by more than the elementwise kernel")
    tensors = [code(launch.bound[p].value).strip() for p in into if p in accesses(module, function).stored]
    own = all(values.allocated(t) for t in tensors)
    if checked and not own:
        raise NotAStageError("the launcher does not allocate the result itself: it may be an operand of the product")
    return Fusion(product, launch, function, stage, temporary, in_place, between, values, readers, own)


# -------------------------------------------------------------------- launcher
def _between(module: Module, first: Launch, second: Launch) -> tuple[cst.CSTNode, ...]:
    """The statements between two launches of one block, all of them assignments without effect."""
    start, end = module.statement(first.call), module.statement(second.call)
    block = module.parent(start)
    if not isinstance(block, cst.IndentedBlock) or module.parent(end) is not block:
        raise NotAStageError("the two launches do not stand in one block")
    body = list(block.body)
    found = body[body.index(start) + 1 : body.index(end)]
    used = names_read(start)
    for node in found:
        (tree,) = parse_ast(code(node).strip()).body or [ast.Pass()]
        called = {n.func for n in ast.walk(tree) if isinstance(n, ast.Call)}
        last = {f.attr if isinstance(f, ast.Attribute) else name_of(f) for f in called}
        if not isinstance(tree, ast.Assign) or not last <= _HARMLESS:
            raise NotAStageError(f"the launcher does more between the two launches: {ast.unparse(tree)[:60]}")
        if {n.id for t in tree.targets for n in ast.walk(t) if isinstance(n, ast.Name)} & used:
            raise NotAStageError("the launcher binds a name of the first launch anew before the second")
    return tuple(found)


def _readers(
    module: Module, host: Function, name: str, first: Launch, second: Launch, between: tuple[cst.CSTNode, ...]
) -> tuple[cst.CSTNode, ...]:
    launches = (module.statement(first.call), module.statement(second.call))
    lines = [s for s in find(host.node.body, cst.SimpleStatementLine) if s not in launches and s not in between]
    headers = [s.test for s in find(host.node.body, cst.If)]
    return tuple(s for s in (*lines, *headers) if name in names_read(s))


def _launch_values(launch: Launch, function: Function, values: HostValues) -> Mapping[str, str]:
    """parameter -> what the launch passes, in a form in which equal values are equal."""
    found: dict[str, str] = {}
    for name in function.params:
        node = function.param(name)
        if name in launch.bound:
            found[name] = values.text(launch.bound[name].value)
        elif node is not None and node.default is not None:
            found[name] = values.text(node.default)
    return found


def _check_grid(module: Module, launch: Launch, function: Function, values: HostValues, shape: Shape) -> None:
    """The grid covers every element: a program for each block, rows and columns in either order."""
    space, grid = space_of(function), grid_of(module, launch)
    passed = _launch_values(launch, function, values)
    extents = [shape[0], shape[1]] if space is not None and space.row else [ast.BinOp(shape[0], ast.Mult(), shape[1])]
    blocks = () if space is None else space.blocks
    wanted = sorted(f"{canonical(e)} / {passed.get(b, '')}" for e, b in zip(extents, blocks, strict=True))
    found: list[str] = []
    for part in () if grid is None else grid.parts:
        parts = [f for f in factors(values.value(parse(part))) if ast.unparse(f) != "1"]
        for divided in (ceil_division(f) for f in parts):
            block = "" if divided is None else ast.unparse(divided[1])
            by_name = [b for b in blocks if grid is not None and block.replace('"', "'") == f"{grid.meta}['{b}']"]
            size = passed.get(by_name[0], "") if by_name else block
            found.append("" if divided is None else f"{canonical(divided[0])} / {size}")
    if sorted(found) != wanted:
        raise NotAStageError("the grid of the elementwise kernel is not seen to cover the product's elements")


# --------------------------------------------------------------------- kernels
def _stage(function: Function, launch: Launch, values: HostValues, shape: Shape, same: list[str]) -> Stage:
    """The elementwise kernel, lifted, with its loads of the temporary replaced."""
    space = space_of(function)
    if space is None:
        raise NotAStageError(f"{function.name} does not run over flat blocks or tiles of rows and columns")
    stage = Lifter(flow_of(function), space).add(function_ast(function).body)
    passed = _launch_values(launch, function, values)
    _check_extents(stage, space, passed, shape)
    if len(stage.memory("store")) != 1:
        raise NotAStageError(f"{function.name} stores {len(stage.memory('store'))} times")
    loads = [c for c in stage.memory("load") if names_in(opened(stage, c.args[0])) & set(same)]
    if not loads:
        raise NotAStageError(f"{function.name} does not load the product's result plainly")
    for call in loads:
        if not row_major(opened(stage, call.args[0]), same, passed, shape):
            raise NotAStageError(f"{function.name} reads the product's result at other elements than it computes")
        if any(k.arg == "mask" for k in call.keywords):
            raise NotAStageError(f"{function.name} reads the product's result under a condition of its own")
    return _with_tiles(stage, loads)


def _with_tiles(stage: Stage, loads: list[ast.Call]) -> Stage:
    class Replace(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            return ast.Name(TILE, ast.Load()) if node in loads else self.generic_visit(node)

    statements = [Replace().visit(s) for s in stage.statements]
    return Stage(statements, stage.row_length, stage.flat_extent).needed()


def _check_extents(stage: Stage, space: Space, passed: Mapping[str, str], shape: Shape) -> None:
    rows, cols = canonical(shape[0]), canonical(shape[1])
    total = canonical(ast.BinOp(shape[0], ast.Mult(), shape[1]))
    pairs = [(stage.row_length, cols), (stage.flat_extent, total), (space.row_extent, rows), (space.col_extent, cols)]
    for name, wanted in pairs:
        if name and passed.get(name) != wanted:
            raise NotAStageError(f"{name} of the elementwise kernel is not seen to be a size of the product's result")


def _check_product(product: Product, values: HostValues, shape: Shape) -> None:
    """The product is stored row by row, its tile bounded by the temporary's sizes."""
    passed = _launch_values(product.launch, product.function, values)
    space = product.space
    if (passed.get(space.row_extent), passed.get(space.col_extent)) != (canonical(shape[0]), canonical(shape[1])):
        raise NotAStageError("the bounds of the product's tile are not seen to be the sizes of its result")
    address = Lifter(product.flow, space).lift(product.flow.expand(product.call.args[0])).node
    if not row_major(address, [product.output], passed, shape):
        raise NotAStageError("the product's result is not stored row by row")
