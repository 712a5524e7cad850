"""Constant values of expressions: what is the same on every call, and what is certainly not None."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from .pytext import dotted_name


@dataclass(frozen=True)
class Known:
    """An expression's value. ``text`` is how the source writes it, when it is a literal."""

    value: object
    text: str = ""

    def literal(self) -> str | None:
        """The value as source text, or None when no literal says it exactly."""
        if self.text:
            return self.text
        value = self.value
        if value is None or isinstance(value, bool | str | int):
            return repr(value)
        if isinstance(value, float) and value - value == 0:  # finite
            return repr(value)
        return None


class NotNone:
    """The value is not known, but it is not None."""

    def __repr__(self) -> str:
        return "NOT_NONE"


@dataclass(frozen=True)
class Constexpr:
    """A ``tl.constexpr(...)`` object: unwrapped by kernels, opaque to Python code but for ``.value``."""

    value: object


NOT_NONE = NotNone()
Value = Known | NotNone
Lookup = Callable[[str], Value | None]

# What holds wherever KLineage judges a kernel: NVIDIA targets, or CPU tensors under the interpreter; inputs are plain
# tensors without gradients.
OTHER_DEVICES = frozenset({"xpu", "npu", "hpu", "mps", "musa", "mlu", "gcu", "hip", "xla"})
_FACTS: dict[str, object] = {"torch.version.hip": None}
_CALLS_THAT_ARE_FALSE = frozenset({"torch.xpu.is_available", "is_npu_available", "is_hip", "is_xpu_available"})

_BINARY: dict[type[ast.operator], Callable[[object, object], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # type: ignore[assignment]
_COMPARE: dict[type[ast.cmpop], Callable[[object, object], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,  # type: ignore[operator]
    ast.NotIn: lambda a, b: a not in b,  # type: ignore[operator]
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}  # type: ignore[assignment]
_TYPES: dict[str, type] = {"int": int, "float": float, "str": str, "bool": bool, "tuple": tuple, "list": list}
_SIMPLE = (bool, int, float, str, tuple, list, dict, type(None))
_TENSOR_MAKERS = frozenset(
    {"empty", "empty_like", "empty_strided", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like"}
)
_TENSOR_METHODS = frozenset(
    {
        "view", "reshape", "contiguous", "to", "transpose", "permute", "squeeze", "unsqueeze", "flatten", "expand",
        "detach", "clone", "float", "half", "bfloat16", "new_empty", "new_zeros", "new_ones", "view_as", "t", "size",
        "stride", "numel", "dim", "element_size", "data_ptr", "type", "int", "long", "narrow", "select", "unflatten",
    }
)  # fmt: skip
_NOT_NONE_ATTRIBUTES = frozenset({"shape", "dtype", "device", "ndim", "T", "mT"})


@dataclass(frozen=True)
class Maker:
    """A function that only returns an expression of its parameters."""

    parameters: tuple[str, ...]
    expression: ast.expr


class Evaluator:
    """Evaluates expressions of one module. Anything unsure is None.

    ``constants`` are the module's own; ``makers`` its functions that only return an expression;
    ``facts`` maps expression texts to values that the caller vouches for.
    """

    def __init__(
        self,
        constants: Mapping[str, Value],
        makers: Mapping[str, Maker] | None = None,
        facts: Mapping[str, object] | None = None,
        kernel: bool = False,
    ) -> None:
        self.constants = constants
        self.makers = makers or {}
        self.facts = facts or {}
        self.kernel = kernel
        self._depth = 0

    def evaluate(self, node: ast.expr, lookup: Lookup) -> Value | None:
        """The value of an expression where local names have the values that ``lookup`` gives."""
        if isinstance(node, ast.Constant):
            return Known(node.value) if isinstance(node.value, _SIMPLE) else None
        if isinstance(node, ast.Name):
            value = lookup(node.id)
            return Known(self.facts[node.id]) if value is None and node.id in self.facts else self._unwrapped(value)
        if isinstance(node, ast.Attribute) and dotted_name(node) in _FACTS:
            return Known(_FACTS[dotted_name(node) or ""])
        if self.facts and isinstance(node, ast.Attribute | ast.Call | ast.Subscript | ast.Compare):
            text = ast.unparse(node)
            if text in self.facts:
                return Known(self.facts[text])
        handler = getattr(self, f"_{type(node).__name__}", None)
        return handler(node, lookup) if handler is not None else None

    def truth(self, node: ast.expr, lookup: Lookup) -> bool | None:
        """Whether a test holds, when that is certain."""
        value = self.evaluate(node, lookup)
        if isinstance(value, Known) and isinstance(value.value, _SIMPLE):
            return bool(value.value)
        if isinstance(node, ast.BoolOp):  # ``x or True`` holds whatever x is
            parts = [self.truth(v, lookup) for v in node.values]
            decisive = isinstance(node.op, ast.Or)
            if decisive in parts:
                return decisive
        return None

    def _unwrapped(self, value: Value | None) -> Value | None:
        if self.kernel and isinstance(value, Known) and isinstance(value.value, Constexpr):
            return Known(value.value.value)
        return value

    def _known(self, node: ast.expr, lookup: Lookup) -> Known | None:
        value = self.evaluate(node, lookup)
        return value if isinstance(value, Known) and not isinstance(value.value, Constexpr) else None

    def _UnaryOp(self, node: ast.UnaryOp, lookup: Lookup) -> Value | None:
        if isinstance(node.op, ast.Not):
            truth = self.truth(node.operand, lookup)
            return None if truth is None else Known(not truth)
        value = self._known(node.operand, lookup)
        if value is not None and isinstance(value.value, int | float) and isinstance(node.op, ast.USub):
            return Known(-value.value)
        return None

    def _BinOp(self, node: ast.BinOp, lookup: Lookup) -> Value | None:
        left, right = self._known(node.left, lookup), self._known(node.right, lookup)
        do = _BINARY.get(type(node.op))
        numbers = all(v is not None and isinstance(v.value, int | float) for v in (left, right))
        if do is None or left is None or right is None or not numbers:
            return None if self.kernel else NOT_NONE
        try:
            return Known(do(left.value, right.value))
        except (ArithmeticError, TypeError):
            return None

    def _BoolOp(self, node: ast.BoolOp, lookup: Lookup) -> Value | None:
        stop = isinstance(node.op, ast.Or)
        value: Value | None = None
        for part in node.values:
            value = self.evaluate(part, lookup)
            truth = self.truth(part, lookup)
            if truth is None:
                return None
            if truth is stop:
                return value
        return value

    def _Compare(self, node: ast.Compare, lookup: Lookup) -> Value | None:
        if len(node.ops) != 1:
            return None
        op, left, right = node.ops[0], node.left, node.comparators[0]
        if isinstance(op, ast.Is | ast.IsNot) and isinstance(right, ast.Constant) and right.value is None:
            value = self.evaluate(left, lookup)
            if value is None:
                return None
            is_none = isinstance(value, Known) and value.value is None
            return Known(is_none is isinstance(op, ast.Is))
        a, b = self._known(left, lookup), self._known(right, lookup)
        if a is not None and b is not None:
            if isinstance(op, ast.Is | ast.IsNot) and not isinstance(b.value, bool):
                return None
            try:
                return Known(bool(_COMPARE[type(op)](a.value, b.value)))
            except TypeError:
                return None
        return self._device(op, left, b)

    def _device(self, op: ast.cmpop, left: ast.expr, right: Known | None) -> Value | None:
        """``x.device.type == "npu"`` is false wherever kernels are judged."""
        is_type = isinstance(left, ast.Attribute) and left.attr == "type"
        if not is_type or not isinstance(left.value, ast.Attribute) or left.value.attr != "device" or right is None:  # type: ignore[union-attr]
            return None
        if right.value in OTHER_DEVICES and isinstance(op, ast.Eq | ast.NotEq):
            return Known(isinstance(op, ast.NotEq))
        return None

    def _IfExp(self, node: ast.IfExp, lookup: Lookup) -> Value | None:
        truth = self.truth(node.test, lookup)
        if truth is not None:
            return self.evaluate(node.body if truth else node.orelse, lookup)
        return join(self.evaluate(node.body, lookup), self.evaluate(node.orelse, lookup))

    def _Tuple(self, node: ast.Tuple | ast.List, lookup: Lookup) -> Value | None:
        parts = [self._known(e, lookup) for e in node.elts]
        if all(p is not None for p in parts):
            return Known(tuple(p.value for p in parts if p is not None))
        return NOT_NONE

    _List = _Set = _Tuple

    def _Dict(self, node: ast.Dict, lookup: Lookup) -> Value | None:
        keys = [self._known(k, lookup) if k is not None else None for k in node.keys]
        values = [self._known(v, lookup) for v in node.values]
        if any(p is None for p in (*keys, *values)):
            return NOT_NONE
        return Known({k.value: v.value for k, v in zip(keys, values, strict=True) if k and v})

    def _JoinedStr(self, node: ast.JoinedStr, lookup: Lookup) -> Value | None:
        return NOT_NONE

    def _Lambda(self, node: ast.Lambda, lookup: Lookup) -> Value | None:
        return NOT_NONE

    def _Subscript(self, node: ast.Subscript, lookup: Lookup) -> Value | None:
        base, index = self._known(node.value, lookup), self._known(node.slice, lookup)
        if base is None or index is None or not isinstance(base.value, dict | tuple):
            return None
        try:
            return Known(base.value[index.value])  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return None

    def _Attribute(self, node: ast.Attribute, lookup: Lookup) -> Value | None:
        value = self.evaluate(node.value, lookup) if isinstance(node.value, ast.Name) else None
        if node.attr == "value" and isinstance(node.value, ast.Name):
            inner = lookup(node.value.id)
            if isinstance(inner, Known) and isinstance(inner.value, Constexpr):
                return Known(inner.value.value)
        if self.kernel or isinstance(value, Known):
            return None
        if node.attr == "requires_grad":
            return Known(False)
        return NOT_NONE if node.attr in _NOT_NONE_ATTRIBUTES else None

    def _Call(self, node: ast.Call, lookup: Lookup) -> Value | None:
        name = dotted_name(node.func)
        if name in _CALLS_THAT_ARE_FALSE and not node.args and not node.keywords:
            return Known(False)
        if name is not None and name in self.makers and not node.keywords:
            return self._made(self.makers[name], node, lookup)
        if name is not None and name.split(".")[-1] == "constexpr" and len(node.args) == 1:
            value = self._known(node.args[0], lookup)
            return Known(Constexpr(value.value)) if value is not None else None
        if name in ("isinstance", "float", "int", "bool", "str", "len") and lookup(name) is None:
            return self._builtin(name, node, lookup)
        if self.kernel:
            return None
        if isinstance(node.func, ast.Attribute):
            if node.func.attr in ("values", "keys") and not node.args:
                value = self._known(node.func.value, lookup)
                if value is not None and isinstance(value.value, dict):
                    return Known(tuple(getattr(value.value, node.func.attr)()))
            if node.func.attr in ("startswith", "endswith") and len(node.args) == 1:
                value, affix = self._known(node.func.value, lookup), self._known(node.args[0], lookup)
                if value is not None and affix is not None and isinstance(value.value, str):
                    return Known(getattr(value.value, node.func.attr)(affix.value))
            if node.func.attr in _TENSOR_METHODS:
                return NOT_NONE
            if name is not None and name.startswith("torch.") and node.func.attr in _TENSOR_MAKERS:
                return NOT_NONE
        return None

    def _made(self, maker: Maker, node: ast.Call, lookup: Lookup) -> Value | None:
        """The value of a function that is one expression, for these arguments."""
        if len(maker.parameters) != len(node.args) or self._depth > 3:
            return None
        inner = dict(zip(maker.parameters, (self.evaluate(a, lookup) for a in node.args), strict=True))
        self._depth += 1
        try:
            return self.evaluate(maker.expression, lambda n: inner[n] if n in inner else self.constants.get(n))
        finally:
            self._depth -= 1

    def _builtin(self, name: str, node: ast.Call, lookup: Lookup) -> Value | None:
        if node.keywords or not node.args:
            return None
        value = self._known(node.args[0], lookup)
        if value is None:
            return NOT_NONE if name != "isinstance" else None
        if name == "isinstance":
            kind = _TYPES.get(dotted_name(node.args[1]) or "") if len(node.args) == 2 else None
            simple = isinstance(value.value, _SIMPLE)
            return Known(isinstance(value.value, kind)) if kind is not None and simple else None
        if self.kernel or len(node.args) != 1:
            return None
        try:
            made = {"float": float, "int": int, "bool": bool, "str": str, "len": len}[name](value.value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            return None
        return Known(made)


def join(a: Value | None, b: Value | None) -> Value | None:
    """What holds of a value that is one or the other."""
    if a is None or b is None:
        return None
    if isinstance(a, Known) and isinstance(b, Known) and same(a, b):
        return a
    if any(isinstance(v, Known) and (v.value is None or isinstance(v.value, Constexpr)) for v in (a, b)):
        return None
    return NOT_NONE


def same(a: Known, b: Known) -> bool:
    """Equal in value and type (1, 1.0 and True differ; 0.0 and -0.0 differ)."""
    return type(a.value) is type(b.value) and repr(a.value) == repr(b.value)
