"""Occupancy against values of NVIDIA's occupancy calculator."""

from __future__ import annotations

import pytest

from klineage.gate.occupancy import occupancy
from klineage.model import target


@pytest.mark.parametrize(
    ("name", "registers", "smem_bytes", "threads", "blocks", "limiter"),
    [
        ("sm_90", 32, 0, 256, 8, "threads"),
        ("sm_90", 33, 0, 256, 6, "registers"),
        ("sm_90", 128, 0, 256, 2, "registers"),
        ("sm_90", 255, 0, 256, 1, "registers"),
        ("sm_90", 32, 100_000, 128, 2, "shared memory"),
        ("sm_90", 32, 232_448, 128, 1, "shared memory"),
        ("sm_90", 16, 0, 32, 32, "blocks"),
        ("sm_80", 64, 49_152, 128, 3, "shared memory"),
        ("sm_80", 40, 0, 1024, 1, "registers"),
        ("sm_89", 32, 0, 256, 6, "threads"),
        ("sm_89", 16, 0, 32, 24, "blocks"),
        ("sm_120", 168, 65_536, 256, 1, "registers"),
    ],
)
def test_resident_blocks(name: str, registers: int, smem_bytes: int, threads: int, blocks: int, limiter: str):
    found = occupancy(target(name), registers, smem_bytes, threads)
    assert (found.blocks_per_sm, found.limiter) == (blocks, limiter)
    assert found.fraction == pytest.approx(blocks * threads / target(name).threads_per_sm)


def test_a_block_that_does_not_fit():
    assert occupancy(target("sm_89"), 32, 200_000, 128).blocks_per_sm == 0
