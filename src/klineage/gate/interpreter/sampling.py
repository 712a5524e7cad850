"""Which programs of a grid stand for all of them. No chance is involved: the same grid gives the same sample."""

from __future__ import annotations

_GOLDEN = 0.6180339887498949
Grid = tuple[int, int, int]


def sample_programs(grid: Grid, count: int) -> list[int]:
    """Linear numbers of ``count`` programs (all of them when there are no more), spread over every axis.

    Strata along each axis, the place inside a stratum moved by multiples of the golden ratio: a grid flattened from
    several loops has periods, and equal steps would hit the same phase each time.
    """
    blocks = grid[0] * grid[1] * grid[2]
    if blocks <= count:
        return list(range(blocks))
    long = [axis for axis in range(3) if grid[axis] > 1]
    chosen: list[int] = []
    for i in range(count):
        place = [0, 0, 0]
        for number, axis in enumerate(long):
            if number == 0:
                inside = 0.5 if len(long) > 1 else ((i + 1) * _GOLDEN) % 1
                share = (i + inside) / count
            else:
                share = (0.5 + i * _GOLDEN * (number + 1)) % 1
            place[axis] = min(int(share * grid[axis]), grid[axis] - 1)
        chosen.append(place[0] + grid[0] * (place[1] + grid[1] * place[2]))
    return sorted(set(chosen))
