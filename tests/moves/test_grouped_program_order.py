"""Grouped program order: refusals first, then both ways, then the round trip."""

from __future__ import annotations

import pytest
import torch

from klineage.moves import move
from klineage.surface import Module

from .kernels import ELEMENTWISE, MATMUL, normal, proposals, refusals
from .run import same

ORDER = move("grouped_program_order")


def _simplify(source: str) -> list:
    return list(ORDER.simplify(Module.parse(source)))


def _materialize(source: str, **options: object) -> list:
    return list(ORDER.materialize(Module.parse(source), **options))  # type: ignore[arg-type]


START = MATMUL.index("    num_pid_m = ")
END = MATMUL.index("    offs_m = ")
PLAIN_MAP = "    num_pid_n = tl.cdiv(N, BLOCK_N)\n    pid_m = pid // num_pid_n\n    pid_n = pid % num_pid_n\n"
PLAIN = (MATMUL[:START] + PLAIN_MAP + MATMUL[END:]).replace(", GROUP_M: tl.constexpr", "").replace(", GROUP_M=8", "")
PLANE = PLAIN.replace(
    "    pid = tl.program_id(0)\n" + PLAIN_MAP, "    pid_m = tl.program_id(0)\n    pid_n = tl.program_id(1)\n"
)
PLANE = PLANE.replace(
    "(triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)", "(triton.cdiv(M, BLOCK_M), triton.cdiv(N, BLOCK_N))"
)

OTHER_NAMES = (
    MATMUL[:START]
    + """    tiles_n = (N + BLOCK_N - 1) // BLOCK_N
    tiles_m = (M + BLOCK_M - 1) // BLOCK_M
    width = tiles_n * GROUP_M
    first = (pid // width) * GROUP_M
    rows = tl.minimum(GROUP_M, tiles_m - first)
    pid_n = (pid % width) // rows
    pid_m = first + pid % rows
"""
    + MATMUL[END:]
)
HELPER = (
    MATMUL[:START]
    + """    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    num_pid_in_group = GROUP_M * num_pid_n
    pid_m, pid_n = compute_pid(pid, num_pid_in_group, num_pid_m, GROUP_M)
"""
    + MATMUL[END:]
).replace(
    "@triton.jit",
    """@triton.jit
def compute_pid(tile_id, num_pid_in_group, num_pid_m, GROUP_M: tl.constexpr):
    group_id = tile_id // num_pid_in_group
    first_pid_m = group_id * GROUP_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_M)
    pid_m = first_pid_m + (tile_id % group_size_m)
    pid_n = (tile_id % num_pid_in_group) // group_size_m
    return pid_m, pid_n


@triton.jit""",
    1,
)
SWIZZLE = (
    MATMUL[:START]
    + """    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    pid_m = pid // num_pid_n
    pid_n = pid % num_pid_n
    pid_m, pid_n = tl.swizzle2d(pid_m, pid_n, num_pid_m, num_pid_n, GROUP_M)
"""
    + MATMUL[END:]
)
GROUPED = {"tutorial": MATMUL, "other names": OTHER_NAMES, "helper": HELPER, "swizzle2d": SWIZZLE}


def _small(source: str) -> str:
    """The same module with tiles of 16, so that several groups form in a small case."""
    return source.replace("BLOCK_M, BLOCK_N = 128, 256", "BLOCK_M, BLOCK_N = 16, 16").replace(
        "BLOCK_K=64", "BLOCK_K=16"
    )


def test_program_id_with_another_use_is_refused():
    source = PLAIN.replace("    offs_k = tl.arange(0, BLOCK_K)\n", "    offs_k = tl.arange(0, BLOCK_K) + 0 * pid\n")
    assert not proposals(_materialize(source))
    assert "read for more than the map" in refusals(_materialize(source))[0].reason
    assert proposals(_materialize(source, checked=False))


def test_unknown_tile_count_is_refused():
    source = PLANE.replace("offs_m[:, None] < M", "offs_m[:, None] < 96")
    assert [r.reason for r in refusals(_materialize(source))] == [
        "the tile counts do not follow from the kernel's bounds"
    ]


def test_unwritten_grid_is_refused():
    source = PLANE.replace("grid = (", "grid = make_grid(")
    assert "not written as a tuple" in refusals(_materialize(source))[0].reason


def test_index_read_too_early_is_refused():
    source = PLAIN.replace("    pid_n = pid % num_pid_n\n", "    early = pid_m + 1\n    pid_n = pid % num_pid_n\n")
    assert "read before the other one is bound" in refusals(_materialize(source))[0].reason


@pytest.mark.parametrize("source", [PLAIN, PLANE, ELEMENTWISE], ids=["row major", "plane", "elementwise"])
def test_nothing_to_take_out(source: str):
    assert _simplify(source) == []


def test_simplify_tutorial_form():
    (proposal,) = _simplify(MATMUL)
    assert proposal.source == PLAIN
    assert dict(proposal.params) == {"group": "8"}
    assert ORDER.amount(Module.parse(proposal.source)) == 0


@pytest.mark.parametrize("name", list(GROUPED))
def test_simplify_is_found_by_data_flow(name: str):
    (proposal,) = _simplify(GROUPED[name])
    assert proposal.params["group"] == "8"
    assert "GROUP_M" not in proposal.source and "compute_pid" not in proposal.source
    assert "pid // " in proposal.source and "pid % " in proposal.source
    assert _simplify(proposal.source) == []


def test_materialize_from_a_plane_flattens_the_grid():
    found = proposals(_materialize(PLANE))
    assert [p.params["group"] for p in found] == ["8", "4", "16"]
    assert "grid = (triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)" in found[0].source
    assert normal(_simplify(found[0].source)[0].source) == normal(PLAIN)


def test_third_grid_axis_stays():
    source = PLANE.replace("triton.cdiv(N, BLOCK_N))", "triton.cdiv(N, BLOCK_N), 1)").replace(
        "    pid_n = tl.program_id(1)\n", "    pid_n = tl.program_id(1)\n    batch = tl.program_id(2)\n"
    )
    assert "triton.cdiv(N, BLOCK_N), 1, 1)" in proposals(_materialize(source))[0].source


def test_wide_program_id_stays_wide():
    source = PLANE.replace("pid_m = tl.program_id(0)", "pid_m = tl.program_id(0).to(tl.int64)")
    assert "pid = tl.program_id(0).to(tl.int64)" in proposals(_materialize(source))[0].source


def test_hints_come_first():
    assert proposals(_materialize(PLAIN, hints={"group": ["6"]}))[0].params["group"] == "6"


def test_round_trip_is_exact():
    (proposal,) = _simplify(MATMUL)
    assert normal(MATMUL) == normal(proposals(_materialize(proposal.source))[0].source)


@pytest.mark.parametrize("name", ["other names", "helper", "swizzle2d"])
def test_round_trip_gives_the_tutorial_form(name: str):
    (proposal,) = _simplify(GROUPED[name])
    back = proposals(_materialize(proposal.source))[0]
    again = _simplify(back.source)[0].source
    assert sorted(normal(again).splitlines()) == sorted(normal(proposal.source).splitlines())


def test_meaning_is_kept():
    inputs = torch.randn(50, 17), torch.randn(17, 39), torch.randn(39)
    for source in GROUPED.values():
        same(_small(source), _small(_simplify(source)[0].source), *inputs)
    for source in (PLAIN, PLANE):
        for proposal in proposals(_materialize(source, hints={"group": ["2"]}))[:1]:
            same(_small(source), _small(proposal.source), *inputs)
