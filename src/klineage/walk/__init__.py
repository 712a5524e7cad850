"""The backward walk: from an expert kernel to its naive end through validated simplifications."""

from .backward import WalkBudget, Walker, walk
from .dag import commutation_edges

__all__ = ["WalkBudget", "Walker", "commutation_edges", "walk"]
