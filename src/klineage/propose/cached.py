"""Simplifications and inverses as proposed by the moves, cached by (move, text)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from ..errors import KernelError
from ..moves import Move, Proposal, Unsupported, all_moves, move
from ..surface import Module
from ..surface.query import normal

NORMALISED_LIMIT = 4096
FREE = "free:"  # prefix of the names of free moves


@lru_cache(maxsize=NORMALISED_LIMIT)
def normalised(source: str) -> str:
    """Text with formatting and comments removed."""
    return normal(source)


def is_free(move_name: str) -> bool:
    """True for an intent outside the vocabulary (see ``klineage.propose.free``): it has no code of its own."""
    return move_name.startswith(FREE)


@lru_cache(maxsize=NORMALISED_LIMIT)
def simplifications(move_name: str, source: str) -> tuple[Proposal | Unsupported, ...]:
    """All a move proposes to simplify in a module; edits that do not parse count as unsupported."""
    if is_free(move_name):
        return ()
    return _collect(move(move_name), lambda m: m.simplify(Module.parse(source)), "simplify")


@lru_cache(maxsize=NORMALISED_LIMIT)
def materialisations(move_name: str, source: str) -> tuple[Proposal | Unsupported, ...]:
    """All a move proposes to put in, from this text alone."""
    if is_free(move_name):
        return ()
    return _collect(move(move_name), lambda m: m.materialize(Module.parse(source)), "materialize")


def _collect(m: Move, call, direction) -> tuple[Proposal | Unsupported, ...]:
    found: list[Proposal | Unsupported] = []
    iterator: Iterator[Proposal | Unsupported] = call(m)
    while True:
        try:
            found.append(next(iterator))
        except StopIteration:
            return tuple(found)
        except KernelError as error:
            found.append(Unsupported(m.name, direction, None, f"the edit was not applied: {error.message}"))
            return tuple(found)
        except Exception as error:  # kernels come from anywhere: one that a move cannot read must not end a run
            what = f"{type(error).__name__}: {error}"
            found.append(Unsupported(m.name, direction, None, f"the move cannot read this kernel ({what})"))
            return tuple(found)


@lru_cache(maxsize=NORMALISED_LIMIT)
def amounts(source: str) -> tuple[int, ...]:
    """The surface's measure (see ``klineage.moves.measure``), structural moves first."""
    return tuple(amount(m.name, source) for m in all_moves())


def amount(move_name: str, source: str) -> int:
    """One figure of ``amounts``: how often a move can simplify a module."""
    return sum(1 for p in simplifications(move_name, source) if isinstance(p, Proposal))


def compare(first: str, second: str) -> int:
    """-1, 0 or 1 as the amounts of the first text are below, like or above the second's; looks no further than the
    first figure that differs."""
    for m in all_moves():
        a, b = amount(m.name, first), amount(m.name, second)
        if a != b:
            return -1 if a < b else 1
    return 0


def walk_order() -> Sequence[Move]:
    """Launch options first, structure last: taking a schedule apart from the outside in keeps each kernel cheap
    to compile and each effect readable."""
    return sorted(all_moves(), key=lambda m: (-m.rank, m.name))
