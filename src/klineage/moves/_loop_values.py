"""Loop bodies as versioned steps: what a round takes over from the last one, and what it hands on."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ._lanes import has_effect
from ._lines import Line, Section, assemble, names_loaded, sections
from ._values import Step, base_name, drop_dead, merge_equal, pinned_names, pretty, steps_of, version

_OUT = "_out"


@dataclass(frozen=True)
class Body:
    """A loop body in versions. The entry value of a name is the plain name; ``last`` maps it to its final version."""

    header: str
    steps: tuple[Step, ...]
    last: dict[str, str]

    @property
    def values(self) -> dict[str, ast.expr]:
        """Value expression of each version."""
        return {
            s.line.target: s.line.value for s in self.steps if s.line.target is not None and s.line.value is not None
        }

    @property
    def carried(self) -> set[str]:
        """Names whose entry value is read and that are set anew."""
        read = {n for s in self.steps for n in s.line.reads}
        return {n for n in self.last if n in read}


def loop_body(line: Line) -> Body | None:
    """The versions of a ``for`` loop's straight-line body; None when it branches, leaves early or has no such body."""
    if not isinstance(line.tree, ast.For):
        return None
    section = sections(line)[0]
    if len(sections(line)) != 1 or any(x.compound for x in section.lines):
        return None
    if any(isinstance(n, ast.Break | ast.Continue | ast.Return) for n in ast.walk(line.tree)):
        return None
    steps = version(steps_of(section.lines), set())
    last: dict[str, str] = {}
    for step in steps:
        for name in step.line.writes:
            last[base_name(name)] = name
    return Body(section.header, tuple(steps), last)


def original(name: str, body: Body) -> str:
    """A version followed through plain copies."""
    values = body.values
    value = values.get(name)
    while isinstance(value, ast.Name):
        name = value.id
        value = values.get(name)
    return name


def closure(body: Body, seeds: Iterable[str]) -> set[str]:
    """Versions and entry values that the seeds need, with the updates of the carried names among them."""
    defined = {n: s.line for s in body.steps for n in s.line.writes}
    wanted: set[str] = set()
    stack = list(seeds)
    while stack:
        name = stack.pop()
        if name in wanted:
            continue
        wanted.add(name)
        if name in defined:
            stack += defined[name].reads
        elif name in body.carried:
            stack.append(body.last[name])
    return wanted


def without_repeats(steps: Sequence[Step], outs: dict[str, str]) -> tuple[list[Step], dict[str, str]]:
    """Steps without copies and repeated values; ``outs`` (name -> version at the end of a round) follows."""
    sentinel = Step(Line(f"{_OUT}({', '.join(outs.values())})"))
    merged = merge_equal([*steps, sentinel], set())
    held = merged[-1].line.value
    names = [ast.unparse(a) for a in held.args] if isinstance(held, ast.Call) else []
    return merged[:-1], dict(zip(outs, names, strict=True))


def rebuild(header: str, steps: Sequence[Step], outs: dict[str, str]) -> Line:
    """A loop from steps. ``outs``: plain name -> the version it must hold at the end of a round."""
    kept = [n for n in outs if outs[n] != n]
    sentinel = Step(Line(f"{_OUT}({', '.join(outs[n] for n in kept)})"))
    steps = drop_dead([*steps, sentinel], set(outs))
    lines = pretty(steps, pinned_names([s.line for s in steps]))
    last, lines = lines[-1], lines[:-1]
    names = [a.id for a in last.value.args if isinstance(a, ast.Name)] if isinstance(last.value, ast.Call) else []
    for name, held in zip(kept, names, strict=True):
        if held != name:
            lines.append(Line(f"{name} = {held}"))
    return assemble([Section(header, tuple(lines))])


def pure_body(body: Body) -> bool:
    """Nothing in the body stores or has another effect."""
    return not any(has_effect(s.line) for s in body.steps)


def reads_of(node: ast.AST, names: set[str]) -> bool:
    """True when the expression reads one of the names."""
    return bool(names_loaded(node) & names)
