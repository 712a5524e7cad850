"""The vocabulary of optimisations: one move per file, each with ``simplify`` and ``materialize``."""

from ._features import FEATURES, family, features, kernel_of, report_of
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
    "FEATURES",
    "PREDICATES",
    "Condition",
    "Context",
    "Direction",
    "Hints",
    "Move",
    "Predicate",
    "Proposal",
    "Unsupported",
    "all_moves",
    "family",
    "features",
    "holds",
    "kernel_of",
    "measure",
    "move",
    "report_of",
]  # fmt: skip
