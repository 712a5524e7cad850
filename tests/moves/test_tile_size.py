"""Tile size: refusals first, then both ways, then the round trip."""

from __future__ import annotations

import pytest
import torch

from klineage.model import TARGETS
from klineage.moves import Context, holds, move
from klineage.surface import Module

from .kernels import ELEMENTWISE, MATMUL, ROW, ROW_LOOP, normal, proposals, refusals
from .run import KernelFailed, run, same

TILES = move("tile_size")
LITERAL = (
    MATMUL.replace("    BLOCK_M, BLOCK_N = 128, 256\n", "")
    .replace("triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N)", "triton.cdiv(M, 128) * triton.cdiv(N, 128)")
    .replace("BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=64", "BLOCK_M=128, BLOCK_N=128, BLOCK_K=64")
)
NAIVE = LITERAL.replace("128", "32").replace("BLOCK_K=64", "BLOCK_K=32")
NARROW = ELEMENTWISE.replace("1024", "256")


def _simplify(source: str) -> list:
    return list(TILES.simplify(Module.parse(source)))


def _materialize(source: str, **options: object) -> list:
    return list(TILES.materialize(Module.parse(source), **options))  # type: ignore[arg-type]


def test_literal_with_another_meaning_is_refused():
    source = ELEMENTWISE.replace("(triton.cdiv(n, 1024),)", "((n + 1023) // 1024,)")
    assert not proposals(_simplify(source))
    assert "the launcher also uses 1023" in refusals(_simplify(source))[0].reason


def test_count_of_an_unknown_extent_is_refused():
    source = NAIVE.replace("triton.cdiv(N, 32)", "triton.cdiv(b.shape[-1], 32)").replace("_, N = b.shape", "N = 96")
    found = _materialize(source)
    assert any("cannot tell which tile" in r.reason for r in refusals(found))


def test_one_name_for_two_tiles_is_refused_when_they_would_differ():
    source = MATMUL.replace("BLOCK_M, BLOCK_N = 128, 256", "TILE = 32").replace("BLOCK_K=64", "BLOCK_K=32")
    source = source.replace("=BLOCK_M", "=TILE").replace("=BLOCK_N", "=TILE")
    source = source.replace("cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N)", "cdiv(M, TILE) * triton.cdiv(N, TILE)", 1)
    source = source.replace("num_pid_m = tl.cdiv(M, TILE)", "num_pid_m = tl.cdiv(M, BLOCK_M)")
    found = _materialize(source)
    assert "TILE is the size of two tiles that would differ" in [r.reason for r in refusals(found)]
    assert all("TILE = 64" in p.source or "TILE = 128" in p.source for p in proposals(found))


@pytest.mark.parametrize("source", [ROW, NAIVE, NARROW], ids=["whole row", "naive matmul", "256 wide"])
def test_nothing_to_take_out(source: str):
    assert _simplify(source) == []


def test_simplify_matmul_named_sizes():
    (proposal,) = _simplify(MATMUL)
    assert "BLOCK_M, BLOCK_N = 32, 32" in proposal.source
    assert "BLOCK_K=32" in proposal.source
    assert dict(proposal.params) == {"tile": "m=128,n=256,k=64"}
    assert TILES.amount(Module.parse(proposal.source)) == 0


def test_simplify_literals_follow_in_the_grid():
    (proposal,) = _simplify(LITERAL)
    assert proposal.source == NAIVE


def test_simplify_elementwise_and_loop():
    assert _simplify(ELEMENTWISE)[0].source == ELEMENTWISE.replace("1024", "256")
    assert _simplify(ROW_LOOP)[0].source == ROW_LOOP.replace("512", "256")


def test_lambda_grid_is_left_alone():
    source = LITERAL.replace("grid = (triton.cdiv(M, 128) * triton.cdiv(N, 128),)", "grid = lambda META: (1,)")
    assert "grid = lambda META: (1,)" in _simplify(source)[0].source


def test_module_constant_is_followed():
    source = ELEMENTWISE.replace("@triton.jit", "WIDTH = 1024\n\n\n@triton.jit").replace("BLOCK=1024", "BLOCK=WIDTH")
    source = source.replace("triton.cdiv(n, 1024)", "triton.cdiv(n, WIDTH)")
    assert "WIDTH = 256" in _simplify(source)[0].source


def test_materialize_tells_the_axes_apart():
    first = proposals(_materialize(NAIVE))[0]
    assert dict(first.params) == {"tile": "m=128,n=256,k=64"}
    assert "(triton.cdiv(M, 128) * triton.cdiv(N, 256),)" in first.source


def test_materialize_brings_the_warps_a_large_accumulator_needs():
    first = proposals(_materialize(NAIVE.replace(", num_warps=8", "")))[0]
    assert first.params["tile"] == "m=128,n=256,k=64"
    assert "num_warps=8" in first.source


def test_hints_come_first():
    found = proposals(_materialize(NAIVE, hints={"tile": ["m=64,n=64,k=128", "nonsense"]}))
    assert found[0].params["tile"] == "m=64,n=64,k=128"
    assert len(found) <= 12


@pytest.mark.parametrize("source", [MATMUL, LITERAL, ELEMENTWISE, ROW_LOOP], ids=["named", "literal", "flat", "loop"])
def test_round_trip(source: str):
    (proposal,) = _simplify(source)
    assert normal(source) in [normal(p.source) for p in proposals(_materialize(proposal.source))]


def test_unchecked_breaks_each_condition():
    def told(name: int, checked: bool) -> set:
        module, condition = Module.parse(NAIVE), TILES.conditions[name]
        found = proposals(_materialize(NAIVE, checked=checked))
        return {holds(condition, Context(module, p.site, p.params, TARGETS["sm_90"])) for p in found}

    assert told(0, True) == {True} and told(1, True) == {True}
    assert told(0, False) == {True, False} and told(1, False) == {True, False}


def test_unchecked_tile_that_is_no_power_of_two_fails():
    wrong = next(p for p in proposals(_materialize(NARROW, checked=False)) if p.params["tile"] == "row=384")
    with pytest.raises(KernelFailed, match="power of 2"):
        run(wrong.source, torch.randn(700))


def test_meaning_is_kept():
    x = torch.randn(1300)
    same(ELEMENTWISE, _simplify(ELEMENTWISE)[0].source, x)
    a, b, bias = torch.randn(70, 100), torch.randn(100, 81), torch.randn(81)
    for proposal in proposals(_materialize(NAIVE))[:3]:
        same(NAIVE, proposal.source, a, b, bias)
    same(MATMUL, _simplify(MATMUL)[0].source, a, b, bias)
