"""The recorder's own rules; capturing itself is tested through compile."""

from __future__ import annotations

import math
from typing import Any

import pytest

from klineage.gate.capture import MAX_GRID, MAX_LAUNCHES, Capture, Launch, LaunchError
from klineage.model import target


def recorder(max_configs: int = 3) -> Capture:
    return Capture(target("sm_90"), lambda launches, _: float(len(launches)), max_configs)


def launch(grid: tuple[int, int, int] = (1, 1, 1), trial: bool = False) -> Launch:
    return Launch("k", grid, 4, 3, 1, (), {}, trial, None, 0, 0, None, b"")


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_grid_beyond_the_hardware_is_refused(axis: int):
    grid = [1, 1, 1]
    grid[axis] = MAX_GRID[axis]
    recorder().record(launch((grid[0], grid[1], grid[2])))
    grid[axis] += 1
    with pytest.raises(LaunchError, match=f"exceeds the limit of {MAX_GRID[axis]} in k"):
        recorder().record(launch((grid[0], grid[1], grid[2])))


def test_endless_launching_is_refused():
    capture = recorder()
    for _ in range(MAX_LAUNCHES):
        capture.record(launch())
    with pytest.raises(LaunchError, match="more than"):
        capture.record(launch())


def test_configurations_are_tried_spread_over_the_list():
    assert recorder().spread([1, 2]) == [1, 2]
    spread = recorder().spread(list(range(9)))
    assert spread[:3] == [0, 3, 6]
    assert sorted(spread) == list(range(9))


def tried(capture: Capture, works: Any) -> list[int]:
    """Configurations really benchmarked, in order, when those for which ``works`` is false do not compile."""
    seen: list[int] = []

    def bench(_: Any, *, config: int) -> list[float]:
        seen.append(config)
        return [1.0] * 3 if works(config) else [math.inf] * 3

    def run(tuner: Any) -> None:
        for config in range(40):
            capture.bench(bench, tuner, config=config)

    class Tuner:
        cache_results = True

    capture.tune(run, Tuner())  # type: ignore[arg-type]
    return seen


def test_enough_working_configurations_end_the_search():
    assert tried(recorder(), lambda _: True) == [0, 1, 2]


def test_the_search_goes_on_until_one_works():
    assert tried(recorder(), lambda c: c == 7) == list(range(8))


def test_the_search_gives_up():
    assert tried(recorder(), lambda _: False) == list(range(12))


def test_a_benchmark_marks_its_launches_as_trials():
    capture = recorder()
    seen: list[bool] = []
    score = capture.do_bench(lambda: (seen.append(capture.trial), capture.record(launch())), quantiles=(0.5, 0.2))
    assert seen == [True]
    assert not capture.trial
    assert score == [1.0, 1.0]
