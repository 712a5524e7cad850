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
    partial_store_cost: float  # bytes of L2 time per byte of a sector that is stored only in part
    spill_cost: float  # bytes of L2 time per byte of a spill store, its loads included
    l2_keeps: float  # share of the L2 one wave may touch before its re-reads start to miss
    l2_loses: float  # share of the L2 one wave touches when all its re-reads miss
    kept_on_request: float  # share of the misses that remains where loads ask to be evicted last
    sectors_per_clock: float  # 32-byte sectors one SM's load/store unit serves
    l1_bytes: int  # L1 and shared memory of one SM
    fill_bytes_per_clock: float  # from L2 into one SM
    smem_efficiency: float  # above 1 where lanes that read the same word save clocks
    conflict_clocks: float  # one 32-lane store of 4-byte words into a transposed operand tile
    tensor_efficiency: float  # warp-group (or tcgen05) instructions
    warp_mma_efficiency: float  # mma.sync instructions
    ffma_efficiency: float
    issue_efficiency: float
    mufu_lanes_per_clock: float
    block_launch_ns: float  # between two programs handed out, whole device
    dram_latency_us: float
    l2_latency_us: float
    bulk_copy_us: float  # what the bulk copy engine adds to a load
    program_us: float  # start of a program, its last stores and its retirement
    program_warp_us: float  # and for each of its warps
    reduction_us: float  # one block-wide reduction of one warp
    reduction_warp_us: float  # and for each further warp
    barrier_us: float  # a dot's tiles through registers into shared memory, and the warps' meeting there
    clocks_per_instruction: float  # of one warp alone on its scheduler
    overlap: float  # exponent p: busy time is (sum of t^p)^(1/p) over the resources
    hiding: float  # the same between busy and waiting time
    hiding_ahead: float  # and where a dot's tiles are loaded ahead
    launch_us: float  # one launch
    call_us: float  # first launch after other work


_H200 = PerfParams(
    fitted=True,
    clock_ghz=1.95,
    dram_efficiency=0.845,
    l2_gbps=10100,
    partial_store_cost=5,
    spill_cost=3,
    l2_keeps=0.315,
    l2_loses=0.82,
    kept_on_request=0.5,
    sectors_per_clock=2.9,
    l1_bytes=256 << 10,
    fill_bytes_per_clock=64,
    smem_efficiency=1.15,
    conflict_clocks=24,
    tensor_efficiency=0.83,
    warp_mma_efficiency=0.5,
    ffma_efficiency=0.95,
    issue_efficiency=0.96,
    mufu_lanes_per_clock=16,
    block_launch_ns=0.606,
    dram_latency_us=0.49,
    l2_latency_us=0.22,
    bulk_copy_us=0.6,
    program_us=0.34,
    program_warp_us=0.011,
    reduction_us=0.157,
    reduction_warp_us=0.0036,
    barrier_us=0.51,
    clocks_per_instruction=2.5,
    overlap=5.3,
    hiding=4.1,
    hiding_ahead=7,
    launch_us=2.6,
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
