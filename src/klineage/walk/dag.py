"""Which steps of a lineage depend on which, found by commutation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import networkx as nx

from ..model import Step
from ..moves import Proposal
from ..propose.cached import normalised, simplifications


def apply_step(step: Step, source: str) -> list[str]:
    """Every text that the step's simplification, found again by move and function, makes of ``source``."""
    return [
        p.source
        for p in simplifications(step.move, source)
        if isinstance(p, Proposal) and p.site.function == step.site.function
    ]


def commutes(first: Step, second: Step, source: str) -> bool:
    """True when both orders of two simplifications of ``source`` give the same normalised text."""
    first_then_second = {normalised(b) for a in apply_step(first, source) for b in apply_step(second, a)}
    second_then_first = {normalised(b) for a in apply_step(second, source) for b in apply_step(first, a)}
    return bool(first_then_second & second_then_first)


def commutation_edges(steps: Sequence[Step], sources: Mapping[str, str]) -> tuple[tuple[int, int], ...]:
    """Edges (i, j): step j needs step i first. Transitively reduced.

    ``sources`` maps kernel ids to texts. Steps that commute in the kernel before the earlier one are independent.
    """
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(steps)))
    for i, earlier in enumerate(steps):
        source = sources[earlier.optimised]
        for j in range(i + 1, len(steps)):
            if not commutes(earlier, steps[j], source):
                graph.add_edge(i, j)
    reduced = nx.transitive_reduction(graph)
    return tuple(sorted((int(a), int(b)) for a, b in reduced.edges))
