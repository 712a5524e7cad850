"""The move ``mask_elimination``."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from ..model import SiteKind
from ..surface import Editor, Function, Module, make_site
from ._blocks import blocks, replace_block
from ._even_flags import drop_flag, pass_flag, rows_even
from ._lines import Line, Section, assemble, body_lines, replace_body, sections, walk_lines
from ._masks import Dimension, Kernel, bare, dimensions, kernel_facts, mask_weight, without
from .base import Condition, Context, Hints, Move, Proposal, Unsupported, predicate


@predicate
def lengths_are_multiples_of_blocks(context: Context, _args: Mapping[str, str]) -> bool | None:
    """Masks are left out only behind a constexpr flag that the launcher computes from the lengths themselves."""
    flags = [f for f in context.params.get("flags", "").split(",") if f]
    if not flags:
        return False if context.params.get("dimensions") else None  # masks left out behind nothing
    text = context.result or context.module.source
    return all(f"{f}=" in text or f'"{f}"' in text for f in flags)


class MaskElimination(Move):
    """No masks where the length is a multiple of the tile.

    A mask costs address comparisons and predicates on every access and keeps loads from being wide or asynchronous.
    When the launcher knows that the length is a multiple of the tile, a constexpr flag selects code without masks, and
    the masked code stays for the other lengths.

    ```python
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    -->
    if EVEN_N:                                  # launcher: EVEN_N=n % BLOCK == 0
        x = tl.load(x_ptr + offs)
    else:
        x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    ```

    Must hold:
    - the flag is true only when the length is a multiple of the tile;
    - the tile starts at a multiple of its size: a block index or a loop counter times the tile, plus a range over it.

    Refused:
    - bounds whose index is shifted (halos), or whose tile is not a constexpr;
    - to simplify: branches that differ in more than masks.
    """

    rank = 60
    anchors = (SiteKind.LOAD, SiteKind.STORE, SiteKind.CONSTEXPR)
    carriers = ("flags", "dimensions")
    conditions = (
        Condition(
            "lengths_are_multiples_of_blocks",
            "accesses without masks run only when the length is a multiple of the tile",
        ),
    )

    def simplify(self, module: Module) -> Iterator[Proposal | Unsupported]:
        """Always masked: one proposal per kernel that has flags."""
        for kernel in module.kernels.values():
            lines = list(body_lines(module, kernel))
            masked, flags = _always_masked(lines, kernel_facts(lines, kernel.constexprs))
            if not flags:
                continue
            editor = Editor(module)
            left = {n for x in walk_lines(masked) for n in x.reads}
            for flag in sorted(flags - left):
                drop_flag(editor, kernel, flag)
            replace_body(editor, kernel, masked)
            site = make_site(module, SiteKind.KERNEL, kernel.node)
            params = {"flags": ",".join(sorted(flags))}
            yield Proposal(self.name, "simplify", site, editor.apply(), params, f"{kernel.name}: always masked")

    def materialize(
        self, module: Module, hints: Hints | None = None, *, checked: bool = True
    ) -> Iterator[Proposal | Unsupported]:
        """One proposal per dimension, those of loops first, then all dimensions at once."""
        for kernel in module.kernels.values():
            lines = body_lines(module, kernel)
            facts = kernel_facts(lines, kernel.constexprs)
            found = _found(lines, facts)
            choices = [[d] for d in found[:4]] + ([found] if len(found) > 1 else [])
            for chosen in choices:
                yield from self._materialize(module, kernel, chosen, facts, checked)

    def _materialize(
        self, module: Module, kernel: Function, chosen: list[Dimension], facts: Kernel, checked: bool
    ) -> Iterator[Proposal | Unsupported]:
        where = make_site(module, SiteKind.KERNEL, kernel.node)
        lines = body_lines(module, kernel)
        editor = Editor(module)
        flags = _names(chosen, kernel)
        if checked:
            reason = next((r for d in chosen if (r := pass_flag(editor, kernel, flags[d], d)) is not None), None)
            if reason is not None:
                yield Unsupported(self.name, "materialize", where, reason)
                return
        test = " and ".join(flags[d] for d in chosen) if checked else ""
        replace_body(editor, kernel, _unmasked(lines, chosen, facts, test))
        params = {
            "flags": ",".join(flags[d] for d in chosen) if checked else "",
            "dimensions": ",".join(d.length for d in chosen),
        }
        note = f"{kernel.name}: no masks where {' and '.join(rows_even(d) for d in chosen)}"
        yield Proposal(self.name, "materialize", where, editor.apply(), params, note)


def _names(chosen: Sequence[Dimension], kernel: Function) -> dict[Dimension, str]:
    taken = set(kernel.params)
    named: dict[Dimension, str] = {}
    for dimension in chosen:
        name = dimension.flag
        while name in taken:
            name += "_"
        taken.add(name)
        named[dimension] = name
    return named


def _found(lines: Sequence[Line], facts: Kernel) -> list[Dimension]:
    """Dimensions that masks bound outside flagged branches: those in loops first, then by how often."""
    count: dict[Dimension, tuple[int, int]] = {}
    for path, block in blocks(lines):
        if _flagged(lines, path, facts.constexprs):
            continue
        for line in block:
            for known in dimensions(line, facts) if not line.compound else ():
                deep, often = count.get(known, (0, 0))
                count[known] = (max(deep, len(path)), often + 1)
    return sorted(count, key=lambda d: (-count[d][0], -count[d][1], d.length))


def _flagged(lines: Sequence[Line], path: tuple[tuple[int, int], ...], constexprs: frozenset[str]) -> bool:
    """The block stands in a branch on a constexpr flag."""
    current = list(lines)
    for index, number in path:
        line = current[index]
        if isinstance(line.tree, ast.If) and _flags(line.tree.test, constexprs):
            return True
        current = list(sections(line)[number].lines)
    return False


def _unmasked(lines: Sequence[Line], chosen: Sequence[Dimension], facts: Kernel, test: str) -> list[Line]:
    """Accesses of the dimensions in two versions behind ``test``; without a test only the version without masks."""
    done = list(lines)
    for path, block in reversed(list(blocks(lines))):
        if _flagged(lines, path, facts.constexprs):
            continue
        current = _block_at(done, path)
        if any(without(x, chosen, facts) is not x for x in block if not x.compound):
            done = replace_block(done, path, _branches(current, chosen, facts, test))
    return done


def _block_at(lines: Sequence[Line], path: tuple[tuple[int, int], ...]) -> list[Line]:
    current = list(lines)
    for index, number in path:
        current = list(sections(current[index])[number].lines)
    return current


def _branches(block: Sequence[Line], chosen: Sequence[Dimension], facts: Kernel, test: str) -> list[Line]:
    done: list[Line] = []
    group: list[tuple[Line, Line]] = []

    def close() -> None:
        if group and test:
            lead = group[0][0].lead
            even = Section(f"if {test}:", tuple(e.bare() for _, e in group))
            odd = Section("else:", (group[0][0].bare(), *(o for o, _ in group[1:])))
            done.append(Line(assemble([even, odd]).text, lead))
        done.extend(e for _, e in group if not test)
        group.clear()

    for line in block:
        even = line if line.compound else without(line, chosen, facts)
        if even is line:
            close()
            done.append(line)
        else:
            group.append((line, even))
    close()
    return done


def _flags(test: ast.expr, constexprs: frozenset[str]) -> set[str]:
    """Constexpr names that a test is made of, with and/or/not; empty when it is made of anything else."""
    names: set[str] = set()
    for node in ast.walk(test):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif not isinstance(
            node, ast.BoolOp | ast.And | ast.Or | ast.UnaryOp | ast.Not | ast.BitAnd | ast.BinOp | ast.Load
        ):
            return set()
    return names if names <= constexprs else set()


def _always_masked(lines: Sequence[Line], facts: Kernel) -> tuple[list[Line], set[str]]:
    """The statements with every flagged pair of branches replaced by the masked one, and the flags met."""
    done: list[Line] = []
    met: set[str] = set()
    for line in lines:
        parts = sections(line)
        if not parts:
            done.append(line)
            continue
        inner: list[Section] = []
        for part in parts:
            body, flags = _always_masked(part.lines, facts)
            met |= flags
            inner.append(Section(part.header, tuple(body)))
        changed = any(a.lines != b.lines for a, b in zip(parts, inner, strict=True))
        names = _flags(line.tree.test, facts.constexprs) if isinstance(line.tree, ast.If) else set[str]()
        if names and len(inner) == 2 and _differ_in_masks(inner[0].lines, inner[1].lines, facts):
            heavy = max(inner, key=lambda s: sum(mask_weight(x, facts) for x in s.lines))
            done += [Line(heavy.lines[0].text, line.lead), *heavy.lines[1:]]
            met |= names
        else:
            done.append(Line(assemble(inner).text, line.lead) if changed else line)
    return done, met


def _differ_in_masks(left: Sequence[Line], right: Sequence[Line], facts: Kernel) -> bool:
    if len(left) != len(right) or any(x.compound for x in (*left, *right)):
        return False
    if [mask_weight(x, facts) for x in left] == [mask_weight(x, facts) for x in right]:
        return False
    return all(bare(a) == bare(b) for a, b in zip(left, right, strict=True))
