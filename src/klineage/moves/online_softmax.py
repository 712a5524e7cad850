"""The move ``online_softmax``."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from ..model import SiteKind
from ..surface import Editor, Function, Module, make_site
from ._blocks import blocks, replace_block
from ._lanes import has_effect
from ._lines import Line, body_lines, rename, replace_body, walk_lines
from ._online import NotOnlineError, every_online, online, split
from ._online_join import join_passes
from .base import Condition, Context, Hints, Move, Proposal, Unsupported, predicate


@predicate
def sums_scale_with_the_maximum(context: Context, _args: Mapping[str, str]) -> bool | None:
    """The kernel has a maximum pass and sums against it that one factor rescales, or has them joined already."""
    functions = context.module.jit_functions
    if context.site is None or context.site.function not in functions:
        return None
    lines = body_lines(context.module, functions[context.site.function])
    joined = any(online(x) is not None for x in walk_lines(lines))
    return joined or any(True for _, block in blocks(lines) for _ in _pairs(lines, block, None, checked=True))


class OnlineSoftmax(Move):
    """Softmax statistics in one pass, with a running maximum.

    A numerically safe softmax first finds the row's maximum and then sums exp(x - max): two passes over the row. The
    online form (Milakov and Gimelshein, arXiv 1805.02867, algorithm 3) keeps a running maximum and rescales what was
    summed so far whenever the maximum grows: one pass. It pays where the row does not fit on chip, and in attention,
    where a second pass would compute the scores again.

    ```python
    m = float("-inf")
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + start + offs, mask=start + offs < n, other=float("-inf"))
        m = tl.maximum(m, tl.max(x))
    d = 0.0
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + start + offs, mask=start + offs < n, other=float("-inf"))
        d += tl.sum(tl.exp(x - m))
    -->
    m = float("-inf")
    d = 0.0
    for start in range(0, n, BLOCK):
        x = tl.load(x_ptr + start + offs, mask=start + offs < n, other=float("-inf"))
        m_new = tl.maximum(m, tl.max(x))
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new))
        m = m_new
    ```

    Must hold:
    - both loops run over the same range and have no effect on memory;
    - every sum of the second loop is proportional to exp(x - max), so that one factor rescales it;
    - the first tile holds a value above minus infinity (else the factor is NaN).

    Refused:
    - loops in which something else depends on the final maximum.
    """

    rank = 40
    anchors = (SiteKind.LOOP, SiteKind.REDUCTION)
    carriers = ("passes",)
    conditions = (
        Condition(
            "sums_scale_with_the_maximum", "every sum that depends on the maximum is proportional to exp(x - maximum)"
        ),
    )

    def amount(self, module: Module) -> int:
        """Running maxima that a loop rescales sums with (a loop may have several)."""
        every = (x for k in module.jit_functions.values() for x in walk_lines(body_lines(module, k)))
        return sum(len(every_online(x)) for x in every)

    def simplify(self, module: Module) -> Iterator[Proposal | Unsupported]:
        """One proposal per online loop: a loop for the maximum and one for the rest."""
        for kernel in module.jit_functions.values():
            lines = body_lines(module, kernel)
            taken = _names(kernel, lines)
            site = make_site(module, SiteKind.KERNEL, kernel.node)
            for path, block in blocks(lines):
                for index, loop in enumerate(block):
                    found = online(loop)
                    if found is None:
                        continue
                    try:
                        apart = split(found, set(taken))
                    except NotOnlineError as reason:
                        yield Unsupported(self.name, "simplify", site, str(reason))
                        continue
                    apart[0] = Line(apart[0].text, loop.lead)
                    new = [*block[:index], *apart, *block[index + 1 :]]
                    source = _put(module, kernel, replace_block(lines, path, new))
                    note = f"{kernel.name}: the maximum in a pass of its own"
                    yield Proposal(self.name, "simplify", site, source, {"passes": "1"}, note)

    def materialize(
        self, module: Module, hints: Hints | None = None, *, checked: bool = True
    ) -> Iterator[Proposal | Unsupported]:
        """One proposal per pair of a maximum pass and the pass that sums against it."""
        for kernel in module.jit_functions.values():
            lines = body_lines(module, kernel)
            site = make_site(module, SiteKind.KERNEL, kernel.node)
            for path, block in blocks(lines):
                for new in _pairs(lines, block, kernel, checked=checked):
                    source = _put(module, kernel, replace_block(lines, path, new))
                    yield Proposal(self.name, "materialize", site, source, {"passes": "1"}, f"{kernel.name}: one pass")


def _names(kernel: Function, lines: Sequence[Line]) -> set[str]:
    return {n for line in walk_lines(lines) for n in (*line.reads, *line.writes)} | set(kernel.params)


def _put(module: Module, kernel: Function, lines: Sequence[Line]) -> str:
    editor = Editor(module)
    replace_body(editor, kernel, lines)
    return editor.apply()


def _pairs(
    lines: Sequence[Line], block: Sequence[Line], kernel: Function | None, *, checked: bool
) -> Iterator[list[Line]]:
    """The block with a maximum pass and the next loop joined, for each pair that can be."""
    for index, first in enumerate(block):
        second = next((i for i in range(index + 1, len(block)) if block[i].compound), None)
        if second is None or not first.compound:
            continue
        before, between, late = block[:index], block[index + 1 : second], block[second + 1 :]
        copies = _own_copies(before, first, [*between, block[second], *late])
        passed = Line(rename(first, copies).text)
        pair = (first.text, block[second].text)
        taken = {n for x in walk_lines(lines) if x.text not in pair for n in (*x.reads, *x.writes) if not x.compound}
        taken |= set(kernel.params) if kernel is not None else set()
        joined = join_passes(passed, block[second], taken, together=copies.values(), checked=checked)
        moved = _after(between, first.writes)
        if joined is None or any(has_effect(x) for x in between):
            continue
        if {n for x in moved for n in x.writes} & block[second].reads:
            continue
        start = [x for x in before if x.target not in copies]
        kept = [x for x in between if x not in moved]
        yield [*start, *kept, Line(joined.text, first.lead), *moved, *late]


def _own_copies(before: Sequence[Line], loop: Line, rest: Sequence[Line]) -> dict[str, str]:
    """Names that the first loop advances for itself, each a copy of a name made just before: copy -> original."""
    found: dict[str, str] = {}
    for line in before:
        value = line.value
        target = line.target
        if isinstance(value, ast.Name) and target is not None and target in loop.writes:
            found[target] = value.id
    return {n: o for n, o in found.items() if not any(n in x.reads for x in rest) and o not in loop.writes}


def _after(lines: Sequence[Line], names: frozenset[str]) -> list[Line]:
    """The lines that need what the first loop computes."""
    needed = set(names)
    late: list[Line] = []
    for line in lines:
        if line.reads & needed:
            late.append(line)
            needed |= line.writes
    return late
