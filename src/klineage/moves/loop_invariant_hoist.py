"""Loop-invariant loads and definitions before the loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import libcst as cst

from ..model import Site, SiteKind
from ..surface import Editor, Module, make_site
from ..surface.query import argument, assignment, calls, find, is_call, names_read, names_written, normal
from .base import Condition, Context, Hints, Move, Proposal, Unsupported, predicate

_PURE = {"to", "cast", "load", "arange", "zeros", "full", "exp", "exp2", "log", "sqrt", "rsqrt", "cdiv", "maximum",
         "minimum", "where", "abs", "min", "max", "broadcast_to", "expand_dims", "program_id", "num_programs",
         "sigmoid", "trans"}  # fmt: skip


@predicate
def no_store_in_loop_to_hoisted_pointer(context: Context, _args: Mapping[str, str]) -> bool | None:
    """Nothing in the loop stores through a pointer that the hoisted load reads."""
    name = context.params.get("pointer")
    if context.site is None or name is None:
        return None
    function = context.module.functions.get(context.site.function)
    if function is None:
        return None
    stores = calls(function.node.body, "store", "atomic_add")
    inside = [s for s in stores if context.module.loops_around(s)]
    return not any(name in names_read(s.args[0]) for s in inside if s.args)


class LoopInvariantHoist(Move):
    """Loop-invariant loads and definitions before the loop.

    A value that is the same in every iteration is loaded or computed once, ahead of the loop: less traffic and fewer
    instructions per trip, at the price of registers that live through the loop.

    ```python
    for start in range(0, n, BLOCK):
        scale = tl.load(scale_ptr + row)
        x = tl.load(x_ptr + start + offs)
        tl.store(y_ptr + start + offs, x * scale)
    -->
    scale = tl.load(scale_ptr + row)
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + start + offs)
        tl.store(y_ptr + start + offs, x * scale)
    ```

    Must hold:
    - nothing in the loop stores through a pointer that the hoisted load reads;
    - every name the definition reads is bound before the loop and not in it, and the name is bound once in the loop.

    Refused:
    - definitions read after the loop are not sunk into it (a loop may run no time at all);
    - definitions with calls other than loads and arithmetic.
    """

    rank = 55
    anchors: ClassVar = (SiteKind.LOOP, SiteKind.LOAD)
    carriers: ClassVar = ("name", "pointer")
    conditions: ClassVar = (
        Condition(
            "no_store_in_loop_to_hoisted_pointer",
            "nothing in the loop stores through a pointer that the hoisted load reads",
        ),
    )

    def simplify(self, module: Module) -> Iterator[Proposal | Unsupported]:
        for function in module.kernels.values():
            for loop in find(function.node.body, cst.For):
                yield from self._sink(module, loop)

    def materialize(
        self, module: Module, hints: Hints | None = None, *, checked: bool = True
    ) -> Iterator[Proposal | Unsupported]:
        del hints
        for function in module.kernels.values():
            for loop in find(function.node.body, cst.For):
                yield from self._hoist(module, loop, checked)

    # ----------------------------------------------------------------- sinking
    def _sink(self, module: Module, loop: cst.For) -> Iterator[Proposal]:
        """Loads directly before a loop that only the loop uses."""
        block = module.parent(loop)
        if not isinstance(block, cst.IndentedBlock) or not isinstance(loop.body, cst.IndentedBlock):
            return
        index = next(i for i, s in enumerate(block.body) if s is loop)
        bound_in_loop = names_written(loop)
        for statement in block.body[:index]:
            found = assignment(statement)
            if found is None or not _has_load(found[1]) or not _pure(found[1]):
                continue
            name, value = found
            others = [s for s in block.body if s is not statement and s is not loop]
            if any(name in names_read(s) or name in names_written(s) for s in others):
                continue
            rebound = set(bound_in_loop)
            for later in block.body[block.body.index(statement) + 1 : index]:
                rebound |= names_written(later)
            if name not in names_read(loop.body) or name in bound_in_loop or names_read(value) & rebound:
                continue
            if _stored_pointers(loop) & names_read(value):
                continue
            editor = Editor(module)
            editor.remove_statement(statement)
            editor.insert_before(loop.body.body[0], module.text(statement))
            yield Proposal(self.name, "simplify", self._site(module, loop), editor.apply(), _params(name, value))

    # ---------------------------------------------------------------- hoisting
    def _hoist(self, module: Module, loop: cst.For, checked: bool) -> Iterator[Proposal | Unsupported]:
        if not isinstance(loop.body, cst.IndentedBlock):
            return
        bound = names_written(loop)
        for statement in loop.body.body:
            found = assignment(statement)
            if found is None or not _has_load(found[1]) or not _pure(found[1]):
                continue
            name, value = found
            if names_read(value) & bound or _times_bound(loop, name) != 1:
                continue
            if checked and _stored_pointers(loop) & names_read(value):
                reason = f"the loop stores through a pointer that {name} is loaded from"
                yield Unsupported(self.name, "materialize", self._site(module, loop), reason)
                continue
            editor = Editor(module)
            editor.remove_statement(statement)
            editor.insert_before(loop, module.text(statement))
            yield Proposal(self.name, "materialize", self._site(module, loop), editor.apply(), _params(name, value))

    @staticmethod
    def _site(module: Module, loop: cst.For) -> Site:
        return make_site(module, SiteKind.LOOP, loop)


def _params(name: str, value: cst.BaseExpression) -> dict[str, str]:
    loads = calls(value, "load")
    pointer = argument(loads[0], "pointer", 0) if loads else None
    names = sorted(names_read(pointer.value)) if pointer is not None else []
    base = next((n for n in names if n.lower().endswith(("ptr", "ptrs", "base"))), names[0] if names else "")
    return {"name": name, "pointer": base}


def _has_load(value: cst.BaseExpression) -> bool:
    return bool(calls(value, "load"))


def _pure(value: cst.BaseExpression) -> bool:
    """Only loads, arithmetic and calls known to have no effect."""
    for call in find(value, cst.Call):
        last = call.func.attr.value if isinstance(call.func, cst.Attribute) else normal(call.func)
        if last not in _PURE:
            return False
    return True


def _stored_pointers(loop: cst.For) -> set[str]:
    """Names in the addresses of the loop's stores and atomics."""
    found: set[str] = set()
    for call in find(loop.body, cst.Call):
        name = normal(call.func)
        if call.args and (is_call(call, "store") or ".atomic_" in name):
            found |= {n for n in names_read(call.args[0].value) if n.lower().endswith(("ptr", "ptrs", "base"))}
    return found


def _times_bound(loop: cst.For, name: str) -> int:
    body = loop.body
    if not isinstance(body, cst.IndentedBlock):
        return 0
    return sum(1 for s in body.body if name in names_written(s))
