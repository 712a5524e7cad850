"""Tensor-core dot."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import libcst as cst

from ..model import SiteKind
from ..surface import Editor, Function, Module, make_site
from ..surface.pyast import parse_ast
from ..surface.query import argument, code, normal
from ._flow import Flow, flow_of
from ._kernels import helpers_of
from ._nodes import calls
from .base import Hints, Move, Proposal, Unsupported
from .predicates import OPERANDS_AT_MOST_16_BIT

_WIDE = ".to(tl.float32)"


@dataclass(frozen=True)
class _Dot:
    """A ``tl.dot`` of a launched kernel or of a device helper."""

    flow: Flow
    call: cst.Call

    @property
    def operands(self) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
        left, right = argument(self.call, "input", 0), argument(self.call, "other", 1)
        return None if left is None or right is None else (left.value, right.value)

    @property
    def precision(self) -> str:
        """What decides the products' precision, as written ("default" when nothing does)."""
        for name in ("input_precision", "allow_tf32"):
            arg = argument(self.call, name)
            if arg is not None:
                text = code(arg.value).strip()
                return text.strip("'\"") if name == "input_precision" else f"{name}={text}"
        return "default"

    def widened(self, node: cst.BaseExpression) -> bool:
        """Whether an operand is cast to fp32 by its text or by each of its definitions."""
        if code(node).strip().endswith(_WIDE):
            return True
        return bool(self.casts(node))

    def casts(self, node: cst.BaseExpression) -> list[cst.Call]:
        """The ``.to(tl.float32)`` calls that end every definition of a named operand ([] if one does not)."""
        found = self.flow.definitions.get(node.value, []) if isinstance(node, cst.Name) else []
        ends = [_ending_cast(d.statement) for d in found]
        return [e for e in ends if e is not None] if ends and None not in ends else []

    @property
    def naive(self) -> bool:
        return self.precision == "ieee" and all(self.widened(o) for o in self.operands or ())

    @property
    def objection(self) -> str:
        """Why the dot is outside this move ("" when it is not)."""
        out = argument(self.call, "out_dtype")
        kept = "" if out is None else code(out.value).strip()
        if "float16" in kept:
            return "the product accumulates in fp16; fp32_accumulation goes first"
        if argument(self.call, "max_num_imprecise_acc") is not None:
            return "an fp8 product with its own accumulation control"
        return ""


class TensorCoreDot(Move):
    """Tensor-core dot.

    A dot of 16-bit operands runs on the tensor cores, sixteen times the rate of fp32 arithmetic and half the bytes in
    shared memory, while the accumulator stays fp32: products of two 16-bit numbers are exact in fp32.

    ```python
    acc = tl.dot(a.to(tl.float32), b.to(tl.float32), acc, input_precision="ieee")
    -->
    acc = tl.dot(a, b, acc)
    ```

    Must hold:
    - the operands were loaded as 16-bit (or narrower) numbers: fp32 operands would be rounded to TF32.

    Refused:
    - integer products, and products that accumulate in fp16 or carry fp8 accumulation control;
    - an operand whose fp32 form is also used elsewhere.
    """

    rank = 50
    anchors: ClassVar = (SiteKind.DOT,)
    carriers: ClassVar = ("input_precision",)
    conditions: ClassVar = (OPERANDS_AT_MOST_16_BIT,)

    def simplify(self, module: Module) -> Iterator[Proposal | Unsupported]:
        for dot in _dots(module):
            if dot.naive or dot.operands is None:
                continue
            site = make_site(module, SiteKind.DOT, dot.call)
            if dot.objection:
                yield Unsupported(self.name, "simplify", site, dot.objection)
                continue
            editor = Editor(module)
            for operand in dot.operands:
                if not dot.widened(operand):
                    editor.replace(operand, f"{_postfix(operand)}{_WIDE}")
            _set_ieee(editor, dot.call)
            yield Proposal(self.name, "simplify", site, editor.apply(), {"input_precision": dot.precision})

    def materialize(
        self, module: Module, hints: Hints | None = None, *, checked: bool = True
    ) -> Iterator[Proposal | Unsupported]:
        for dot in _dots(module):
            if dot.operands is None or dot.precision != "ieee" or dot.objection:
                continue
            site = make_site(module, SiteKind.DOT, dot.call)
            editor = Editor(module)
            reason = _narrow(editor, dot, checked)
            if reason:
                yield Unsupported(self.name, "materialize", site, reason)
                continue
            editor.remove_keyword(dot.call, "input_precision")
            yield Proposal(self.name, "materialize", site, editor.apply(), {"input_precision": "default"})


def _dots(module: Module) -> Iterator[_Dot]:
    seen: set[str] = set()
    for kernel in module.kernels.values():
        for part in helpers_of(module, kernel):
            if part.name not in seen:
                seen.add(part.name)
                yield from (d for d in _function_dots(part) if not _integer(d))


def _function_dots(function: Function) -> Iterator[_Dot]:
    flow = flow_of(function)
    for call in calls(function.node.body, "dot"):
        yield _Dot(flow, call)


def _integer(dot: _Dot) -> bool:
    """Whether the product is of integers, as far as its output type or its accumulator's definition tells."""
    out = argument(dot.call, "out_dtype")
    if out is not None and "int" in code(out.value):
        return True
    names: list[str] = []
    acc = argument(dot.call, "acc", 2)
    if acc is not None:
        names = [code(acc.value).strip()]
    statement = dot.flow.module.statement(dot.call)
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    if isinstance(small, cst.AugAssign):
        names.append(code(small.target).strip())
    bound = [d for n in names for d in dot.flow.definitions.get(n, []) if n not in dot.flow.function.params]
    texts = [code(d.statement) for d in bound]
    return any("tl.int32" in text or "tl.int8" in text for text in texts)


def _set_ieee(editor: Editor, call: cst.Call) -> None:
    old = argument(call, "allow_tf32")
    if old is not None and argument(call, "input_precision") is None:
        start, _ = editor.module.span(old)
        editor.replace_span(start, editor.module.outer_span(old.value)[1], 'input_precision="ieee"')
    else:
        editor.set_keyword(call, "input_precision", '"ieee"')


def _postfix(node: cst.BaseExpression) -> str:
    """The expression's text, ready for a method call."""
    text = code(node).strip()
    tree = parse_ast(text, mode="eval").body
    plain = isinstance(tree, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    return text if plain or text.startswith("(") else f"({text})"


def _ending_cast(statement: cst.CSTNode) -> cst.Call | None:
    """The ``.to(tl.float32)`` that ends a plain assignment's value."""
    small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) and statement.body else None
    value = small.value if isinstance(small, cst.Assign | cst.AnnAssign) else None
    return value if isinstance(value, cst.Call) and _is_cast(value) else None


def _is_cast(node: cst.BaseExpression) -> bool:
    return (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Attribute)
        and node.func.attr.value == "to"
        and normal(node).endswith(_WIDE)
    )


def _stripped(module: Module, node: cst.BaseExpression) -> str:
    """The text of what a ``.to(tl.float32)`` call casts."""
    func = node.func if isinstance(node, cst.Call) else None
    if not isinstance(func, cst.Attribute):
        return code(node)
    start, end = module.outer_span(func.value)
    return module.data[start:end].decode()


def _narrow(editor: Editor, dot: _Dot, checked: bool) -> str:
    """Collect the edits that take the fp32 casts off the operands; a reason when that cannot be done."""
    module = editor.module
    if dot.operands is None:
        return "the product's operands are not written as arguments"
    left, right = dot.operands
    plain = [o for o in (left, right) if not dot.widened(o)]
    for operand in (left, right):
        if _is_cast(operand):
            editor.replace(operand, _stripped(module, operand))
        elif casts := dot.casts(operand):
            name = code(operand).strip()
            readers = [r for r in dot.flow.readers(name) if r is not module.statement(dot.call)]
            if checked and readers:
                return f"{name} is used as fp32 elsewhere too"
            for cast in casts:
                editor.replace(cast, _stripped(module, cast))
    if len(plain) == 1:  # a computed fp32 tile against a loaded one: it takes the loaded one's type
        other = right if plain[0] is left else left
        text = _stripped(module, other) if _is_cast(other) else code(other).strip()
        editor.replace(plain[0], f"{_postfix(plain[0])}.to({text}.dtype)")
    return ""
