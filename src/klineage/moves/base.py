"""The move protocol: one optimisation, both ways, with the conditions under which it is sound.

A move reads a parsed module and *proposes* whole new module texts. It never judges: the gate does.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from ..model import Case, LaunchReport, Precondition, Site, SiteKind, Target
from ..surface import Module

Direction = Literal["simplify", "materialize"]
Hints = Mapping[str, Sequence[str]]  # carrier -> values that worked elsewhere, best first


@dataclass(frozen=True)
class Proposal:
    """A new module text. ``params`` are the carriers' values *of the optimised side*."""

    move: str
    direction: Direction
    site: Site
    source: str
    params: Mapping[str, str] = field(default_factory=dict[str, str])
    note: str = ""


@dataclass(frozen=True)
class Unsupported:
    """A site the move recognises but cannot rewrite, with the reason. Never half-edited."""

    move: str
    direction: Direction
    site: Site | None
    reason: str


@dataclass(frozen=True)
class Context:
    """What a predicate may look at.

    ``module`` is the text before the move, ``result`` the text it would give ("" when there is none yet), ``reports``
    the compiled launches of ``case`` before it (may be empty).
    """

    module: Module
    site: Site | None
    params: Mapping[str, str]
    target: Target
    case: Case | None = None
    reports: tuple[LaunchReport, ...] = ()
    result: str = ""


Predicate = Callable[[Context, Mapping[str, str]], bool | None]  # None: cannot tell here


@dataclass(frozen=True)
class Condition:
    """A soundness condition a move declares: a registered predicate with arguments, and its words."""

    predicate: str
    statement: str
    args: Mapping[str, str] = field(default_factory=dict[str, str])

    def as_precondition(self) -> Precondition:
        """The model value, assumed until evidence earns more."""
        return Precondition(predicate=self.predicate, args=dict(self.args), statement=self.statement)


PREDICATES: dict[str, Predicate] = {}


def predicate(function: Predicate) -> Predicate:
    """Register a predicate under its function name."""
    PREDICATES[function.__name__] = function  # type: ignore[attr-defined]
    return function


def holds(condition: Condition | Precondition, context: Context) -> bool | None:
    """Evaluate a condition; None when it cannot be told from this context."""
    check = PREDICATES.get(condition.predicate)
    return None if check is None else check(context, condition.args)


class Move(ABC):
    """One optimisation of the vocabulary.

    The subclass's docstring is its documentation: first line = title; it shows ``before --> after`` code (before =
    simpler, after = optimised) and says what must hold. File name = class name in snake case = CLI name.
    """

    rank: ClassVar[int] = 50  # structural moves first: 0 (whole-schedule) .. 99 (launch options)
    anchors: ClassVar[tuple[SiteKind, ...]]
    carriers: ClassVar[tuple[str, ...]]  # the constructs and parameters that hold the optimisation
    conditions: ClassVar[tuple[Condition, ...]] = ()

    @property
    def name(self) -> str:
        """Snake-case class name."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(self).__name__).lower()

    @property
    def title(self) -> str:
        """First line of the docstring."""
        return (type(self).__doc__ or "").strip().splitlines()[0].rstrip(".")

    @abstractmethod
    def simplify(self, module: Module) -> Iterator[Proposal | Unsupported]:
        """Every way to take this optimisation out at one site, best first."""

    @abstractmethod
    def materialize(
        self, module: Module, hints: Hints | None = None, *, checked: bool = True
    ) -> Iterator[Proposal | Unsupported]:
        """Every way to put it in at one site, likeliest first, from this module alone.

        ``hints`` brings values that worked elsewhere (a skill's carriers); ``checked=False`` skips the soundness
        conditions that the move can test itself: used to find a counter-example for them, never to optimise.
        """

    def amount(self, module: Module) -> int:
        """How much of this optimisation is left: sites it could still simplify. 0 means none."""
        return sum(1 for p in self.simplify(module) if isinstance(p, Proposal))


def ordered(defaults: Sequence[str], hints: Hints | None, carrier: str) -> list[str]:
    """Candidate values: the hinted ones first, then the move's own, without repeats."""
    given = list(hints.get(carrier, ())) if hints else []
    return list(dict.fromkeys([*given, *defaults]))
