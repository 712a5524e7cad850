"""A Triton module parsed with LibCST: functions, kernels, launches, and byte spans of every node."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper

from ..errors import KernelError
from .query import calls, children, code, dotted, literal_int, walk

JIT_NAMES = ("triton.jit", "jit", "triton.runtime.jit", "libentry", "gluon.jit")
AUTOTUNE_NAMES = ("autotune", "heuristics", "libtuner")
LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion")

Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement


@dataclass(frozen=True)
class Function:
    """A function of the module. ``params`` in order; ``constexprs`` those annotated ``tl.constexpr``."""

    module: Module = field(repr=False)
    node: cst.FunctionDef = field(repr=False)
    name: str
    params: tuple[str, ...]
    constexprs: frozenset[str]
    decorators: tuple[str, ...]

    @property
    def is_kernel(self) -> bool:
        """True when decorated with ``@triton.jit``."""
        return any(d in JIT_NAMES or d.endswith(".jit") for d in self.decorators)

    @property
    def statements(self) -> tuple[Statement, ...]:
        """Top-level statements of the body."""
        body = self.node.body
        if not isinstance(body, cst.IndentedBlock):
            raise KernelError(f"{self.name} is a one-line function", "write its body on lines of its own")
        return tuple(s for s in body.body if isinstance(s, cst.SimpleStatementLine | cst.BaseCompoundStatement))

    def decorator(self, last_name: str) -> cst.Decorator | None:
        """The decorator whose dotted name ends in ``last_name``."""
        for d in self.node.decorators:
            name = dotted(d.decorator.func if isinstance(d.decorator, cst.Call) else d.decorator)
            if name and name.split(".")[-1] == last_name:
                return d
        return None

    def param(self, name: str) -> cst.Param | None:
        """The parameter node."""
        params = self.node.params
        for p in (*params.posonly_params, *params.params, *params.kwonly_params):
            if p.name.value == name:
                return p
        return None


@dataclass(frozen=True)
class Launch:
    """``kernel[grid](args)`` in a launcher. ``bound`` maps kernel parameters to argument nodes."""

    call: cst.Call = field(repr=False)
    kernel: str
    grid: cst.BaseExpression = field(repr=False)
    function: str  # the launcher it stands in
    bound: Mapping[str, cst.Arg] = field(repr=False)
    options: Mapping[str, cst.Arg] = field(repr=False)  # num_warps, num_stages, ...

    @property
    def grid_parts(self) -> tuple[str, ...] | None:
        """Texts of the grid's elements when it is written as a tuple or list (or a lambda giving one)."""
        grid = self.grid.body if isinstance(self.grid, cst.Lambda) else self.grid
        if isinstance(grid, cst.Tuple | cst.List):
            return tuple(code(e.value) for e in grid.elements)
        return None

    def option_int(self, name: str) -> int | None:
        """The option's value when it is a literal integer."""
        arg = self.options.get(name)
        return None if arg is None else literal_int(arg.value)


class Module:
    """A parsed module. Immutable; ``klineage.surface.Editor`` makes new text from it."""

    def __init__(self, source: str, wrapper: MetadataWrapper) -> None:
        self.source = source
        self.data = source.encode()
        self.wrapper = wrapper
        self.tree = wrapper.module

    @staticmethod
    def parse(source: str) -> Module:
        """Parse module text (cached by text).

        Raises KernelError (with the line) on a syntax error.
        """
        return _parse(source)

    @cached_property
    def _spans(self) -> Mapping[cst.CSTNode, object]:
        return self.wrapper.resolve(ByteSpanPositionProvider)

    @cached_property
    def _parents(self) -> Mapping[cst.CSTNode, cst.CSTNode]:
        # of code nodes alone, which LibCST's ParentNodeProvider takes eight times as long to find
        return {child: node for node in walk(self.tree) for child in children(node)}

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """Byte offsets [start, end) of a node, without surrounding white space, comments, commas or parentheses."""
        where = self._spans[node]
        start = where.start  # type: ignore[attr-defined]
        end = start + where.length  # type: ignore[attr-defined]
        if isinstance(node, cst.Param):  # LibCST gives the name alone
            for part in (node.annotation and node.annotation.annotation, node.default):
                if part is not None:
                    end = max(end, self.outer_span(part)[1])
        return start, end

    def outer_span(self, node: cst.CSTNode) -> tuple[int, int]:
        """As ``span``, with the parentheses that belong to the node."""
        start, end = self.span(node)
        for _ in getattr(node, "lpar", ()):
            start = self.data.rindex(b"(", 0, start)
            end = self.data.index(b")", end) + 1
        return start, end

    def text(self, node: cst.CSTNode) -> str:
        """The node's own source text."""
        start, end = self.span(node)
        return self.data[start:end].decode()

    def line(self, node: cst.CSTNode) -> int:
        """Line number, from 1."""
        return self.data.count(b"\n", 0, self.span(node)[0]) + 1

    def indent(self, node: cst.CSTNode) -> str:
        """White space before the node on its line."""
        start = self.span(node)[0]
        begin = self.data.rfind(b"\n", 0, start) + 1
        prefix = self.data[begin:start].decode()
        return prefix[: len(prefix) - len(prefix.lstrip())]

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """The enclosing node."""
        return self._parents.get(node)

    def ancestors(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """Enclosing nodes, innermost first."""
        found: list[cst.CSTNode] = []
        current = self.parent(node)
        while current is not None:
            found.append(current)
            current = self.parent(current)
        return found

    def statement(self, node: cst.CSTNode) -> Statement:
        """The innermost statement that holds the node (the node itself when it is one)."""
        for candidate in (node, *self.ancestors(node)):
            if isinstance(candidate, cst.SimpleStatementLine | cst.BaseCompoundStatement):
                return candidate
        raise KernelError("a node outside any statement", "report this as a bug")

    def loops_around(self, node: cst.CSTNode) -> list[cst.For | cst.While]:
        """The loops around a node inside its function, innermost first."""
        loops: list[cst.For | cst.While] = []
        for up in self.ancestors(node):
            if isinstance(up, cst.FunctionDef):
                break
            if isinstance(up, cst.For | cst.While):
                loops.append(up)
        return loops

    def function_of(self, node: cst.CSTNode) -> str:
        """Name of the innermost function around a node ("" at module level)."""
        for up in self.ancestors(node):
            if isinstance(up, cst.FunctionDef):
                return up.name.value
        return ""

    @cached_property
    def functions(self) -> dict[str, Function]:
        """Every function of the module, nested ones and methods included, by name (first wins)."""
        found: dict[str, Function] = {}
        for node in walk(self.tree):
            if isinstance(node, cst.FunctionDef):
                found.setdefault(node.name.value, _function(self, node))
        return found

    @cached_property
    def kernels(self) -> dict[str, Function]:
        """The ``@triton.jit`` functions that some launch starts (device helpers are not among them)."""
        launched = {launch.kernel for launch in self.launches}
        return {n: f for n, f in self.functions.items() if f.is_kernel and n in launched}

    @cached_property
    def jit_functions(self) -> dict[str, Function]:
        """All ``@triton.jit`` functions: kernels and device helpers."""
        return {n: f for n, f in self.functions.items() if f.is_kernel}

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        """Every ``kernel[grid](...)`` of the module, in source order."""
        jit = {n: f for n, f in self.functions.items() if f.is_kernel}
        found: list[Launch] = []
        for call in calls(self.tree):
            if isinstance(call.func, cst.Subscript) and isinstance(call.func.value, cst.Name):
                name = call.func.value.value
                if name in jit and len(call.func.slice) >= 1:
                    found.append(_launch(self, call, jit[name]))
        return tuple(found)

    def launches_of(self, kernel: str) -> tuple[Launch, ...]:
        """The launches of one kernel."""
        return tuple(launch for launch in self.launches if launch.kernel == kernel)

    @cached_property
    def digest(self) -> str:
        """Hash of the text."""
        return hashlib.sha256(self.data).hexdigest()[:16]


@lru_cache(maxsize=256)
def _parse(source: str) -> Module:
    try:
        wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
    except cst.ParserSyntaxError as error:
        line = error.raw_line
        raise KernelError(
            f"syntax error on line {line}: {error.message}", "correct the kernel's Python text"
        ) from error
    return Module(source, wrapper)


def _function(module: Module, node: cst.FunctionDef) -> Function:
    params = (*node.params.posonly_params, *node.params.params, *node.params.kwonly_params)
    constexprs = frozenset(
        p.name.value for p in params if p.annotation is not None and "constexpr" in module.text(p.annotation.annotation)
    )
    names: list[str] = []
    for d in node.decorators:
        name = dotted(d.decorator.func if isinstance(d.decorator, cst.Call) else d.decorator)
        names.append(name or "")
    return Function(module, node, node.name.value, tuple(p.name.value for p in params), constexprs, tuple(names))


def _launch(module: Module, call: cst.Call, kernel: Function) -> Launch:
    subscript = call.func
    if not isinstance(subscript, cst.Subscript):
        raise KernelError("not a launch", "report this as a bug")
    if len(subscript.slice) == 1 and isinstance(subscript.slice[0].slice, cst.Index):
        grid = subscript.slice[0].slice.value
    else:
        grid = cst.Tuple([cst.Element(s.slice.value) for s in subscript.slice if isinstance(s.slice, cst.Index)])
    bound: dict[str, cst.Arg] = {}
    options: dict[str, cst.Arg] = {}
    position = 0
    for arg in call.args:
        if arg.keyword is not None:
            name = arg.keyword.value
            (bound if name in kernel.params else options)[name] = arg
        elif not arg.star:
            if position < len(kernel.params):
                bound[kernel.params[position]] = arg
            position += 1
    return Launch(call, kernel.name, grid, module.function_of(call), bound, options)
