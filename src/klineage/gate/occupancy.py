"""How many blocks of a launch fit on one multiprocessor: the arithmetic of NVIDIA's occupancy calculator."""

from __future__ import annotations

from ..model import Occupancy, Target

_REGISTER_UNIT = 256  # registers are given to a warp in units of this many
_SCHEDULERS = 4  # each with a quarter of the registers
_SMEM_UNIT_BYTES = 128
_SMEM_RESERVED_BYTES = 1024  # kept by the system for every block


def occupancy(target: Target, registers: int, smem_bytes: int, threads: int) -> Occupancy:
    """Resident blocks per multiprocessor of blocks of ``threads`` threads, each with ``registers`` registers, and
    ``smem_bytes`` of shared memory per block.

    Source: CUDA C++ programming guide, compute capabilities 8.0 to 12.0 (all with the same allocation units).
    """
    warps = -(-threads // target.warp_size)
    registers_per_warp = -(-max(registers, 1) * target.warp_size // _REGISTER_UNIT) * _REGISTER_UNIT
    warps_by_registers = target.regs_per_sm // _SCHEDULERS // registers_per_warp * _SCHEDULERS
    smem = -(-(smem_bytes + _SMEM_RESERVED_BYTES) // _SMEM_UNIT_BYTES) * _SMEM_UNIT_BYTES
    limits = {
        "threads": target.threads_per_sm // (warps * target.warp_size),
        "blocks": target.blocks_per_sm,
        "registers": warps_by_registers // warps,
        "shared memory": target.smem_per_sm_bytes // smem,
    }
    limiter = min(limits, key=lambda name: limits[name])
    blocks = limits[limiter]
    fraction = blocks * warps * target.warp_size / target.threads_per_sm
    return Occupancy(blocks_per_sm=blocks, fraction=fraction, limiter=limiter)
