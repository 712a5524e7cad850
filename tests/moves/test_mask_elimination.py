"""Mask elimination: refusals first, then both ways, the round trip, and equal outputs on even and odd lengths."""

from __future__ import annotations

import pytest
import torch

from klineage.model import TARGETS
from klineage.moves import Context, holds, move
from klineage.surface import Module

from .gated import Disagree, agree
from .kernels import ELEMENTWISE, HEAD, ROW_LOOP, normal, proposals, refusals
from .row_kernels import SOFTMAX, SOFTMAX_LOOPS

MOVE = move("mask_elimination")

MATMUL = (
    HEAD
    + """@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    offs_n = tl.program_id(1) * BN + tl.arange(0, BN)
    offs_k = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        a_ptrs = a_ptr + offs_m[:, None] * K + (k * BK + offs_k)[None, :]
        b_ptrs = b_ptr + (k * BK + offs_k)[:, None] * N + offs_n[None, :]
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K - k * BK), other=0.0)
        b = tl.load(b_ptrs, mask=(offs_k[:, None] < K - k * BK) & (offs_n[None, :] < N), other=0.0)
        acc += tl.dot(a, b)
    c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=c_mask)


def run(a, b):
    M, K = a.shape
    K, N = b.shape
    c = torch.empty((M, N), dtype=torch.float32, device=a.device)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    matmul_kernel[grid](a, b, c, M, N, K, BM=16, BN=16, BK=16, num_warps=4)
    return c
"""
)

FLAGGED = ELEMENTWISE.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, EVEN: tl.constexpr").replace(
    "    x = tl.load(x_ptr + offs, mask=mask, other=0.0)\n",
    "    if EVEN:\n        x = tl.load(x_ptr + offs)\n    else:\n"
    "        x = tl.load(x_ptr + offs, mask=mask, other=0.0)\n",
)
FLAGGED = FLAGGED.replace("BLOCK=1024, ", "BLOCK=1024, EVEN=n % 1024 == 0, ")


def _simplify(source: str) -> list:
    return list(MOVE.simplify(Module.parse(source)))


def _materialize(source: str, **options: object) -> list:
    return list(MOVE.materialize(Module.parse(source), **options))  # type: ignore[arg-type]


# ---------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x = tl.load(x_ptr + offs)", "x = tl.load(x_ptr + offs) * 1.5"),
        ("        x = tl.load(x_ptr + offs)\n", "        x = tl.load(x_ptr + offs)\n        x = x + 0.0\n"),
        ("    if EVEN:", "    if EVEN and n > 5:"),
        ("        x = tl.load(x_ptr + offs)\n", "        x = tl.load(x_ptr + offs, mask=mask, other=0.0)\n"),
    ],
    ids=["other value", "other length", "runtime test", "both masked"],
)
def test_branches_that_differ_in_more_than_masks_stay(old: str, new: str):
    assert old in FLAGGED
    assert _simplify(FLAGGED.replace(old, new)) == []


@pytest.mark.parametrize("source", [ELEMENTWISE, SOFTMAX, ROW_LOOP, MATMUL], ids=["flat", "row", "loop", "matmul"])
def test_always_masked_is_nothing_to_simplify(source: str):
    assert _simplify(source) == [] and MOVE.amount(Module.parse(source)) == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("tl.program_id(0) * BLOCK + tl.arange", "tl.program_id(0) * BLOCK - 1 + tl.arange"),
        ("tl.program_id(0) * BLOCK", "tl.program_id(0) * 7"),
        ("mask = offs < n", "mask = offs >= n"),
        ("tl.arange(0, BLOCK)", "tl.arange(0, 1024)"),
    ],
    ids=["halo", "overlap", "other comparison", "literal tile"],
)
def test_bounds_that_are_no_whole_tiles_are_left_alone(old: str, new: str):
    assert _materialize(ELEMENTWISE.replace(old, new)) == []


def test_length_unknown_to_the_launcher_is_refused():
    source = ELEMENTWISE.replace("    mask = offs < n", "    limit = n * tl.num_programs(0)\n    mask = offs < limit")
    found = _materialize(source)
    assert not proposals(found)
    assert "the launcher does not pass what limit is made of" in refusals(found)[0].reason


# ---------------------------------------------------------------------- both ways
def test_simplify_keeps_the_masked_branch_and_drops_the_flag():
    (proposal,) = _simplify(FLAGGED)
    assert normal(proposal.source) == normal(ELEMENTWISE)
    assert dict(proposal.params) == {"flags": "EVEN"}
    assert MOVE.amount(Module.parse(FLAGGED)) == 1 and MOVE.amount(Module.parse(proposal.source)) == 0


def test_simplify_drops_heuristics_too():
    tuned = FLAGGED.replace(", EVEN=n % 1024 == 0", "").replace(
        "@triton.jit", '@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})\n@triton.jit'
    )
    assert normal(_simplify(tuned)[0].source) == normal(ELEMENTWISE)
    two = tuned.replace("== 0})", '== 0, "OTHER": lambda args: True})')
    assert '@triton.heuristics({"OTHER": lambda args: True})' in _simplify(two)[0].source


def test_simplify_nested_flags():
    source = MATMUL.replace("BK: tl.constexpr", "BK: tl.constexpr, EVEN_K: tl.constexpr, EVEN_N: tl.constexpr")
    source = source.replace("num_warps=4", "num_warps=4, EVEN_K=K % 16 == 0, EVEN_N=N % 16 == 0")
    line = "        b = tl.load(b_ptrs, mask=(offs_k[:, None] < K - k * BK) & (offs_n[None, :] < N), other=0.0)\n"
    branches = """        if EVEN_K:
            if EVEN_N:
                b = tl.load(b_ptrs)
            else:
                b = tl.load(b_ptrs, mask=offs_n[None, :] < N, other=0.0)
        else:
            if EVEN_N:
                b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BK, other=0.0)
            else:
                b = tl.load(b_ptrs, mask=(offs_k[:, None] < K - k * BK) & (offs_n[None, :] < N), other=0.0)
"""
    assert line in source
    (proposal,) = _simplify(source.replace(line, branches))
    assert normal(proposal.source) == normal(MATMUL)


def test_materialize_row_drops_the_fill_value_with_the_mask():
    (proposal,) = _materialize(SOFTMAX)
    text = proposal.source
    assert 'if EVEN_N:\n        x = tl.load(X + row * stride + offs, cache_modifier=".ca")\n' in text
    assert text.count("if EVEN_N:") == 2 and "EVEN_N=n % BLOCK == 0" in text
    assert dict(proposal.params) == {"flags": "EVEN_N", "dimensions": "n"}


def test_materialize_offers_the_loop_dimension_first_then_all():
    found = proposals(_materialize(MATMUL))
    assert [p.params["dimensions"] for p in found] == ["K", "M", "N", "K,M,N"]
    first = found[0].source
    assert "if EVEN_K:\n            a = tl.load(a_ptrs, mask=offs_m[:, None] < M, other=0.0)\n" in first
    assert "EVEN_K=K % 16 == 0" in first
    assert "        if EVEN_K and EVEN_M and EVEN_N:\n            a = tl.load(a_ptrs)\n" in found[-1].source


def test_materialize_autotuned_tile_uses_heuristics():
    tuned = ELEMENTWISE.replace("BLOCK=1024, num_warps=8", "").replace(
        "@triton.jit", '@triton.autotune(configs=[triton.Config({"BLOCK": 512})], key=["n"])\n@triton.jit'
    )
    (proposal,) = _materialize(tuned)
    assert (
        'key=["n"])\n@triton.heuristics({"EVEN_N": lambda args: args["n"] % args["BLOCK"] == 0})\n' in proposal.source
    )
    assert normal(_simplify(proposal.source)[0].source) == normal(tuned)


def test_flag_whose_name_is_taken_gets_another():
    source = SOFTMAX.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, EVEN_N: tl.constexpr = False")
    (proposal,) = _materialize(source)
    assert "EVEN_N_: tl.constexpr = False" in proposal.source


@pytest.mark.parametrize("source", [ELEMENTWISE, SOFTMAX, SOFTMAX_LOOPS, ROW_LOOP, MATMUL],
                         ids=["flat", "row", "loops", "vector", "matmul"])  # fmt: skip
def test_round_trip_is_exact(source: str):
    found = proposals(_materialize(source))
    assert found and len(found) <= 5
    for proposal in found:
        assert normal(_simplify(proposal.source)[0].source) == normal(source)


def test_outputs_agree_on_even_and_odd_lengths():
    torch.manual_seed(0)
    rows = [(torch.randn(2, n),) for n in (31, 128, 257)]
    agree(SOFTMAX, [p.source for p in proposals(_materialize(SOFTMAX))], rows)
    products = [(torch.randn(m, k), torch.randn(k, n)) for m, n, k in ((16, 32, 48), (5, 16, 33), (16, 7, 16))]
    agree(MATMUL, [p.source for p in proposals(_materialize(MATMUL))], products, tolerance=2e-3)


def test_unchecked_breaks_odd_lengths_and_only_those():
    broken = proposals(_materialize(SOFTMAX, checked=False))[0].source
    assert "EVEN" not in broken and "mask=" not in broken
    agree(SOFTMAX, [broken], [(torch.randn(2, 128),)])
    with pytest.raises(Disagree, match=r"out_of_bounds|off by"):
        agree(SOFTMAX, [broken], [(torch.randn(2, 100),)])


def test_condition_tells():
    (condition,) = MOVE.conditions
    (proposal,) = _materialize(SOFTMAX)
    (broken,) = _materialize(SOFTMAX, checked=False)

    def told(p) -> bool | None:
        return holds(condition, Context(Module.parse(p.source), p.site, p.params, TARGETS["sm_90"]))

    assert told(proposal) is True and told(broken) is False
