"""Writing an elementwise kernel's body into the product kernel before it, at the store."""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass, field

import libcst as cst

from ..surface import Editor, Function, Module
from ..surface.pyast import parse_ast
from ..surface.query import code, names_read, normal
from ._elementwise import casts, live_in, name_of
from ._epilogue_join import TILE, Fusion
from ._epilogue_split import line_end
from ._flow import parse
from ._grids import atom
from ._launches import remove_parameters
from ._nodes import find
from ._outputs import output_of
from ._persistent import drop_dead_locals
from ._products import Product, decorator_words
from ._spaces import COL, MASK, ROW
from ._stage_write import Texts, Writer
from ._stages import Lifter, NotAStageError

_DEFINED_AND_LAUNCHED = 2  # mentions of a kernel that nothing else uses


@dataclass
class _Parameters:
    """Where the stage's parameters come from: ``names`` maps them to the product kernel's, ``added`` are new there."""

    names: dict[str, str] = field(default_factory=dict[str, str])
    added: list[str] = field(default_factory=list[str])  # names in the elementwise kernel


def fuse(module: Module, fusion: Fusion, checked: bool) -> str:
    """The module with both kernels in one.

    Raises NotAStageError when the texts cannot be joined.
    """
    product, host = fusion.product, module.functions[fusion.launch.function]
    parameters = _parameters(fusion)
    lines = _lines(fusion, parameters)
    editor = Editor(module)
    nodes = product.function.statements
    store = nodes[product.store]
    read = live_in(parse_ast("\n".join(lines)).body)
    dead = product.flow.dead_after({store}, read)
    removed: set[cst.CSTNode] = {store, *dead}
    for node in dead:
        editor.remove_statement(node)
    editor.replace_statement(store, "\n".join(lines))
    read |= {n.value for s in nodes if s not in removed for n in find(s, cst.Name)}
    unused = {p for p in product.function.params if p not in read and any(_reads(g, p) for g in removed)}
    if looked := sorted(unused & decorator_words(product.function)):
        raise NotAStageError(f"a decorator of {product.function.name} looks at {looked[0]}")
    _signature(editor, fusion, parameters, unused)
    start, end = module.statement(product.launch.call), module.statement(fusion.launch.call)
    if fusion.between:
        editor.insert_before(start, "\n".join(module.text(s) for s in fusion.between))
    for node in (*fusion.between, end):
        editor.remove_statement(node)
    if sum(n.value == fusion.function.name for n in find(module.tree, cst.Name)) == _DEFINED_AND_LAUNCHED:
        _remove_function(editor, fusion.function)
    allocation = output_of(module, product.launch, product.output)
    if not fusion.in_place and (checked or not fusion.readers) and not isinstance(allocation, str):
        editor.remove_statement(allocation.statement)
    gone = names_read(end) | {n for s in fusion.between for n in names_read(s)}
    source = drop_dead_locals(editor.apply(), host.name, gone)
    if checked and not fusion.in_place and _mentions(source, host.name, fusion.temporary):
        raise NotAStageError(f"the launcher reads {fusion.temporary}'s sizes or strides for something else")
    return source


def _reads(node: cst.CSTNode, name: str) -> bool:
    return any(n.value == name for n in find(node, cst.Name))


def _mentions(source: str, host: str, name: str) -> bool:
    function = Module.parse(source).functions.get(host)
    return function is not None and any(n.value == name for n in find(function.node.body, cst.Name))


def _remove_function(editor: Editor, function: Function) -> None:
    """Remove a function with its decorators, the comments above it and the blank rows above those."""
    module = editor.module
    first = function.node.decorators[0] if function.node.decorators else function.node
    start = module.data.rfind(b"\n", 0, module.span(first)[0]) + 1
    while start > 0:
        above = module.data.rfind(b"\n", 0, start - 1) + 1
        row = module.data[above:start].strip()
        if row and not row.startswith(b"#"):
            break
        start = above
    editor.replace_span(start, line_end(module, function.node), "")


# ------------------------------------------------------------------ parameters
def _parameters(fusion: Fusion) -> _Parameters:
    product, function = fusion.product, fusion.function
    found = _Parameters()
    taken = {n.value for n in find(product.function.node, cst.Name)} - {product.output}
    taken |= {product.output} if fusion.in_place else set[str]()
    shared = {p: a for p, a in product.launch.bound.items() if fusion.in_place or not _reads(a.value, fusion.temporary)}
    for name in (p for p in function.params if p in fusion.stage.free):
        text = _argument(fusion, name)
        kind = name in function.constexprs
        equal = (p for p, a in shared.items() if normal(a.value) == normal(text))
        same = next((p for p in equal if (p in product.function.constexprs) == kind), "")
        if not same:
            same = _unused(name, taken)
            found.added.append(name)
            taken.add(same)
        found.names[name] = same
    return found


def _argument(fusion: Fusion, name: str) -> str:
    """The launcher's text for a parameter of the elementwise kernel; the temporary's sizes and strides resolved."""
    arg, node = fusion.launch.bound.get(name), fusion.function.param(name)
    value = arg.value if arg is not None else None if node is None else node.default
    if value is None:
        raise NotAStageError(f"the launch does not pass {name}")
    text = code(value).strip()
    if fusion.in_place or fusion.temporary not in _names(text):
        return text
    text = ast.unparse(fusion.values.value(parse(text)))
    if fusion.temporary in _names(text):
        raise NotAStageError(f"the elementwise kernel takes {name} from the product's result")
    return text


def _signature(editor: Editor, fusion: Fusion, parameters: _Parameters, unused: set[str]) -> None:
    """Put the new parameters in the place of the temporary's pointer, and take out those nobody reads."""
    product = fusion.product
    function, launch = product.function, product.launch
    new: list[str] = []
    passed: list[str] = []
    slot = launch.bound[product.output]
    for name in parameters.added:
        mine, text = parameters.names[name], _argument(fusion, name)
        new.append(f"{mine}: tl.constexpr" if name in fusion.function.constexprs else mine)
        passed.append(text if slot.keyword is None else f"{mine}={text}")
    if fusion.in_place and product.output not in unused:
        new.insert(0, product.output)
        passed.insert(0, editor.module.text(slot))
    elif product.output not in unused:
        raise NotAStageError(f"{product.output} is used for more than the store")
    if not new:
        remove_parameters(editor, function, unused)
        return
    remove_parameters(editor, function, unused - {product.output})
    node = function.param(product.output)
    assert node is not None
    editor.replace_span(*editor.module.span(node), ", ".join(new))
    start = editor.module.span(slot)[0]
    editor.replace_span(start, editor.module.outer_span(slot.value)[1], ", ".join(passed))


# ------------------------------------------------------------------------ body
def _lines(fusion: Fusion, parameters: _Parameters) -> list[str]:
    """What stands in the product kernel in place of its store."""
    product, space = fusion.product, fusion.product.space
    before, tile = _tile(fusion, parameters)
    texts = _texts(product)
    needed = {space.row_name, space.col_name, *parameters.names.values(), space.col_extent, "tl"}
    needed |= {n for t in (texts.mask, texts.row_mask, texts.col_mask) for n in _names(t)}
    statements = [copy.deepcopy(s) for s in fusion.stage.statements]
    uses = sum(1 for s in statements for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == TILE)
    first = next((s for s in statements if isinstance(s, ast.Assign) and name_of(s.value) == TILE), None)
    target = "" if first is None else name_of(first.targets[0])
    names = dict(parameters.names) | {TILE: tile}
    if uses == 1 and first is not None and target not in needed and (before or target == tile):
        before = [f"{target} = {before[0].partition(' = ')[2]}"] if before else []
        statements.remove(first)
        alias = [target]
    else:
        needed.add(tile)
        alias = [TILE]
    taken = {n.value for n in find(product.function.node, cst.Name)} | {*fusion.stage.bound, *needed}
    for name in sorted(fusion.stage.bound & needed):
        names[name] = _unused(name, taken)
    return [*before, *Writer(texts, names, alias).lines(statements)]


def _names(text: str) -> set[str]:
    return {n.id for n in ast.walk(parse_ast(text)) if isinstance(n, ast.Name)}


def _tile(fusion: Fusion, parameters: _Parameters) -> tuple[list[str], str]:
    """(statements that make the value the elementwise kernel would load, its name): rounded as the temporary does."""
    product = fusion.product
    stored, dtype = product.stored, _dtype(fusion, parameters)
    if name_of(stored) == product.acc and dtype == f"tl.{product.dtype}":
        return [], product.acc
    value = stored
    same = [f".to({t})" for t in (dtype, f"{product.output}.dtype.element_ty")]
    if isinstance(stored, ast.Call) and casts(stored) and ast.unparse(stored).endswith(tuple(same)):
        value = parse(ast.unparse(stored.func).removesuffix(".to"))
    text = ast.unparse(value)
    if product.output in _names(text) and not fusion.in_place:
        raise NotAStageError(f"what the product stores depends on its result's pointer: {text[:60]}")
    taken = {n.value for n in find(product.function.node, cst.Name)} | fusion.stage.bound
    name = _unused("tile", taken | set(parameters.names.values()))
    return [f"{name} = {atom(text)}.to({dtype})"], name


def _dtype(fusion: Fusion, parameters: _Parameters) -> str:
    """The temporary's element type as the kernel writes it."""
    product = fusion.product
    if fusion.in_place:
        return f"{product.output}.dtype.element_ty"
    found = output_of(product.function.module, product.launch, product.output)
    text = None if isinstance(found, str) else found.dtype
    if text is None:
        raise NotAStageError(f"the element type of {fusion.temporary} is not written at its allocation")
    if text in ("torch.float32", "torch.float16", "torch.bfloat16", "torch.float64", "torch.int32"):
        return text.replace("torch.", "tl.")
    tensor = text.removesuffix(".dtype")
    passed = {code(a.value).strip(): p for p, a in product.launch.bound.items()}
    passed |= {_argument(fusion, p): parameters.names[p] for p in parameters.added}
    if tensor == text or passed.get(tensor) in (None, product.output):
        raise NotAStageError(f"the element type {text} of {fusion.temporary} has no name in the kernel")
    return f"{passed[tensor]}.dtype.element_ty"


def _texts(product: Product) -> Texts:
    """The product kernel's own texts for indices and masks."""
    space, flow = product.space, product.flow
    row, col = f"{space.row_name}[:, None]", f"{space.col_name}[None, :]"
    masks = {"": "", ROW: "", COL: ""}
    if product.mask is not None:
        masks[""] = ast.unparse(product.mask)
        found = flow.single(name_of(product.mask))
        whole = product.mask if found is None or found.value is None else found.value
        lifter = Lifter(flow, space)
        for term in _terms(whole):
            lifted = lifter.lift(flow.expand(term))
            if name_of(lifted.node) != MASK or len(lifted.axes) != 1 or lifted.rank != 2:
                raise NotAStageError(f"the product is stored under a condition of its own: {ast.unparse(term)[:60]}")
            masks[next(iter(lifted.axes))] = ast.unparse(term)
    flat = f"({row} * {space.col_extent} + {col})"
    return Texts(row, col, flat, masks[""], masks[ROW], masks[COL])


def _terms(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
        return [*_terms(node.left), *_terms(node.right)]
    return [node]


def _unused(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    return name
