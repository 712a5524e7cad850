"""The deterministic proposer: the vocabulary's own moves. Needs no key; the default."""

from __future__ import annotations

from collections.abc import Iterator

from ..moves import Proposal, Unsupported
from .cached import materialisations, simplifications, walk_order
from .protocol import Backward, Forward, Improvement, Invert, Stop


class MovesProposer:
    """Implements Proposer with ``Move.simplify``, ``Move.materialize`` and the skills' candidates."""

    name = "moves"

    def simplifications(self, ask: Backward) -> Iterator[Proposal | Unsupported]:
        """Every move's simplifications in walking order; those that failed before come last."""
        retried: list[Proposal] = []
        for move in walk_order():
            for found in simplifications(move.name, ask.kernel.source):
                if isinstance(found, Proposal) and (found.move, found.site.function) in ask.failed:
                    retried.append(found)
                else:
                    yield found
        yield from retried

    def inverses(self, ask: Invert) -> Iterator[Proposal | Unsupported]:
        """The move's materialisations in its own order, those at the same function first."""
        found = materialisations(ask.move, ask.simpler.source)
        proposals = [p for p in found if isinstance(p, Proposal)]
        yield from sorted(proposals, key=lambda p: p.site.function != ask.function)
        yield from (p for p in found if isinstance(p, Unsupported))

    def improvement(self, ask: Forward) -> Improvement | None:
        """The first candidate."""
        if not ask.candidates:
            return None
        first = ask.candidates[0]
        return Improvement(first.skill.name, first.proposal, first.expected, first.unknown, first)

    def stop(self) -> Stop:
        """It stops when no move applies, and spends nothing."""
        return Stop()

    def close(self) -> None:
        """It holds nothing."""
