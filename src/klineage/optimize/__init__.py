"""Forward: skills matched to sites, ordered by expected effect, gated one try at a time."""

from .forward import Optimizer, optimize
from .match import Situation, match, match_free
from .verify import verified

__all__ = ["Optimizer", "Situation", "match", "match_free", "optimize", "verified"]
