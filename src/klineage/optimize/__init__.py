"""Forward: skills matched to sites, ordered by expected effect, gated one try at a time."""

from .forward import Optimizer, optimize
from .match import Candidate, Rejected, match

__all__ = ["Candidate", "Optimizer", "Rejected", "match", "optimize"]
