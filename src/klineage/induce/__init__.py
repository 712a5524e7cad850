"""From steps to skills: invert, merge like ones, and earn their conditions by probing."""

from .merge import Source, group, induce_skill
from .probe import ProbePlan, Prober
from .run import induce

__all__ = ["ProbePlan", "Prober", "Source", "group", "induce", "induce_skill"]
