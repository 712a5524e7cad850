"""What the walk and the optimisation ask of a proposer, and what they get back. The gate decides in every case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from ..model import Kernel, Refusal, Site, Skill, Spent, Step, Target, TaskInfo, Verdict
from ..model.optimize import Try
from ..moves import Proposal, Unsupported


@dataclass(frozen=True)
class Unusable:
    """An answer that gives no kernel to judge: a refusal, a cut text, an edit that does not apply, ...

    ``outcome`` is its name in ``klineage.llm.outcome``. Costs no gate run.
    """

    outcome: str
    reason: str


class Candidate(NamedTuple):
    """A skill at a site with one set of parameter values."""

    skill: Skill
    proposal: Proposal
    expected: float  # speedup
    unknown: tuple[str, ...] = ()  # preconditions that could not be told


class Rejected(NamedTuple):
    """A skill that does not apply, and why. ``missing`` are the statements of the preconditions that do not hold."""

    skill: Skill
    site: str
    reason: str
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Backward:
    """Asked for simplifications of ``kernel``. ``refusals`` and ``failed`` grow while the answer is consumed."""

    info: TaskInfo
    target: Target
    kernel: Kernel
    verdict: Verdict
    steps: Sequence[Step] = ()
    refusals: Sequence[Refusal] = ()
    failed: frozenset[tuple[str, str]] = frozenset()  # (move, function) that the gate turned down before


@dataclass(frozen=True)
class Invert:
    """Asked to put an optimisation back into ``simpler``, whose optimised side nobody shows. Only its time is known."""

    info: TaskInfo
    target: Target
    move: str
    intent: str
    function: str
    simpler: Kernel
    simpler_us: float
    optimised_us: float
    failures: Sequence[str] = ()  # what the gate said to earlier answers; grows


@dataclass(frozen=True)
class Forward:
    """Asked for the next improvement of ``kernel``.

    ``candidates`` are skills located in this kernel whose edit was not judged yet, the one to try first in front.
    """

    info: TaskInfo
    target: Target
    kernel: Kernel
    verdict: Verdict
    candidates: Sequence[Candidate]
    rejected: Sequence[Rejected]
    free: Sequence[tuple[Skill, Site]] = ()  # skills whose materialiser is the proposer, and where they are anchored
    tries: Sequence[Try] = ()
    gates_left: int = 0


@dataclass(frozen=True)
class Improvement:
    """A kernel to judge next, and the skill or intent behind it."""

    skill: str  # a skill's name, or "free:..." for an intent that no skill states
    proposal: Proposal
    expected: float | None = None
    unknown: tuple[str, ...] = ()
    candidate: Candidate | None = None  # set when the edit is the skill's own


@dataclass
class Stop:
    """Why a proposer stops, for the report; ``budget`` when it could go on but may not spend more."""

    reason: str = ""
    budget: bool = False
    spent: list[Spent] = field(default_factory=list)


class Proposer(Protocol):
    """Proposes kernels and never judges them. Iterators are lazy: each item may cost an exchange with a model."""

    name: str  # "moves", or "llm:provider:model"

    def simplifications(self, ask: Backward) -> Iterator[Proposal | Unsupported | Unusable]:
        """Simplifications of a kernel, the one to judge first in front."""
        ...

    def inverses(self, ask: Invert) -> Iterator[Proposal | Unsupported | Unusable]:
        """Ways to put an optimisation back, likeliest first."""
        ...

    def improvement(self, ask: Forward) -> Improvement | Unusable | None:
        """The next kernel to judge, an answer that gives none, or None when there is nothing more."""
        ...

    def stop(self) -> Stop:
        """Why it stopped proposing, and what it spent since the last call of this method."""
        ...

    def close(self) -> None:
        """Release what it holds (connections); it is not asked again."""
        ...
