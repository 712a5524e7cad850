"""All moves, found by file: ``moves/<name>.py`` defines the class of that name."""

from __future__ import annotations

import importlib
import pkgutil
from functools import lru_cache

from ..errors import KLineageError
from ..surface import Module
from .base import Move

_NOT_MOVES = {"base", "registry", "predicates"}


@lru_cache(maxsize=1)
def all_moves() -> tuple[Move, ...]:
    """Every move, structural ones first (by rank, then name)."""
    package = importlib.import_module("klineage.moves")
    found: list[Move] = []
    for info in pkgutil.iter_modules(package.__path__):
        if info.name in _NOT_MOVES or info.name.startswith("_"):
            continue
        module = importlib.import_module(f"klineage.moves.{info.name}")
        name = "".join(part.capitalize() for part in info.name.split("_"))
        candidates = [v for k, v in vars(module).items() if k.lower() == name.lower() and isinstance(v, type)]
        found += [c() for c in candidates if issubclass(c, Move)]
    return tuple(sorted(found, key=lambda m: (m.rank, m.name)))


def move(name: str) -> Move:
    """The move of a name.

    Raises KLineageError when there is none.
    """
    for candidate in all_moves():
        if candidate.name == name:
            return candidate
    raise KLineageError(f"unknown move {name!r}", f"choose one of {', '.join(m.name for m in all_moves())}")


def measure(module: Module) -> tuple[int, ...]:
    """The surface's measure: how much of each optimisation is left, structural moves first.

    A simplification must make it smaller lexicographically, so every walk ends.
    """
    return tuple(m.amount(module) for m in all_moves())
