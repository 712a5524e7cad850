"""Target devices: limits from the CUDA programming guide, rates from vendors' data sheets."""

from __future__ import annotations

from ..errors import TargetError
from .base import Frozen


class Target(Frozen):
    """One architecture with a representative part.

    Rates are peaks: ``*_tflops`` in TFLOP/s (dense), ``dram_gbps``/``l2_gbps`` in GB/s (1e9 bytes), sizes in bytes.
    """

    name: str  # "sm_90"
    arch: int  # 90
    part: str  # the part the rates belong to
    sms: int
    sm_clock_ghz: float
    smem_per_block_bytes: int
    smem_per_sm_bytes: int
    regs_per_sm: int = 65536
    threads_per_sm: int
    blocks_per_sm: int
    l2_bytes: int
    dram_gbps: float
    l2_gbps: float
    fp16_tc_tflops: float
    tf32_tc_tflops: float
    fp8_tc_tflops: float
    fp32_tflops: float
    warp_size: int = 32

    @property
    def capability(self) -> tuple[int, int]:
        """(major, minor) compute capability."""
        return divmod(self.arch, 10)


_TARGETS = (
    Target(name="sm_80", arch=80, part="A100 SXM 80GB", sms=108, sm_clock_ghz=1.41, smem_per_block_bytes=166912,
           smem_per_sm_bytes=167936, threads_per_sm=2048, blocks_per_sm=32, l2_bytes=40 << 20, dram_gbps=2039,
           l2_gbps=4600, fp16_tc_tflops=312, tf32_tc_tflops=156, fp8_tc_tflops=312, fp32_tflops=19.5),
    Target(name="sm_89", arch=89, part="L40S", sms=142, sm_clock_ghz=2.52, smem_per_block_bytes=101376,
           smem_per_sm_bytes=102400, threads_per_sm=1536, blocks_per_sm=24, l2_bytes=96 << 20, dram_gbps=864,
           l2_gbps=4800, fp16_tc_tflops=362, tf32_tc_tflops=183, fp8_tc_tflops=733, fp32_tflops=91.6),
    Target(name="sm_90", arch=90, part="H200 SXM", sms=132, sm_clock_ghz=1.83, smem_per_block_bytes=232448,
           smem_per_sm_bytes=233472, threads_per_sm=2048, blocks_per_sm=32, l2_bytes=50 << 20, dram_gbps=4800,
           l2_gbps=7000, fp16_tc_tflops=989, tf32_tc_tflops=494, fp8_tc_tflops=1979, fp32_tflops=66.9),
    Target(name="sm_100", arch=100, part="B200", sms=148, sm_clock_ghz=1.965, smem_per_block_bytes=232448,
           smem_per_sm_bytes=233472, threads_per_sm=2048, blocks_per_sm=32, l2_bytes=126 << 20, dram_gbps=8000,
           l2_gbps=10000, fp16_tc_tflops=2250, tf32_tc_tflops=1125, fp8_tc_tflops=4500, fp32_tflops=75),
    Target(name="sm_120", arch=120, part="RTX 5090", sms=170, sm_clock_ghz=2.407, smem_per_block_bytes=101376,
           smem_per_sm_bytes=102400, threads_per_sm=1536, blocks_per_sm=24, l2_bytes=96 << 20, dram_gbps=1792,
           l2_gbps=6500, fp16_tc_tflops=419, tf32_tc_tflops=105, fp8_tc_tflops=838, fp32_tflops=104.8),
)  # fmt: skip
TARGETS: dict[str, Target] = {t.name: t for t in _TARGETS}
DEFAULT_TARGET = "sm_90"


def target(name: str) -> Target:
    """Look a target up by name ("sm_90", "90").

    Raises TargetError when it is not known.
    """
    key = name if name.startswith("sm_") else f"sm_{name}"
    found = TARGETS.get(key)
    if found is None:
        raise TargetError(f"unknown target {name!r}", f"choose one of {', '.join(TARGETS)}")
    return found
