"""Blocks of a body: the statements of the function and of each compound statement, by path."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ._lines import Line, Section, assemble, sections

Path = tuple[tuple[int, int], ...]  # (statement, section) from the outermost block inwards


def blocks(lines: Sequence[Line], path: Path = ()) -> Iterator[tuple[Path, tuple[Line, ...]]]:
    """Every block with its path, outer ones first."""
    yield path, tuple(lines)
    for index, line in enumerate(lines):
        for number, section in enumerate(sections(line)):
            yield from blocks(section.lines, (*path, (index, number)))


def replace_block(lines: Sequence[Line], path: Path, new: Sequence[Line]) -> list[Line]:
    """The body with one block replaced."""
    if not path:
        return list(new)
    (index, number), rest = path[0], path[1:]
    line = lines[index]
    parts = list(sections(line))
    inner = replace_block(parts[number].lines, rest, new)
    parts[number] = Section(parts[number].header, tuple(inner))
    changed = Line(assemble(parts).text, line.lead)
    return [*lines[:index], changed, *lines[index + 1 :]]
