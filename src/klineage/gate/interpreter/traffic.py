# pyright: reportMissingTypeStubs=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false
"""From traced programs to the traffic of a launch.

A few programs are run in full and scaled to the grid. Where their footprints cannot all be private (there are more
of them than the tensors hold), neighbours share data: then one wave of programs is run with its loops cut short, and
the distinct bytes it touches show how well the order of programs keeps them together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...model import Traffic
from .batch import BatchTracer
from .counts import Counts, mean
from .executor import Launch, run_program
from .footprint import Footprint, Spread, spread
from .formats import Diverged
from .sampling import sample_programs
from .trace_ops import Tracer, using_builder

_FEWEST_SAMPLES, _MOST_SAMPLES = 4, 16
_OPERATIONS_TO_SPEND = 2500  # on samples beyond the fewest: short programs are sampled more
MOST_WAVE_PROGRAMS = 160  # when they cannot be traced together
_LANES_AT_ONCE = 1 << 21
_WEIGHS = 0.02  # share of the launch's distinct bytes below which a tensor cannot matter


@dataclass(frozen=True)
class Sample:
    """One program run in full."""

    counts: Counts
    touched: Footprint
    loaded: Footprint
    stored: Footprint


class LaunchTracer:
    """Traces launches one after another with a builder of its own."""

    def __init__(self, tracer: Tracer, most_samples: int = _MOST_SAMPLES) -> None:
        self._tracer = tracer
        self._most = most_samples

    def trace(self, launch: Launch, known: Any, wave: int | None) -> Traffic:
        """The traffic of one launch; ``wave`` is the number of programs resident at once (None: do not look)."""
        tracer = self._tracer
        tracer.begin_launch(launch.arguments, known)
        tracer.cut_loops = False
        blocks = launch.blocks
        few = sample_programs(launch.grid, min(_FEWEST_SAMPLES, self._most))
        first = self._run(launch, few[0])
        count = max(_FEWEST_SAMPLES, min(self._most, _OPERATIONS_TO_SPEND // max(1, tracer.operations)))
        numbers = few if count == _FEWEST_SAMPLES else sample_programs(launch.grid, count)
        samples = [first if n == few[0] else self._run(launch, n) for n in numbers]
        counts = mean([s.counts for s in samples])
        exact = len(samples) == blocks
        spreads = self._spreads([s.touched for s in samples], exact)
        loaded = self._spreads([s.loaded for s in samples], exact)
        stored = self._spreads([s.stored for s in samples], exact)
        unique = sum(s.expected(blocks) for s in spreads.values())
        persistent = bool(counts.outer_trips > 1)
        wave_bytes, wave_blocks, waves, correction = None, None, None, 1.0
        if wave:
            wave_blocks = min(wave, blocks)
            # parts smaller than a sector seem to be shared; only tensors that weigh something are asked
            large = [s for s in spreads.values() if s.limit > _WEIGHS * unique]
            if any(s.overflows(blocks) for s in large) or (persistent and blocks <= wave_blocks):
                wave_bytes, outer = self._wave(launch, wave_blocks, known)
                waves = blocks / wave_blocks * max(1.0, outer)
                if persistent and blocks <= wave_blocks:
                    correction = outer / counts.outer_trips  # every program's trips are known, not only the samples'
            else:
                wave_bytes = sum(s.expected(wave_blocks) for s in spreads.values())
                waves = blocks / wave_blocks
        return _traffic(counts, blocks, len(samples), correction).model_copy(
            update={
                "unique_bytes": unique,
                "unique_loaded_bytes": sum(s.expected(blocks) for s in loaded.values()),
                "unique_stored_bytes": sum(s.expected(blocks) for s in stored.values()),
                "program_unique_bytes": sum(s.loaded.total() for s in samples) / len(samples),
                "wave_unique_bytes": min(wave_bytes, unique) if wave_bytes is not None else None,
                "wave_blocks": wave_blocks,
                "waves": waves,
            }
        )

    def _run(self, launch: Launch, program: int) -> Sample:
        tracer = self._tracer
        tracer.footprint, tracer.loaded, tracer.stored = Footprint(), Footprint(), Footprint()
        run_program(tracer, launch, program)
        return Sample(tracer.counts, tracer.footprint, tracer.loaded, tracer.stored)

    def _spreads(self, footprints: list[Footprint], exact: bool) -> dict[int, Spread]:
        return {
            b.low: spread(footprints, b.low, max(0, b.span[1] - b.span[0]), exact)
            for b in self._tracer.memory.buffers
            if any(b.low in f.parts for f in footprints)
        }

    def _wave(self, launch: Launch, wave: int, known: Any) -> tuple[float, float]:
        """(distinct bytes of the first wave, mean trips of outer loops), with loops cut and repeated on paper."""
        limits = {b.low: float(max(0, b.span[1] - b.span[0])) for b in self._tracer.memory.buffers}
        try:
            return self._wave_together(launch, wave, known, limits)
        except Diverged:
            return self._wave_one_by_one(launch, wave, limits)

    def _wave_together(self, launch: Launch, wave: int, known: Any, limits: dict[int, float]) -> tuple[float, float]:
        batch = BatchTracer()
        batch.begin_launch(launch.arguments, known)
        chunk = max(8, _LANES_AT_ONCE // self._tracer.largest_access)
        outer = 0.0
        with using_builder(batch):
            for begin in range(0, wave, chunk):
                programs = np.arange(begin, min(begin + chunk, wave))
                outer += batch.run(launch, programs, self._tracer.outer_loops) * programs.size
        total = batch.footprint
        return sum(total.bytes_of(low, limits.get(low) or math.inf) for low in total.parts), outer / wave

    def _wave_one_by_one(self, launch: Launch, wave: int, limits: dict[int, float]) -> tuple[float, float]:
        """Of a larger wave the first programs are run, and what the second half of them added goes on per buffer."""
        tracer = self._tracer
        tracer.cut_loops = True
        run = min(wave, MOST_WAVE_PROGRAMS)
        tracer.footprint = total = Footprint()
        outer = 0.0
        half: dict[int, float] = {}
        for program in range(run):
            if program == run // 2 and run < wave:
                half = {low: total.bytes_of(low, limits.get(low) or math.inf) for low in total.parts}
            run_program(tracer, launch, program)
            outer += tracer.counts.outer_trips
        tracer.cut_loops = False
        size = 0.0
        for low in total.parts:
            limit = limits.get(low) or math.inf
            now = total.bytes_of(low, limit)
            if run < wave:
                now += (now - half.get(low, 0.0)) * (wave - run) / (run - run // 2)
            size += min(now, limit)
        return size, outer / run


def _traffic(counts: Counts, blocks: int, sampled: int, correction: float) -> Traffic:
    total, each = blocks * correction, correction
    return Traffic(
        blocks=blocks,
        sampled=sampled,
        bytes_loaded=counts.bytes_loaded * total,
        bytes_stored=counts.bytes_stored * total,
        bytes_atomic=counts.bytes_atomic * total,
        unique_bytes=0.0,
        load_requests=counts.load_requests * total,
        load_sectors=counts.load_sectors * total,
        store_requests=counts.store_requests * total,
        store_sectors=counts.store_sectors * total,
        dot_flops={kind: flops * total for kind, flops in counts.dot_flops.items()},
        alu_lanes=counts.alu_lanes * total,
        mufu_lanes=counts.mufu_lanes * total,
        reduce_lanes=counts.reduce_lanes * total,
        reductions=counts.reductions * each,
        load_rounds=counts.load_rounds * each,
        loop_trips=counts.loop_trips * each,
        tile_bytes_per_round=counts.bytes_loaded / counts.load_rounds if counts.load_rounds else 0.0,
    )
