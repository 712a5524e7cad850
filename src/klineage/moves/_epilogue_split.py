"""Splitting a product kernel's epilogue off into an elementwise kernel of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import libcst as cst

from ..surface import Editor, Launch, Module
from ..surface.pyast import parse_ast
from ..surface.query import code
from ._elementwise import bound_in, live_in
from ._flow import flow_of
from ._grids import atom
from ._launches import fresh_name, module_constants, remove_parameters
from ._lines import names_loaded
from ._nodes import find
from ._products import Product, accumulators, decorator_words, product_of, stores_plainly
from ._spaces import COL, ROW, SYMBOLS
from ._stage_write import Texts, Writer
from ._stages import Lifter, NotAStageError, Stage

_WIDTH = 110  # of a line of new text
BLOCK = 256  # elements of the elementwise kernel's program: its naive size
_ALLOCATED = frozenset(("float32", "float16", "bfloat16", "int32", "float64"))


@dataclass(frozen=True)
class Epilogue:
    """What follows a product's accumulation loop, lifted."""

    product: Product
    stage: Stage


def epilogues(module: Module) -> Iterator[tuple[Launch, Epilogue | NotAStageError]]:
    """Each launched product that does more to its result than cast and store it, or why that cannot be split off."""
    for launch in module.launches:
        function = module.functions[launch.kernel]
        found = accumulators(function)
        if found is None or not found[1] or all(stores_plainly(function, found[0], name) for name in found[1]):
            continue
        try:
            product = product_of(module, launch)
            if product is not None:
                yield launch, _epilogue(product)
        except NotAStageError as reason:
            yield launch, reason


def _epilogue(product: Product) -> Epilogue:
    """The lifted epilogue.

    Raises NotAStageError.
    """
    lifter = Lifter(product.flow, product.space, [product.acc])
    stage = lifter.add([*_slice(product), *product.tail])
    function = product.function
    module = function.module
    known = {*function.params, *module.functions, *module_constants(module), product.acc, *_imported(module)}
    strange = sorted(stage.free - known - _BUILTINS)
    if strange:
        raise NotAStageError(f"the epilogue reads {strange[0]}, which the elementwise kernel would not have")
    if lifter.depends(stage.memory("store")[0].args[0]) != {ROW, COL}:
        raise NotAStageError("the address of the result does not follow the tile's rows and columns")
    if product.dtype not in _ALLOCATED:
        raise NotAStageError(f"no tensor holds an accumulator of type {product.dtype}")
    return Epilogue(product, stage)


_BUILTINS = frozenset(("min", "max", "abs", "float", "int"))


def _imported(module: Module) -> set[str]:
    """Names that the module's import lines bind."""
    found: set[str] = set()
    for node in parse_ast(module.source).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(a.asname or a.name).partition(".")[0] for a in node.names}
    return found


def _slice(product: Product) -> list[ast.stmt]:
    """The statements before the loop that the tail's values come from.

    Raises NotAStageError when one of them is compound, or when the loop itself makes a value that the tail reads.
    """
    live = live_in(product.tail) - {product.acc}
    made = sorted(live & bound_in([product.body[product.loop]]))
    if made:
        raise NotAStageError(f"{made[0]}, which the epilogue reads, is made in the loop")
    found: list[ast.stmt] = []
    for node in reversed(product.body[: product.loop]):
        bound = bound_in([node])
        if not bound & live:
            continue
        if isinstance(node, ast.If | ast.For | ast.While | ast.With):
            raise NotAStageError(f"{sorted(bound & live)[0]}, which the epilogue reads, is set in a branch or loop")
        live = (live - bound) | names_loaded(node)
        found.insert(0, node)
    return found


# ------------------------------------------------------------------- rewriting
def split(module: Module, epilogue: Epilogue) -> str:
    """The module with the epilogue in a kernel of its own.

    Raises NotAStageError when the launcher's text cannot follow.
    """
    product = epilogue.product
    launch, function = product.launch, product.function
    result = launch.bound.get(product.output)
    if result is None or not isinstance(result.value, cst.Name) or any(a.star for a in launch.call.args):
        raise NotAStageError("the launch does not pass the result's tensor by name")
    host = module.functions.get(launch.function)
    if host is None:
        raise NotAStageError("the launch stands at module level")
    editor = Editor(module)
    name = result.value.value
    temporary = fresh_name(module, f"{name}_{product.acc}", host)
    pointer = fresh_name(module, f"{product.acc}_ptr", function)
    rows, cols = _passed(product, product.space.row_extent), _passed(product, product.space.col_extent)
    unused = _strip(editor, product, pointer)
    kernel, call = _kernel(epilogue, pointer, temporary, unused | {product.output})
    remove_parameters(editor, function, unused)
    editor.replace(result.value, temporary)
    statement = module.statement(launch.call)
    made = f"torch.empty(({rows}, {cols}), device={name}.device, dtype=torch.{product.dtype})"
    editor.insert_before(statement, f"{temporary} = {made}")
    editor.insert_after(statement, call)
    end = line_end(module, function.node)
    editor.replace_span(end, end, f"\n\n{kernel}")
    return editor.apply()


def _passed(product: Product, parameter: str) -> str:
    """The launcher's text for a parameter, or the parameter's default."""
    arg, node = product.launch.bound.get(parameter), product.function.param(parameter)
    if arg is not None:
        return code(arg.value).strip()
    if node is None or node.default is None:
        raise NotAStageError(f"the launch does not pass {parameter} itself")
    return code(node.default).strip()


def _strip(editor: Editor, product: Product, pointer: str) -> set[str]:
    """Leave the product kernel with the bare accumulator's store; returns the parameters it no longer reads."""
    function, space = product.function, product.space
    nodes, body = function.statements, product.body
    mask = "" if product.mask is None else f", mask={ast.unparse(product.mask)}"
    address = f"{pointer} + {space.row_name}[:, None] * {space.col_extent} + {space.col_name}[None, :]"
    store = f"tl.store({address}, {product.acc}{mask})"
    wanted = live_in(parse_ast(store).body) - {product.acc}
    staying: set[int] = set()
    for index in range(len(body) - 1, product.loop, -1):
        if index != product.store and index < product.store and bound_in([body[index]]) & wanted:
            staying.add(index)
            wanted |= names_loaded(body[index])
    if product.acc in wanted or product.output in wanted:
        raise NotAStageError("the bounds of the store depend on the product or on its result")
    gone = {nodes[i] for i in range(product.loop + 1, len(body)) if i not in staying}
    dead = flow_of(function).dead_after(set(gone), wanted)
    removed: set[cst.CSTNode] = {*gone, *dead}
    for node in removed - {nodes[product.store]}:
        remove_with_comments(editor, node)
    editor.replace_statement(nodes[product.store], store)
    read = {n.value for s in nodes if s not in removed for n in find(s, cst.Name)} | wanted
    unused = {p for p in function.params if p not in read and any(p in _names(g) for g in removed)}
    if product.output in read:
        raise NotAStageError(f"{product.output} is used for more than the store")
    looked = sorted(unused & decorator_words(function))
    if looked:
        raise NotAStageError(f"a decorator of {function.name} looks at {looked[0]}")
    node = function.param(product.output)
    assert node is not None
    editor.replace(node.name, pointer)
    result = product.launch.bound[product.output]
    if result.keyword is not None:
        editor.replace(result.keyword, pointer)
    return unused - {product.output}


def _names(node: cst.CSTNode) -> set[str]:
    return {n.value for n in find(node, cst.Name)}


def line_end(module: Module, node: cst.CSTNode) -> int:
    """Byte offset of the line after a statement."""
    end = module.span(node)[1]
    if module.data[end - 1 : end] == b"\n":
        return end
    newline = module.data.find(b"\n", end)
    return len(module.data) if newline < 0 else newline + 1


def remove_with_comments(editor: Editor, statement: cst.CSTNode) -> None:
    """Remove a statement, the comment rows right above it, and a blank row above those."""
    data = editor.module.data
    start = data.rfind(b"\n", 0, editor.module.span(statement)[0]) + 1
    blank = False
    while start > 0 and not blank:
        above = data.rfind(b"\n", 0, start - 1) + 1
        row = data[above:start].strip()
        blank = not row
        if row and not row.startswith(b"#"):
            break
        editor.replace_span(above, start, "")
        start = above
    editor.remove_statement(statement)


# -------------------------------------------------------------------- new text
def _kernel(epilogue: Epilogue, pointer: str, temporary: str, own: set[str]) -> tuple[str, str]:
    """(the elementwise kernel's text, its launch). ``own`` are the parameters that the product kernel gives up."""
    product, stage = epilogue.product, epilogue.stage
    function, space = product.function, product.space
    taken = {*stage.free, *stage.bound, *function.params, pointer}
    offs, rows, cols, mask, count, block = (
        _unused(n, taken) for n in ("offs", "rows", "cols", "mask", "n_elements", "BLOCK")
    )
    used = {n.id for s in stage.statements for n in ast.walk(s) if isinstance(n, ast.Name)} & SYMBOLS
    needed = [p for p in function.params if p in stage.free or (p == space.col_extent and used)]
    needed.sort(key=lambda p: p not in own)
    plain = [p for p in needed if p not in function.constexprs]
    constexprs = [p for p in needed if p in function.constexprs]
    lines = [
        f"{offs} = tl.program_id(0) * {block} + tl.arange(0, {block})",
        f"{mask} = {offs} < {count}",
        *([f"{rows} = {offs} // {space.col_extent}"] if ROW in used else []),
        *([f"{cols} = {offs} % {space.col_extent}"] if COL in used else []),
        f"{product.acc} = tl.load({pointer} + {offs}, mask={mask}, other=0.0)",
        *Writer(Texts(rows, cols, offs, mask, mask, mask), {}, [product.acc]).lines(stage.statements),
    ]
    signature = [pointer, *plain, count, *(f"{c}: tl.constexpr" for c in (*constexprs, block))]
    name = fresh_name(function.module, f"{function.name.removesuffix('_kernel')}_epilogue_kernel")
    head = _wrapped(f"def {name}", [signature])
    text = f"@triton.jit\n{head}:\n" + "".join(f"    {line}\n" for line in lines)
    total = " * ".join(atom(_passed(product, extent)) for extent in (space.row_extent, space.col_extent))
    arguments = [temporary, *(_passed(product, p) for p in plain), total]
    keywords = [f"{c}={_passed(product, c)}" for c in constexprs] + [f"{block}={BLOCK}"]
    return text, _wrapped(f"{name}[(triton.cdiv({total}, {BLOCK}),)]", [arguments, keywords])


def _wrapped(head: str, rows: Sequence[Sequence[str]]) -> str:
    """``head(items)``, one row of items a line when they do not fit one."""
    line = f"{head}({', '.join(item for row in rows for item in row)})"
    if len(line) <= _WIDTH:
        return line
    return f"{head}(\n" + "".join(f"    {', '.join(row)},\n" for row in rows) + ")"


def _unused(wanted: str, taken: Sequence[str] | set[str]) -> str:
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    return name
