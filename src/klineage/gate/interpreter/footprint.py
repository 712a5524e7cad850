"""Which 32-byte sectors accesses touch, and how many distinct ones sampled programs let us expect of a launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

SECTOR_BYTES = 32
_SHIFT = np.uint64(5)
_COMPACT_AT = 1 << 20  # sector numbers kept before duplicates are dropped


def lanes_in_order(pointers: Array, chosen: Array | None) -> Array:
    """Active addresses with the axis of smallest stride varying fastest, as a good layout would deal out lanes."""
    if pointers.ndim > 1:
        order = sorted(range(pointers.ndim), key=lambda axis: -_stride(pointers, axis))
        pointers = pointers.transpose(order)
        chosen = chosen.transpose(order) if chosen is not None else None
    return pointers.reshape(-1) if chosen is None else pointers[chosen]


def _stride(pointers: Array, axis: int) -> int:
    if pointers.shape[axis] == 1:
        return 0
    first, second = (pointers[tuple(i if a == axis else 0 for a in range(pointers.ndim))] for i in (0, 1))
    return abs(int(second) - int(first))


def sectors_of(lanes: Array) -> Array:
    """Sector numbers (address / 32) of addresses in order, runs of equal ones merged."""
    numbers = lanes >> _SHIFT
    if numbers.size < 2:
        return numbers
    keep = np.empty(numbers.size, dtype=bool)
    keep[0] = True
    np.not_equal(numbers[1:], numbers[:-1], out=keep[1:])
    return numbers[keep]


def distinct(numbers: Array) -> Array:
    """Sorted numbers without repeats (numpy's own ``unique`` hashes, which is several times slower here)."""
    ordered = np.sort(numbers)
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if ordered.size else ordered


@dataclass
class Footprint:
    """Sectors touched in each buffer (by address of the buffer), with how often the loop they stand in would repeat.

    ``scale`` 1 means that the accesses were seen in full.
    """

    parts: dict[int, list[tuple[Array, float]]] = field(default_factory=dict[int, list[tuple[Array, float]]])
    held: dict[int, int] = field(default_factory=dict[int, int])

    def add(self, buffer: int, sectors: Array, scale: float = 1.0) -> None:
        """Note sectors of one access."""
        self.parts.setdefault(buffer, []).append((sectors, scale))
        self.held[buffer] = self.held.get(buffer, 0) + sectors.size
        if self.held[buffer] > _COMPACT_AT:
            self.parts[buffer] = self._merged(self.parts[buffer])
            # as much again may come before it is worth the sort
            self.held[buffer] = 0

    @staticmethod
    def _merged(parts: list[tuple[Array, float]]) -> list[tuple[Array, float]]:
        """Parts of the same scale made one, sorted and without repeats."""
        scales = {scale for _, scale in parts}
        return [(distinct(np.concatenate([p for p, s in parts if s == scale])), scale) for scale in sorted(scales)]

    def of(self, buffer: int) -> tuple[Array, Array]:
        """Distinct sectors of a buffer and the largest scale each was seen with."""
        parts = self.parts.get(buffer, [])
        if not parts:
            return np.empty(0, np.uint64), np.empty(0, np.float64)
        self.parts[buffer] = parts = self._merged(parts)
        if len(parts) == 1:
            numbers, scale = parts[0]
            return numbers, np.full(numbers.size, scale)
        numbers = np.concatenate([p for p, _ in parts])
        scales = np.concatenate([np.full(p.size, s) for p, s in parts])
        order = np.lexsort((-scales, numbers))
        numbers, scales = numbers[order], scales[order]
        first = np.ones(numbers.size, dtype=bool)
        first[1:] = numbers[1:] != numbers[:-1]
        return numbers[first], scales[first]

    def total(self) -> float:
        """Distinct bytes over all buffers."""
        return float(sum(self.of(buffer)[0].size for buffer in self.parts)) * SECTOR_BYTES

    def bytes_of(self, buffer: int, limit: float) -> float:
        """Distinct bytes of a buffer, loops repeated, at most ``limit``."""
        return min(float(self.of(buffer)[1].sum()) * SECTOR_BYTES, limit)


@dataclass(frozen=True)
class Spread:
    """How the footprints of sampled programs lie in one buffer, in bytes."""

    shared: float  # touched by every sampled program
    private: float  # per program, touched by it and not by all
    limit: float  # bytes the launch's arguments can reach

    def expected(self, programs: int) -> float:
        """Distinct bytes of so many programs, if what is private to one is private among all; capped."""
        return min(self.shared + self.private * programs, self.limit)

    def overflows(self, programs: int) -> bool:
        """Whether so many private parts cannot fit: programs must then share what the samples do not show."""
        return self.private > 0 and self.shared + self.private * programs > 1.02 * self.limit


def spread(footprints: Sequence[Footprint], buffer: int, limit: float, exact: bool) -> Spread:
    """The spread of sampled programs' footprints; ``exact`` when they are all the programs there are."""
    each = [f.of(buffer)[0] for f in footprints]
    ordered = np.sort(np.concatenate(each))
    union = distinct(ordered).size
    if exact:
        return Spread(shared=float(union) * SECTOR_BYTES, private=0.0, limit=max(limit, union * SECTOR_BYTES))
    many = len(each)  # a sector of all footprints stands so many times in a row
    shared = int((ordered[many - 1 :] == ordered[: ordered.size - many + 1]).sum())
    private = (union - shared) / many
    return Spread(shared=shared * SECTOR_BYTES, private=private * SECTOR_BYTES, limit=limit)
