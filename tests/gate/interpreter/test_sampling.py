"""The sample of a grid: spread, mirrored, out of step with periods."""

from __future__ import annotations

import pytest

from klineage.gate.interpreter.sampling import sample_programs


@pytest.mark.parametrize("grid", [(1, 1, 1), (7, 1, 1), (2, 2, 2)])
def test_a_small_grid_is_taken_whole(grid: tuple[int, int, int]) -> None:
    assert sample_programs(grid, 8) == list(range(grid[0] * grid[1] * grid[2]))


@pytest.mark.parametrize("count", [4, 5, 7, 16])
@pytest.mark.parametrize("grid", [(1000, 1, 1), (64, 48, 1), (32, 16, 24), (1, 300, 2)])
def test_every_axis_is_spread_and_balanced(grid: tuple[int, int, int], count: int) -> None:
    places = sample_programs(grid, count)
    assert len(places) == count
    x, y, _ = grid
    for axis, coordinates in enumerate(
        ([p % x for p in places], [p // x % y for p in places], [p // (x * y) for p in places])
    ):
        size = grid[axis]
        if size >= 16 * count:
            assert len({c * count // size for c in coordinates}) == count  # one per stratum
        assert abs(sum(coordinates) / count - (size - 1) / 2) <= 0.5


@pytest.mark.parametrize("period", [8, 16, 32, 112, 224])
@pytest.mark.parametrize("grid", [(3584, 1, 1), (3584, 2, 1)])
def test_a_period_in_the_grid_is_not_hit_in_one_phase(grid: tuple[int, int, int], period: int) -> None:
    phases = {p % grid[0] % period for p in sample_programs(grid, 4)}
    assert len(phases) > 2
