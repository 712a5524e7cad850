"""The statistics and the order of interleaved timing."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from klineage.gate.measured import stats, timer
from klineage.gate.measured.stats import Interval
from klineage.gate.measured.timer import Run


class Clock:
    """Times a run by what it returns, with noise and a drift that grows with every call."""

    def __init__(self, noise: float = 0.003, drift: float = 0.0) -> None:
        self.random, self.noise, self.drift, self.calls = random.Random(1), noise, drift, 0
        self.order: list[str] = []

    def times(self, runs: Sequence[Run]) -> list[float]:
        return [self._time(run) for run in runs]

    def flushes(self, run: Run) -> int:
        return int(str(run.call())[0])

    def _time(self, run: Run) -> float:
        run.prepare()
        self.calls += 1
        self.order.append(f"{run.call()}x{run.flushes}")
        return float(str(run.call())) * (1 + self.drift * self.calls) * self.random.lognormvariate(0.0, self.noise)


def runs(us: float, count: int = 3) -> list[Run]:
    return [Run(lambda: us)] * count


@pytest.fixture(autouse=True)
def no_warm_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timer, "WARM_UP_S", 0.0)


def test_a_kernel_against_itself_is_one_within_a_percent():
    compared, complaint = timer.compare(Clock(), runs(100.0), runs(100.0))
    assert complaint == ""
    assert compared.ratio.low <= 1.0 <= compared.ratio.high
    assert compared.ratio.high - compared.ratio.low < 0.01
    assert compared.first.value == pytest.approx(100.0, rel=0.01)


def test_the_place_of_buffers_is_part_of_the_interval():
    exact = stats.ratio_interval([100.0] * 24, [100.0] * 24)
    assert (exact.low, exact.high) == pytest.approx((1 - stats.PLACEMENT, 1 + stats.PLACEMENT), rel=1e-5)


@pytest.mark.parametrize("drift", [1e-3, -1e-4])
def test_a_drift_of_the_clocks_cancels(drift: float):
    compared, _ = timer.compare(Clock(noise=0.0, drift=drift), runs(100.0), runs(105.0))
    assert compared.ratio.value == pytest.approx(100 / 105, rel=1e-3)


def test_a_small_difference_is_told_from_noise():
    compared, _ = timer.compare(Clock(noise=0.01), runs(103.0), runs(100.0))
    assert compared.ratio.low > 1.01


def test_rounds_run_abba_and_baab_in_turn():
    clock = Clock(noise=0.0)
    timer.compare(clock, runs(1.0), runs(2.0))
    assert clock.order[:8] == [f"{x}x2" for x in (1.0, 2.0, 2.0, 1.0, 2.0, 1.0, 1.0, 2.0)]


def test_noise_that_does_not_settle_ends_at_the_cap():
    compared, _ = timer.compare(Clock(noise=0.5), runs(100.0), runs(100.0))
    assert compared.rounds == stats.MOST_ROUNDS


def test_outputs_of_the_first_and_the_last_round_are_always_looked_at(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timer, "CHECKED", 0.0)
    looked: list[int] = []
    compared, _ = timer.compare(Clock(), runs(100.0), runs(100.0), lambda number: looked.append(number) or "")
    assert looked == [0, (compared.rounds - 1) % 3]


def test_a_complaint_about_outputs_ends_the_timing():
    compared, complaint = timer.compare(Clock(), runs(100.0), runs(100.0), lambda _: "wrong")
    assert (compared.rounds, complaint) == (1, "wrong")


def test_rounds_to_look_at_cannot_be_foreseen(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(timer, "CHECKED", 0.5)

    def looked() -> list[int]:
        seen: list[int] = []
        clock = Clock(noise=0.5)
        timer.compare(clock, runs(100.0), runs(100.0), lambda _: seen.append(clock.calls) or "")
        return seen

    assert looked() != looked()


def coverage(noise: Callable[[np.random.Generator, int], np.ndarray]) -> float:
    generator, inside = np.random.default_rng(0), 0
    for trial in range(200):
        mine, other = (np.exp(noise(generator, 40)) for _ in range(2))
        interval = stats.ratio_interval(list(1.02 * mine), list(other), seed=trial)
        inside += interval.low <= 1.02 <= interval.high
    return inside / 200


@pytest.mark.parametrize(
    "noise",
    [
        lambda g, n: 0.01 * g.standard_normal(n),
        lambda g, n: 0.01 * g.standard_t(3, n),
        lambda g, n: 0.005 * g.standard_normal(n) + 0.05 * (g.random(n) < 0.03),  # now and then much slower
    ],
    ids=["normal", "heavy tails", "outliers"],
)
def test_the_interval_holds_the_true_ratio_about_as_often_as_it_says(noise):
    assert coverage(noise) >= 0.88


@pytest.mark.parametrize(
    ("width", "rounds", "enough"), [(0.001, 11, False), (0.001, 12, True), (0.009, 12, False), (0.5, 120, True)]
)
def test_when_to_stop(width: float, rounds: int, enough: bool):
    assert stats.enough(Interval(1.0, 1 - width / 2, 1 + width / 2), rounds) is enough


def test_the_product_of_ratios_keeps_their_uncertainty():
    combined = stats.product([Interval(1.1, 1.09, 1.11), Interval(0.9, 0.89, 0.91)])
    assert combined.value == pytest.approx(math.sqrt(0.99))
    assert combined.low < combined.value < combined.high
    alone = stats.product([Interval(1.1, 1.09, 1.11)])
    assert (alone.low, alone.value, alone.high) == pytest.approx((1.09, 1.1, 1.11))


@pytest.mark.parametrize(
    ("host_us", "flush_us", "flushes"), [(5.0, 35.0, 1), (60.0, 35.0, 3), (1e6, 35.0, 8), (5.0, 0.0, 8)]
)
def test_the_device_is_kept_busy_while_the_host_queues(host_us: float, flush_us: float, flushes: int):
    assert stats.flushes_for(host_us, flush_us) == flushes


def test_rank_correlation_shares_ranks_among_ties():
    assert stats.spearman([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1.0)
    assert stats.spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    assert stats.spearman([1, 2, 2, 4], [1, 3, 2, 4]) == pytest.approx(0.9486833)
