"""Parameters of the performance model per target, and where each comes from.

sm_90 is fitted on kernels measured on an H200 (``benchmarks/data/h200.json``). The other targets are unfitted: rates
come from data sheets through ``Target``, efficiencies are those of sm_90, latencies are its cycles at their clock.
"""

from __future__ import annotations

from ..model import Target
from ..model.base import Frozen

MODEL_VERSION = "1"


class PerfParams(Frozen):
    """What the model knows of a device beyond ``Target``. Efficiencies are shares of the data-sheet rate."""

    fitted: bool  # fitted on measurements of this architecture
    clock_ghz: float  # sustained by kernels that leave the tensor cores idle
    dram_efficiency: float
    l2_gbps: float  # bytes from L2 to all SMs, neighbours' common requests merged
    l2_keeps: float  # share of the L2 one wave may touch before its re-reads start to miss
    l2_loses: float  # share of the L2 one wave touches when all its re-reads miss
    sectors_per_clock: float  # 32-byte sectors one SM's load/store unit serves
    l1_bytes: int  # L1 and shared memory of one SM
    fill_bytes_per_clock: float  # from L2 into one SM
    smem_bytes_per_clock: float  # shared memory of one SM
    conflict_clocks: float  # one 32-lane store of 4-byte words into a transposed operand tile
    tensor_efficiency: float  # warp-group (or tcgen05) instructions
    warp_mma_efficiency: float  # mma.sync instructions
    ffma_efficiency: float
    issue_efficiency: float
    mufu_lanes_per_clock: float
    block_launch_ns: float  # between two programs handed out, whole device
    dram_latency_us: float
    l2_latency_us: float
    program_us: float  # start of a program, its last stores and its retirement
    reduction_us: float  # one block-wide reduction of one warp
    reduction_warp_us: float  # and for each further warp
    barrier_us: float  # hand-over of a tile between warps in a dot loop
    clocks_per_instruction: float  # of one warp alone on its scheduler
    overlap: float  # exponent p: time is (sum of t^p)^(1/p) over the terms
    launch_us: float  # one launch
    call_us: float  # first launch after other work


_H200 = PerfParams(
    fitted=True,
    clock_ghz=1.95,
    dram_efficiency=0.89,
    l2_gbps=11000,
    l2_keeps=0.33,
    l2_loses=1.05,
    sectors_per_clock=2.75,
    l1_bytes=256 << 10,
    fill_bytes_per_clock=64,
    smem_bytes_per_clock=128,
    conflict_clocks=26,
    tensor_efficiency=0.80,
    warp_mma_efficiency=0.6,
    ffma_efficiency=0.95,
    issue_efficiency=0.96,
    mufu_lanes_per_clock=16,
    block_launch_ns=0.606,
    dram_latency_us=0.65,
    l2_latency_us=0.3,
    program_us=0.9,
    reduction_us=0.12,
    reduction_warp_us=0.006,
    barrier_us=0.1,
    clocks_per_instruction=2.2,
    overlap=4.0,
    launch_us=1.7,
    call_us=1.4,
)


def params_for(target: Target) -> PerfParams:
    """The parameters of a target: fitted for sm_90, scaled from there by data-sheet rates for the others."""
    if target.arch == 90:
        return _H200
    scale = _H200.clock_ghz / target.sm_clock_ghz
    return _H200.model_copy(
        update={
            "fitted": False,
            "clock_ghz": target.sm_clock_ghz,
            "l2_gbps": target.l2_gbps,
            "l1_bytes": target.smem_per_sm_bytes + (24 << 10),
            "tensor_efficiency": _TENSOR_EFFICIENCY.get(target.arch, _H200.tensor_efficiency),
            "warp_mma_efficiency": _WARP_MMA_EFFICIENCY.get(target.arch, _H200.warp_mma_efficiency),
            "block_launch_ns": _H200.block_launch_ns * scale,
            **{name: getattr(_H200, name) * scale for name in _LATENCIES},
        }
    )


_LATENCIES = ("l2_latency_us", "program_us", "reduction_us", "reduction_warp_us", "barrier_us")
_TENSOR_EFFICIENCY = {100: 0.75}  # unfitted: dense rate of tcgen05 under its power limit
_WARP_MMA_EFFICIENCY = {80: 0.85, 89: 0.85, 120: 0.85}  # unfitted: there mma.sync is the full-rate instruction
