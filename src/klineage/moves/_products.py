"""Kernels that accumulate one tile of a matrix product in a loop and store it once."""

from __future__ import annotations

import ast
from dataclasses import dataclass

import libcst as cst

from ..surface import Function, Launch, Module
from ._elementwise import bound_in, function_name, live_in, name_of
from ._flow import Flow, flow_of
from ._kernels import function_ast
from ._lines import call_argument, names_loaded
from ._nodes import find
from ._pointers import bases_of
from ._spaces import Space, space_of
from ._stages import NotAStageError


@dataclass(frozen=True)
class Product:
    """A launched product kernel. ``body`` and the function's ``statements`` go together by index."""

    launch: Launch
    function: Function
    flow: Flow
    space: Space
    body: list[ast.stmt]
    loop: int  # index of the last loop over the reduction axis
    acc: str
    dtype: str  # the accumulator's, as Triton and torch both name it ("float32")
    store: int  # index of the statement that stores the result
    output: str  # the parameter it stores to

    @property
    def tail(self) -> list[ast.stmt]:
        """What follows the loop."""
        return self.body[self.loop + 1 :]

    @property
    def call(self) -> ast.Call:
        """The store."""
        statement = self.body[self.store]
        assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        return statement.value

    @property
    def stored(self) -> ast.expr:
        """The value that is stored."""
        value = call_argument(self.call, "value", 1)
        assert value is not None
        return value

    @property
    def mask(self) -> ast.expr | None:
        """The store's mask."""
        return call_argument(self.call, "mask", 2)


def accumulators(function: Function) -> tuple[int, list[str]] | None:
    """(index of the last top-level loop of dots, names that it sums up from zero and that are read after it)."""
    body = function_ast(function).body
    loops = [i for i, s in enumerate(body) if isinstance(s, ast.For) and _has(s, "dot", "dot_scaled")]
    if not loops:
        return None
    after = live_in(body[loops[-1] + 1 :])
    names = sorted(n for n in bound_in([body[loops[-1]]]) & after if _zeros(flow_of(function), n) is not None)
    return loops[-1], names


def _has(node: ast.AST, *names: str) -> bool:
    return any(isinstance(n, ast.Call) and function_name(n) in names for n in ast.walk(node))


def _zeros(flow: Flow, name: str) -> ast.Call | None:
    """The ``tl.zeros((m, n), ...)`` that a name starts from."""
    for found in flow.definitions.get(name, []):
        value = found.value
        if isinstance(value, ast.Call) and function_name(value) == "zeros":
            shape = call_argument(value, "shape", 0)
            return value if isinstance(shape, ast.Tuple | ast.List) and len(shape.elts) == 2 else None
    return None


def stores_plainly(function: Function, loop: int, acc: str) -> bool:
    """Whether all that happens to the accumulator after the loop is a cast and a store, by whatever means."""
    same = {acc}
    for node in function_ast(function).body[loop + 1 :]:
        if not names_loaded(node) & same:
            same -= bound_in([node])
        elif isinstance(node, ast.Assign) and name_of(strip_casts(node.value)) in same:
            same |= bound_in([node])
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            values = [name_of(strip_casts(a)) for a in (*node.value.args, *(k.value for k in node.value.keywords))]
            last = node.value.func.attr if isinstance(node.value.func, ast.Attribute) else ""
            if not last.startswith(("store", "atomic_")) or not set(values) & same:
                return False
        else:
            return False
    return True


def strip_casts(node: ast.expr) -> ast.expr:
    """The expression without ``.to(...)`` and ``tl.cast`` around it."""
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            node = node.func.value
        elif function_name(node) == "cast" and node.args:
            node = node.args[0]
        else:
            break
    return node


def product_of(module: Module, launch: Launch) -> Product | None:
    """The product that a launched kernel computes; None when it has no top-level loop of dots summed from zero.

    Raises NotAStageError when it has one whose tile or store is not plain.
    """
    function = module.functions[launch.kernel]
    found = accumulators(function)
    if found is None or not found[1]:
        return None
    loop, names = found
    body, flow = function_ast(function).body, flow_of(function)
    if len(names) > 1:
        raise NotAStageError(f"the loop has {len(names)} accumulators: {', '.join(names)}")
    if len(body) != len(function.statements):
        raise NotAStageError("a line of the kernel holds several statements")
    if len(module.launches_of(function.name)) > 1:
        raise NotAStageError(f"{function.name} is launched from several places")
    zeros = _zeros(flow, names[0])
    dtype = None if zeros is None else call_argument(zeros, "dtype", 1)
    if dtype is None or not ast.unparse(dtype).startswith("tl."):
        raise NotAStageError("the accumulator's type is not written out")
    space = space_of(function)
    if space is None or not space.row_extent or not space.col_extent:
        raise NotAStageError("the tile's row and column indices and their bounds are not recognised")
    store, output = _only_store(function, flow, body, loop)
    text = ast.unparse(dtype).removeprefix("tl.")
    return Product(launch, function, flow, space, body, loop, names[0], text, store, output)


def _only_store(function: Function, flow: Flow, body: list[ast.stmt], loop: int) -> tuple[int, str]:
    """(index, parameter) of the one store, a statement of its own after the loop."""
    if any(_has(s, "atomic_add", "atomic_max", "atomic_min", "atomic_cas", "atomic_xchg") for s in body):
        raise NotAStageError("the result is accumulated with atomics; split_k goes first")
    methods = [n for n in ast.walk(function_ast(function)) if isinstance(n, ast.Attribute) and n.attr == "store"]
    plain = [i for i, s in enumerate(body) if isinstance(s, ast.Expr) and _is_store(s.value)]
    if len(methods) != 1:
        raise NotAStageError(f"the kernel stores {len(methods)} times")
    if len(plain) != 1 or plain[0] < loop:
        raise NotAStageError("the store is in a branch or loop, or goes through a descriptor")
    call = body[plain[0]]
    assert isinstance(call, ast.Expr) and isinstance(call.value, ast.Call)
    bases = bases_of(flow, call.value.args[0]) if call.value.args else set[str]()
    if len(bases) != 1 or call_argument(call.value, "boundary_check") or call_argument(call.value, "value", 1) is None:
        raise NotAStageError("the address of the store has no single pointer as its base")
    return plain[0], bases.pop()


def _is_store(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and function_name(node) == "store"


def decorator_words(function: Function) -> set[str]:
    """The strings in a function's decorators: names of parameters that an autotuner or heuristic looks at."""
    found: set[str] = set()
    for decorator in function.node.decorators:
        for node in find(decorator, cst.SimpleString):
            value = node.evaluated_value
            found |= {value} if isinstance(value, str) else set()
    return found
