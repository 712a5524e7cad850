# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Times calls on the GPU: interleaved, with the L2 flushed after inputs are placed, until the interval is narrow."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from .stats import ABBA, Interval, enough, flushes_for, ratio_interval, time_interval

WARM_UP_S = 0.05
MOST_S = 2.0
CHECKED = 0.1  # of the rounds, whose outputs are looked at


@dataclass(frozen=True)
class Run:
    """A call to time, and what is done before the clock starts (spoiling what it will write)."""

    call: Callable[[], object]
    prepare: Callable[[], object] = lambda: None
    flushes: int = 1  # of the L2 before the clock starts: while they run, the host queues the call


class Timer(Protocol):
    """What times calls: ``Clock`` on a GPU."""

    def times(self, runs: Sequence[Run]) -> list[float]:
        """Microseconds of each call, run one after another."""
        ...

    def flushes(self, run: Run) -> int:
        """How many flushes of the L2 take longer than the host needs to queue the call."""
        ...


class Clock:
    """Times single calls with device events; before each, twice the queried L2 is overwritten."""

    def __init__(self) -> None:
        properties = torch.cuda.get_device_properties(0)
        self.l2_bytes = int(properties.L2_cache_size)
        self._flush = torch.empty(max(2 * self.l2_bytes, 64 << 20), dtype=torch.uint8, device="cuda")
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2 * len(ABBA))]
        nothing = Run(lambda: None)
        self.times([nothing])
        self._flush_us = min(self.times([Run(self._flush.zero_)])[0] for _ in range(5))

    def times(self, runs: Sequence[Run]) -> list[float]:
        """Microseconds of each call, run one after another; all streams are waited for.

        The last one runs once before the clock starts: what follows an idle moment is slower.
        """
        runs[-1].prepare()
        self._flush.zero_()
        runs[-1].call()
        for index, run in enumerate(runs):
            run.prepare()
            for _ in range(run.flushes):
                self._flush.zero_()
            self._events[2 * index].record()
            run.call()
            self._events[2 * index + 1].record()
        torch.cuda.synchronize()
        return [1e3 * self._events[2 * i].elapsed_time(self._events[2 * i + 1]) for i in range(len(runs))]

    def flushes(self, run: Run) -> int:
        """How many flushes of the L2 take longer than the host needs to queue the call."""
        run.prepare()
        run.call()  # what is loaded at the first call
        torch.cuda.synchronize()
        spent: list[float] = []
        for _ in range(3):
            began = time.perf_counter()
            run.call()
            spent.append(1e6 * (time.perf_counter() - began))
            torch.cuda.synchronize()
        return flushes_for(min(spent), self._flush_us)


@dataclass(frozen=True)
class Comparison:
    """Two sides timed in turn; times in microseconds."""

    first: Interval
    second: Interval
    ratio: Interval  # first over second
    rounds: int


def compare(
    clock: Timer,
    first: Sequence[Run],
    second: Sequence[Run],
    check: Callable[[int], str] | None = None,
    seed: int | None = None,
) -> tuple[Comparison, str]:
    """Time two sides in ABBA rounds, each round on the next of their input sets.

    ``check`` looks at the outputs that the first side left in the set of that number, after the first round, the last,
    and others chosen at random; what it complains of ends the timing and is returned beside the comparison ("" when
    all was well).
    """
    chance = random.Random(seed)
    flushes = max(clock.flushes(first[0]), clock.flushes(second[0]))
    sides = tuple([replace(run, flushes=flushes) for run in side] for side in (first, second))
    warm = time.monotonic()
    while time.monotonic() - warm < WARM_UP_S:
        clock.times([sides[0][0], sides[1][0]])
    taken: tuple[list[float], list[float]] = ([], [])
    began, rounds, complaint, ends = time.monotonic(), 0, "", False
    while not (complaint or ends):
        number = rounds % len(first)
        order = ABBA if rounds % 2 == 0 else [1 - side for side in ABBA]
        runs = [sides[side][number % len(sides[side])] for side in order]
        for side, spent in zip(order, clock.times(runs), strict=True):
            taken[side].append(spent)
        rounds += 1
        ends = rounds >= 4 and time.monotonic() - began > MOST_S
        ends = ends or (rounds % 4 == 0 and enough(ratio_interval(*taken), rounds))
        if check is not None and (rounds == 1 or ends or chance.random() < CHECKED):
            complaint = check(number)
    compared = Comparison(time_interval(taken[0]), time_interval(taken[1]), ratio_interval(*taken), rounds)
    return compared, complaint
