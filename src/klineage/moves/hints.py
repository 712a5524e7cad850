"""Hints to the compiler and the caches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import libcst as cst

from ..model import SiteKind
from ..surface import Editor, Function, Module, make_site
from ..surface.query import argument, assignment, calls, code, expression, is_call, names_read, normal, walk
from .base import Condition, Context, Move, Proposal, Unsupported, ordered, predicate
from .base import Hints as CarrierHints

_WRAPPERS = ("multiple_of", "max_contiguous", "max_constancy")
_KEYWORDS = ("eviction_policy", "cache_modifier")
ALIGNMENT, EVICTION, CACHE = "alignment", "eviction", "cache"


@predicate
def offsets_start_at_multiples(context: Context, _args: Mapping[str, str]) -> bool | None:
    """Every offset declared aligned is a block index times the block plus a range over the block."""
    if context.site is None or context.params.get("kinds") != ALIGNMENT:
        return None
    function = context.module.functions.get(context.site.function)
    return None if function is None else bool(_aligned_offsets(function))


class Hints(Move):
    """Hints to the compiler and the caches.

    `tl.multiple_of` and `tl.max_contiguous` tell the compiler what it cannot prove, so that it may use wide loads;
    `eviction_policy` and `cache_modifier` tell the caches what will be read again. They change no value when they are
    true, and are silently wrong when they are not.

    ```python
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n)
    -->
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    offs = tl.max_contiguous(tl.multiple_of(offs, BLOCK), BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, eviction_policy="evict_first")
    ```

    Must hold:
    - an offset declared aligned really starts at a multiple: a block index times the block plus a range over the block.

    Refused:
    - alignment hints on offsets whose start is not known to be a multiple of the block.
    """

    rank = 70
    anchors: ClassVar = (SiteKind.HINT, SiteKind.LOAD, SiteKind.STORE)
    carriers: ClassVar = ("kinds",)
    conditions: ClassVar = (
        Condition("offsets_start_at_multiples", "an offset declared aligned starts at a multiple of its block"),
    )

    def simplify(self, module: Module) -> Iterator[Proposal | Unsupported]:
        for function in module.jit_functions.values():
            editor = Editor(module)
            kinds: list[str] = []
            if _strip_wrappers(module, function, editor):
                kinds.append(ALIGNMENT)
            for call in calls(function.node.body, "load", "store"):
                for keyword in _KEYWORDS:
                    if editor.remove_keyword(call, keyword):
                        kinds.append(EVICTION if keyword == "eviction_policy" else CACHE)
            if kinds:
                site = make_site(module, SiteKind.KERNEL, function.node)
                params = {"kinds": "+".join(dict.fromkeys(kinds))}
                yield Proposal(self.name, "simplify", site, editor.apply(), params)

    def materialize(
        self, module: Module, hints: CarrierHints | None = None, *, checked: bool = True
    ) -> Iterator[Proposal | Unsupported]:
        del checked  # a false alignment shows on hardware only: the interpreter cannot give its counter-example
        builders = {ALIGNMENT: _align, EVICTION: _evict, CACHE: _cache}
        for function in module.kernels.values():
            for kinds in ordered((ALIGNMENT, EVICTION, CACHE), hints, "kinds"):
                editor = Editor(module)
                wanted = [k for k in kinds.split("+") if k in builders]
                if wanted and all(builders[k](module, function, editor) for k in wanted):
                    site = make_site(module, SiteKind.KERNEL, function.node)
                    yield Proposal(self.name, "materialize", site, editor.apply(), {"kinds": kinds})


def _strip_wrappers(module: Module, function: Function, editor: Editor) -> bool:
    """Unwrap alignment hints; a line that only hints a name again goes as a whole."""
    changed = False
    for call in calls(function.node.body, *_WRAPPERS):
        if any(is_call(up, *_WRAPPERS) for up in module.ancestors(call)):
            continue  # the outermost is unwrapped to the core
        core: cst.BaseExpression = call
        while isinstance(core, cst.Call) and is_call(core, *_WRAPPERS):
            core = core.args[0].value
        statement = module.statement(call)
        found = assignment(statement)
        changed = True
        if (found is not None and found[1] is call and normal(core) == found[0]) or expression(statement) is call:
            editor.remove_statement(statement)
        else:
            editor.replace(call, module.text(core) if isinstance(core, cst.Name | cst.Call) else f"({code(core)})")
    for call in calls(function.node.body, "assume"):
        statement = module.statement(call)
        if expression(statement) is call:
            editor.remove_statement(statement)
            changed = True
    return changed


def _aligned_offsets(function: Function) -> list[tuple[cst.CSTNode, str, str]]:
    """(statement, name, block) of every ``name = index * block + tl.arange(0, block)`` not hinted yet."""
    found: list[tuple[cst.CSTNode, str, str]] = []
    hinted = {normal(c.args[0].value) for c in calls(function.node.body, *_WRAPPERS)}
    for statement in function.statements:
        bound = assignment(statement)
        if bound is None or not isinstance(bound[1], cst.BinaryOperation) or bound[0] in hinted:
            continue
        ranges = calls(bound[1], "arange")
        if len(ranges) != 1 or len(ranges[0].args) != 2 or not isinstance(bound[1].operator, cst.Add):
            continue
        block = normal(ranges[0].args[1].value)
        sides = [s for s in (bound[1].left, bound[1].right) if s is not ranges[0]]
        start = sides[0] if len(sides) == 1 else None
        if not isinstance(start, cst.BinaryOperation) or not isinstance(start.operator, cst.Multiply):
            continue
        if block in (normal(start.left), normal(start.right)) and normal(ranges[0].args[0].value) == "0":
            found.append((statement, bound[0], block))
    return found


def _align(module: Module, function: Function, editor: Editor) -> bool:
    del module
    offsets = _aligned_offsets(function)
    for statement, name, block in offsets:
        editor.insert_after(statement, f"{name} = tl.max_contiguous(tl.multiple_of({name}, {block}), {block})")
    return bool(offsets)


def _bases(call: cst.Call) -> str:
    """The pointer a load or store goes through, by name."""
    pointer = argument(call, "pointer", 0)
    names = sorted(names_read(pointer.value)) if pointer is not None else []
    return next((n for n in names if n.lower().endswith(("ptr", "ptrs", "base"))), names[0] if names else "")


def _unhinted(function: Function, name: str, keyword: str) -> list[cst.Call]:
    return [c for c in calls(function.node.body, name) if argument(c, "mask") and argument(c, keyword) is None]


def _evict(module: Module, function: Function, editor: Editor) -> bool:
    """Re-read or shared operands stay (evict_last); what is touched once goes first."""
    loads = _unhinted(function, "load", "eviction_policy")
    every = [_bases(c) for c in calls(function.node.body, "load")]
    per_program = _depends_on_program(function)
    for load in loads:
        base = _bases(load)
        kept = every.count(base) > 1 or not (names_read(load.args[0].value) & per_program)
        editor.append_argument(load, f'eviction_policy="{"evict_last" if kept else "evict_first"}"')
    stores = _unhinted(function, "store", "eviction_policy")
    for store in stores:
        editor.append_argument(store, 'eviction_policy="evict_first"')
    del module
    return bool(loads or stores)


def _cache(module: Module, function: Function, editor: Editor) -> bool:
    """Loads cached at every level, stores streamed."""
    del module
    loads = _unhinted(function, "load", "cache_modifier")
    stores = _unhinted(function, "store", "cache_modifier")
    for load in loads:
        editor.append_argument(load, 'cache_modifier=".ca"')
    for store in stores:
        editor.append_argument(store, 'cache_modifier=".cs"')
    return bool(loads or stores)


def _depends_on_program(function: Function) -> set[str]:
    """Names that follow, directly or not, from a program id."""
    found: set[str] = set()
    for node in walk(function.node.body):
        if isinstance(node, cst.SimpleStatementLine):
            bound = assignment(node)
            if bound is not None and (calls(bound[1], "program_id") or names_read(bound[1]) & found):
                found.add(bound[0])
            for small in node.body:
                if not isinstance(small, cst.AugAssign) or not isinstance(small.target, cst.Name):
                    continue
                if calls(small.value, "program_id") or names_read(small.value) & found:
                    found.add(small.target.value)
    return found
