"""Which programs of a grid stand for all of them. No chance is involved: the same grid gives the same sample."""

from __future__ import annotations

import math

_GOLDEN = 0.6180339887498949
Grid = tuple[int, int, int]


def sample_programs(grid: Grid, count: int) -> list[int]:
    """Linear numbers of ``count`` programs (all of them when there are no more), spread over every axis.

    One program per stratum of each axis; axes take their strata in different orders. Places inside a stratum are
    irregular, because a grid flattened from several loops has periods that equal steps would hit in one phase. The
    sample is its own mirror image, so work that grows evenly along an axis (causal attention) is averaged exactly.
    """
    blocks = grid[0] * grid[1] * grid[2]
    if blocks <= count:
        return list(range(blocks))
    long = [axis for axis in range(3) if grid[axis] > 1]
    chosen: set[int] = set()
    for i in range(count):
        place = [0, 0, 0]
        for number, axis in enumerate(long):
            stratum = _stratum(i, count, number)
            share = (stratum + _inside(stratum, count)) / count
            place[axis] = min(int(share * grid[axis]), grid[axis] - 1)
        chosen.add(place[0] + grid[0] * (place[1] + grid[1] * place[2]))
    return sorted(chosen)


def _stratum(i: int, count: int, axis: int) -> int:
    """A symmetric permutation: strata, numbered by twice their distance from the middle, times an odd factor."""
    if axis == 0:
        return i
    factor = next(f for f in range(2 * axis + 1, 4 * count, 2) if math.gcd(f, 2 * count) == 1)
    turned = (2 * i + 1 - count) * factor % (2 * count)
    if turned >= count:
        turned -= 2 * count
    return (turned + count - 1) // 2


def _inside(stratum: int, count: int) -> float:
    mirrored = count - 1 - stratum
    if stratum == mirrored:
        return 0.5
    place = (min(stratum, mirrored) + 1) * _GOLDEN % 1
    return place if stratum < mirrored else 1 - place
