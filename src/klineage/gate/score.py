# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""A static score for choosing between autotuner configurations without hardware."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from ..model import Target
from .binary import Inspector, Sass, parse_cubin
from .capture import Launch
from .occupancy import occupancy

_SCHEDULERS = 4
_WARPS_TO_HIDE_LATENCY = 8  # resident warps per multiprocessor below which stalls show


@cache
def _inspector() -> Inspector:
    return Inspector(Path(os.environ.get("TRITON_CACHE_DIR", "/nonexistent")).parent)


def static_score(launches: Sequence[Launch], target: Target) -> float:
    """A relative cost, lower is better; only comparable between configurations of one kernel on one problem.

    The useful work of a launch (tensor-core operations, or else bytes loaded) is the same whatever the
    configuration, so the cost of a configuration is the cycles its innermost loop spends per unit of work, times
    what the last, partly filled wave wastes, times a penalty when few warps are resident.
    """
    return sum(_launch_score(launch, target) for launch in launches)


def _launch_score(launch: Launch, target: Target) -> float:
    cubin = parse_cubin(launch.cubin)
    (sass,) = _inspector().inspect([cubin.code], target.arch)
    resident = occupancy(target, cubin.registers, launch.smem_bytes, launch.num_warps * target.warp_size)
    per_sm = max(resident.blocks_per_sm, 1)
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    slots = per_sm * target.sms
    wasted = -(-blocks // slots) * slots / blocks
    stalls = max(1.0, _WARPS_TO_HIDE_LATENCY / (per_sm * launch.num_warps))
    work = sass.loop_mma_flops or sass.loop_load_bytes
    if work:
        return _cycles(sass, target) / work * wasted * stalls
    return sass.mix["total"] * launch.num_warps * blocks * wasted * stalls


def _cycles(sass: Sass, target: Target) -> float:
    """Cycles of one scheduler for one warp's pass over its innermost loops: the slowest of issuing, tensor cores
    and L2 bandwidth, and a tenth of all three for what does not overlap."""
    per_scheduler = target.sms * _SCHEDULERS * target.sm_clock_ghz * 1e9
    terms = (
        float(sass.loop_instructions),
        sass.loop_mma_flops / (target.fp16_tc_tflops * 1e12 / per_scheduler),
        sass.loop_load_bytes / (target.l2_gbps * 1e9 / per_scheduler),
    )
    return max(terms) + 0.1 * sum(terms)
