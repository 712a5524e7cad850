"""Who proposes: the vocabulary's moves, or a model. One protocol, one gate behind it."""

from .protocol import Backward, Candidate, Forward, Improvement, Invert, Proposer, Rejected, Unusable
from .vocabulary import MovesProposer

__all__ = [
    "Backward",
    "Candidate",
    "Forward",
    "Improvement",
    "Invert",
    "MovesProposer",
    "Proposer",
    "Rejected",
    "Unusable",
]
