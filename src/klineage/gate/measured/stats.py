"""The statistics of interleaved timing: order of runs, bootstrap intervals, when to stop. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ABBA = (0, 1, 1, 0)  # drift that is linear in time cancels within a round; every other round runs it as BAAB
HALF_WIDTH = 0.004  # of the ratio's 95% interval: stop
# one program bound to two sets of buffers: on an H200 its times differ by up to this share, the same way in every run
PLACEMENT = 0.002
LEAST_ROUNDS, MOST_ROUNDS = 12, 120
_RESAMPLES = 2000
_MOST_FLUSHES = 8


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95% bootstrap interval."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half the interval over the estimate."""
        return (self.high - self.low) / (2 * self.value)


def ratio_interval(mine: Sequence[float], other: Sequence[float], seed: int = 0) -> Interval:
    """``mine`` over ``other``, from two times of each per ABBA round (in the order run), resampled by round.

    The estimate is the exponential of the mean of the rounds' log ratios, the largest and smallest tenth left out; a
    round's ratio is of geometric means. What the place of buffers in memory adds to the error (``PLACEMENT``), which no
    repetition shows, is in the interval.
    """
    logs = np.log(np.asarray(mine, float)).reshape(-1, 2).mean(1) - np.log(np.asarray(other, float)).reshape(
        -1, 2
    ).mean(1)
    found = _bootstrap(logs, seed)
    down = math.hypot(math.log(found.value / found.low), PLACEMENT)
    up = math.hypot(math.log(found.high / found.value), PLACEMENT)
    return Interval(found.value, found.value * math.exp(-down), found.value * math.exp(up))


def product(ratios: Sequence[Interval]) -> Interval:
    """The geometric mean of ratios, with the interval of independent log-normal errors."""
    count = len(ratios)
    middle = sum(math.log(r.value) for r in ratios) / count
    down = math.sqrt(sum(math.log(r.value / r.low) ** 2 for r in ratios)) / count
    up = math.sqrt(sum(math.log(r.high / r.value) ** 2 for r in ratios)) / count
    return Interval(math.exp(middle), math.exp(middle - down), math.exp(middle + up))


def time_interval(times: Sequence[float], seed: int = 0) -> Interval:
    """The typical time (trimmed geometric mean) with its interval, in the unit given."""
    return _bootstrap(np.log(np.asarray(times, float)), seed)


def enough(interval: Interval, rounds: int) -> bool:
    """Whether to stop: the interval is narrow, or the cap on rounds is reached."""
    return rounds >= MOST_ROUNDS or (rounds >= LEAST_ROUNDS and interval.half_width <= HALF_WIDTH)


def flushes_for(host_us: float, flush_us: float) -> int:
    """Flushes to queue before a call that takes the host so long to queue: while they run, the device does not catch
    up, and what is timed is the device alone. Half as much again, and 10 us, to spare."""
    return min(_MOST_FLUSHES, max(1, math.ceil((1.5 * host_us + 10.0) / max(flush_us, 1.0))))


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's rank correlation; ties share their mean rank."""
    ra, rb = _ranks(a), _ranks(b)
    return float(np.corrcoef(ra, rb)[0, 1])


def beyond_roofline(
    time_us: float, bytes_moved: float, flops: float, l2_bytes: float, gbps: float, tflops: float
) -> bool:
    """Whether a time is less than the work can take at 105% of the device's measured rates.

    What may still be in L2 when the clock stops (or was never written back) is not counted.
    """
    least_us = max((bytes_moved - l2_bytes) / gbps / 1e3, flops / tflops / 1e6)
    return time_us * 1.05 < least_us


def _bootstrap(logs: np.ndarray, seed: int) -> Interval:
    draws = np.random.default_rng(seed).integers(0, len(logs), (_RESAMPLES, len(logs)))
    low, high = np.quantile(_trimmed(logs[draws]), (0.025, 0.975))
    middle, wider = float(_trimmed(logs)), _few(len(logs))
    return Interval(
        math.exp(middle), math.exp(middle - wider * (middle - low)), math.exp(middle + wider * (high - middle))
    )


def _few(count: int) -> float:
    """How much wider a percentile bootstrap's interval must be for so few values: Student's t over the normal quantile
    (its expansion in 1/(n-1): Abramowitz and Stegun 26.7.5), and n over n-1 for the variance."""
    z, free = 1.96, max(1, count - 1)
    t = z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
    return t / z * math.sqrt((free + 1) / free)


def _trimmed(logs: np.ndarray) -> np.ndarray:
    """Mean along the last axis without the largest and smallest tenth."""
    cut = logs.shape[-1] // 10
    ordered = np.sort(logs, axis=-1)
    return ordered[..., cut : logs.shape[-1] - cut].mean(axis=-1)


def _ranks(values: Sequence[float]) -> np.ndarray:
    data = np.asarray(values, float)
    return np.array([(data < x).sum() + ((data == x).sum() + 1) / 2 for x in data])
