"""Accumulation in fp32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import libcst as cst

from ..model import SiteKind
from ..surface import Editor, Function, Module, make_site
from ..surface.query import argument, calls, code, is_call, normal, walk
from .base import Condition, Context, Hints, Move, Proposal, Unsupported, predicate

_WIDE = {"tl.float32", "triton.language.float32"}
_NARROW = "tl.float16"
_NARROW_CASES = {"fp16", "bf16", "float16", "bfloat16"}


@predicate
def inputs_are_16_bit(context: Context, _args: Mapping[str, str]) -> bool | None:
    """The case's inputs are 16-bit floats, so that an upcast adds precision."""
    dtype = context.case.params.get("dtype") if context.case is not None else None
    return None if dtype is None else str(dtype) in _NARROW_CASES


class Fp32Accumulation(Move):
    """Accumulation in fp32.

    Sums of 16-bit values lose bits in a 16-bit accumulator: 65,536 ones add up to 2,048 in fp16. Upcasting what is
    loaded (row kernels) or keeping the accumulator of dots in fp32 costs registers and buys correctness; on tensor
    cores it costs no time. Taking it out is a simplification that the gate mostly refuses: that refusal is the
    evidence for it.

    ```python
    x = tl.load(x_ptr + cols, mask=cols < n, other=0.0)
    mean = tl.sum(x, axis=0) / n
    -->
    x = tl.load(x_ptr + cols, mask=cols < n, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / n
    ```

    Must hold:
    - the inputs are 16-bit floats (else there is nothing to widen).

    Refused:
    - upcasts in kernels with tl.dot are left alone (tensor_core_dot owns them): there it is the accumulator alone;
    - kernels without a reduction, a dot or an exponential: nothing accumulates.
    """

    rank = 52
    anchors: ClassVar = (SiteKind.LOAD, SiteKind.REDUCTION, SiteKind.DOT)
    carriers: ClassVar = ("upcasts", "accumulators")
    conditions: ClassVar = (Condition("inputs_are_16_bit", "the inputs are 16-bit floats"),)

    def simplify(self, module: Module) -> Iterator[Proposal | Unsupported]:
        for function in module.kernels.values():
            if not _accumulates(function):
                continue
            editor = Editor(module)
            dots = calls(function.node.body, "dot")
            casts = [] if dots else _upcasts(function)
            for call in casts:
                end = module.outer_span(_receiver(call))[1]
                editor.replace_span(end, module.span(call)[1], "")
            zeros = _zeros(function, _WIDE) if dots else []
            for call in zeros:
                _retype(editor, call, _NARROW)
            for dot in dots if zeros else ():
                editor.set_keyword(dot, "out_dtype", _NARROW)
            if casts or zeros:
                yield self._proposal(module, function, "simplify", editor, len(casts), len(zeros))

    def materialize(
        self, module: Module, hints: Hints | None = None, *, checked: bool = True
    ) -> Iterator[Proposal | Unsupported]:
        del hints, checked
        for function in module.kernels.values():
            if not _accumulates(function):
                continue
            editor = Editor(module)
            zeros = _zeros(function, {_NARROW, "tl.bfloat16"})
            for call in zeros:
                _retype(editor, call, "tl.float32")
            dots = calls(function.node.body, "dot")
            for dot in dots:
                if argument(dot, "out_dtype") is not None:
                    editor.remove_keyword(dot, "out_dtype")
            loads = [] if dots else _narrow_loads(module, function)
            for load in loads:
                end = module.span(load)[1]
                editor.replace_span(end, end, ".to(tl.float32)")
            if loads or zeros:
                yield self._proposal(module, function, "materialize", editor, len(loads), len(zeros))

    def _proposal(
        self, module: Module, function: Function, direction: str, editor: Editor, casts: int, zeros: int
    ) -> Proposal:
        site = make_site(module, SiteKind.KERNEL, function.node)
        params = {"upcasts": str(casts), "accumulators": str(zeros)}
        kind = "simplify" if direction == "simplify" else "materialize"
        return Proposal(self.name, kind, site, editor.apply(), params)


def _accumulates(function: Function) -> bool:
    return bool(calls(function.node.body, "sum", "max", "dot", "exp", "exp2", "cumsum"))


def _upcasts(function: Function) -> list[cst.Call]:
    """``<expression>.to(tl.float32)`` or ``.cast(tl.float32)`` where the expression is a load or a loaded name."""
    loaded = {
        normal(n.targets[0].target)
        for n in walk(function.node.body)
        if isinstance(n, cst.Assign) and is_call(_bare(n.value), "load")
    }
    found: list[cst.Call] = []
    for call in calls(function.node.body):
        if not isinstance(call.func, cst.Attribute) or call.func.attr.value not in ("to", "cast") or not call.args:
            continue
        inner = call.func.value
        if normal(call.args[0].value) in _WIDE and (is_call(inner, "load") or normal(inner) in loaded):
            found.append(call)
    return found


def _receiver(call: cst.Call) -> cst.BaseExpression:
    """``x`` of ``x.to(...)``."""
    return call.func.value if isinstance(call.func, cst.Attribute) else call


def _bare(node: cst.BaseExpression) -> cst.BaseExpression:
    """An expression without trailing ``.to(...)`` and ``.cast(...)``."""
    while isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute):
        if node.func.attr.value not in ("to", "cast"):
            break
        node = node.func.value
    return node


def _zeros(function: Function, dtypes: set[str]) -> list[cst.Call]:
    found: list[cst.Call] = []
    for call in calls(function.node.body, "zeros"):
        dtype = argument(call, "dtype", 1)
        if dtype is not None and normal(dtype.value) in dtypes:
            found.append(call)
    return found


def _retype(editor: Editor, call: cst.Call, dtype: str) -> None:
    arg = argument(call, "dtype", 1)
    if arg is not None:
        editor.replace(arg.value, dtype)


def _narrow_loads(module: Module, function: Function) -> list[cst.Call]:
    """Loads of vectors (their address depends on a range) with no cast on them."""
    found: list[cst.Call] = []
    for load in calls(function.node.body, "load"):
        parent = module.parent(load)
        cast = isinstance(parent, cst.Attribute) and parent.attr.value in ("to", "cast")
        masked = argument(load, "mask", 1) is not None
        if not cast and (masked or "arange" in code(load)):
            found.append(load)
    return found
