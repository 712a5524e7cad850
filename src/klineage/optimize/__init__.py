"""Forward: skills matched to sites, ordered by expected effect, gated one try at a time."""

from .ablation import Ablation, ablated
from .forward import Optimizer, optimize
from .match import Situation, match, match_free
from .verify import verified

__all__ = ["Ablation", "Optimizer", "Situation", "ablated", "match", "match_free", "optimize", "verified"]
