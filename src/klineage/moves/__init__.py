"""The vocabulary of optimisations: one move per file, each with ``simplify`` and ``materialize``."""

from .base import (
    PREDICATES,
    Condition,
    Context,
    Direction,
    Hints,
    Move,
    Predicate,
    Proposal,
    Unsupported,
    holds,
)
from .registry import all_moves, measure, move

__all__ = [
    "PREDICATES", "Condition", "Context", "Direction", "Hints", "Move", "Predicate", "Proposal", "Unsupported",
    "all_moves", "holds", "measure", "move",
]  # fmt: skip
