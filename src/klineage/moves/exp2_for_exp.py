"""exp2 for exp."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import libcst as cst

from ..model import SiteKind
from ..surface import Editor, Function, Module, make_site
from ..surface.query import calls, code, normal
from .base import Condition, Context, Hints, Move, Proposal, Unsupported, predicate

LOG2E = 1.4426950408889634
_TEXT = "1.4426950408889634"
_ATOMS = (cst.Name, cst.Call, cst.Float, cst.Integer, cst.Subscript, cst.Attribute)


@predicate
def exponents_are_floats(context: Context, _args: Mapping[str, str]) -> bool | None:
    """The case computes in floating point (exp of integers is refused by Triton)."""
    dtype = context.case.params.get("dtype") if context.case is not None else None
    return None if dtype is None else not str(dtype).startswith(("int", "uint", "bool"))


class Exp2ForExp(Move):
    """exp2 for exp.

    The hardware has an instruction for 2^x (ex2.approx) and none for e^x: exp(x) is compiled to a multiplication by
    log2(e) and that instruction. Writing exp2 with the factor by hand lets it be folded into a scale that is multiplied
    anyway (attention's softmax scale); where nothing folds, both compile to the same code and the effect is neutral.

    ```python
    p = tl.exp(x - m)
    -->
    p = tl.exp2((x - m) * 1.4426950408889634)
    ```

    Must hold:
    - the exponents are floating point;
    - exponentials that meet in a sum or a rescaling are changed together: a kernel is changed as a whole.

    Refused:
    - exp2 whose argument is not a product with log2(e): it is not an exp in disguise.
    """

    rank = 65
    anchors: ClassVar = (SiteKind.KERNEL,)
    carriers: ClassVar = ("exponentials",)
    conditions: ClassVar = (Condition("exponents_are_floats", "the exponents are floating point"),)

    def simplify(self, module: Module) -> Iterator[Proposal | Unsupported]:
        constants = _constants(module)
        for function in module.jit_functions.values():
            found = calls(function.node.body, "exp2")
            plain = [(call, _without_factor(call, constants)) for call in found]
            if not found:
                continue
            if any(exponent is None for _, exponent in plain):
                site = make_site(module, SiteKind.KERNEL, function.node)
                reason = f"an exp2 in {function.name} has an argument that is not a product with log2(e)"
                yield Unsupported(self.name, "simplify", site, reason)
                continue
            texts = {call: _rename(call, "exp", module.text(e)) for call, e in plain if e is not None}
            yield self._proposal(module, function, "simplify", texts)

    def materialize(
        self, module: Module, hints: Hints | None = None, *, checked: bool = True
    ) -> Iterator[Proposal | Unsupported]:
        del hints, checked
        name = next((n for n, wrapped in _constants(module).items() if wrapped), _TEXT)
        for function in module.jit_functions.values():
            found = [c for c in calls(function.node.body, "exp") if len(c.args) == 1]
            texts: dict[cst.Call, str] = {}
            for call in found:
                exponent = call.args[0].value
                text = module.text(exponent)
                whole = text if isinstance(exponent, _ATOMS) else f"({text})"
                texts[call] = _rename(call, "exp2", f"{whole} * {name}")
            if texts:
                yield self._proposal(module, function, "materialize", texts)

    def _proposal(self, module: Module, function: Function, kind: str, texts: dict[cst.Call, str]) -> Proposal:
        editor = Editor(module)
        outermost = [c for c in texts if not any(up in texts for up in module.ancestors(c))]
        for call in outermost:
            inner = [c for c in calls(call) if c is not call and c in texts]
            editor.replace(call, _nested(module, call, inner, texts))
        site = make_site(module, SiteKind.KERNEL, function.node)
        direction = "simplify" if kind == "simplify" else "materialize"
        return Proposal(self.name, direction, site, editor.apply(), {"exponentials": str(len(texts))})


def _nested(module: Module, call: cst.Call, inner: list[cst.Call], texts: Mapping[cst.Call, str]) -> str:
    """The new text of a call whose exponent may hold further exponentials."""
    text = texts[call]
    for nested in inner:
        text = text.replace(module.text(nested), texts[nested])
    return text


def _rename(call: cst.Call, name: str, argument: str) -> str:
    prefix = code(call.func.value).strip() + "." if isinstance(call.func, cst.Attribute) else ""
    return f"{prefix}{name}({argument})"


def _is_log2e(node: cst.BaseExpression, constants: Mapping[str, bool]) -> bool:
    if isinstance(node, cst.Name):
        return node.value in constants
    try:
        return abs(float(normal(node)) - LOG2E) < 1e-6
    except ValueError:
        return False


def _without_factor(call: cst.Call, constants: Mapping[str, bool]) -> cst.BaseExpression | None:
    """``e`` of ``exp2(e * log2(e))`` in either order, else None."""
    product = call.args[0].value if len(call.args) == 1 else None
    if not isinstance(product, cst.BinaryOperation) or not isinstance(product.operator, cst.Multiply):
        return None
    if _is_log2e(product.right, constants):
        return product.left
    return product.right if _is_log2e(product.left, constants) else None


def _constants(module: Module) -> dict[str, bool]:
    """Module constants that hold log2(e), and whether a kernel may read them (wrapped in tl.constexpr)."""
    found: dict[str, bool] = {}
    for statement in module.tree.body:
        for small in statement.body if isinstance(statement, cst.SimpleStatementLine) else ():
            if isinstance(small, cst.Assign | cst.AnnAssign) and small.value is not None:
                target = small.targets[0].target if isinstance(small, cst.Assign) else small.target
                wrapped = isinstance(small.value, cst.Call) and "constexpr" in code(small.value.func)
                value = small.value.args[0].value if wrapped and isinstance(small.value, cst.Call) else small.value
                if isinstance(target, cst.Name) and _is_log2e(value, {}):
                    found[target.value] = wrapped or isinstance(small, cst.AnnAssign)
    return found
