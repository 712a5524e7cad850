"""Split-K: refusals first, then both ways, then the round trip."""

from __future__ import annotations

import pytest
import torch

from klineage.model import TARGETS
from klineage.moves import Context, holds, move
from klineage.surface import Module

from .kernels import ELEMENTWISE, HEAD, MATMUL, normal, proposals, refusals
from .run import same

SPLIT = move("split_k")


def _inputs(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(40, 200, dtype=dtype), torch.randn(200, 35, dtype=dtype)


WHOLE = (
    HEAD
    + """@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):
    pid = tl.program_id(0)
    pid_m = pid // tl.cdiv(N, BLOCK_N)
    pid_n = pid % tl.cdiv(N, BLOCK_N)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak
    b_ptrs = b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        k_mask = offs_k < K - k * BLOCK_K
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & k_mask[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=k_mask[:, None] & (offs_n[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=c_mask)


def run(a, b):
    M, K = a.shape
    _, N = b.shape
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = (triton.cdiv(M, 16) * triton.cdiv(N, 16),)
    matmul_kernel[grid](
        a, b, c, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), BLOCK_M=16, BLOCK_N=16, BLOCK_K=32,
    )
    return c
"""
)

ALLOCATED = "torch.empty((M, N), device=a.device, dtype=a.dtype)"
GRID = "(triton.cdiv(M, 16) * triton.cdiv(N, 16)"
SPLIT_4 = (
    WHOLE.replace("BLOCK_K: tl.constexpr,\n):", "BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,\n):")
    .replace(
        "    for k in range(0, tl.cdiv(K, BLOCK_K)):\n",
        "    pid_k = tl.program_id(1)\n    a_ptrs += pid_k * (BLOCK_K * stride_ak)\n"
        "    b_ptrs += pid_k * (BLOCK_K * stride_bk)\n    for k in range(pid_k, tl.cdiv(K, BLOCK_K), SPLIT_K):\n",
    )
    .replace("        a_ptrs += BLOCK_K * stride_ak\n", "        a_ptrs += SPLIT_K * (BLOCK_K * stride_ak)\n")
    .replace("        b_ptrs += BLOCK_K * stride_bk\n", "        b_ptrs += SPLIT_K * (BLOCK_K * stride_bk)\n")
    .replace("tl.store(c_ptr", "tl.atomic_add(c_ptr")
    .replace("acc, mask=c_mask)", 'acc, mask=c_mask, sem="relaxed")')
    .replace(ALLOCATED, "torch.zeros((M, N), device=a.device, dtype=torch.float32)")
    .replace(f"    grid = {GRID},)", f"    SPLIT_K = 4\n    grid = {GRID}, SPLIT_K)")
    .replace("BLOCK_K=32,\n", "BLOCK_K=32, SPLIT_K=SPLIT_K,\n")
    .replace("return c\n", "return c.to(a.dtype)\n")
)

EXPERT = (
    HEAD
    + """@triton.jit
def gemm_kernel(
    A, B, C, bias_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
):
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    pid_z = tl.program_id(2)
    rm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    rk = pid_z * BLOCK_K + tl.arange(0, BLOCK_K)
    A = A + (rm[:, None] * stride_am + rk[None, :] * stride_ak)
    B = B + (rk[:, None] * stride_bk + rn[None, :] * stride_bn)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    # every SPLIT_K-th block
    for k in range(0, tl.cdiv(K, BLOCK_K * SPLIT_K)):
        k_remaining = K - k * (BLOCK_K * SPLIT_K)
        a = tl.load(A, mask=(rm[:, None] < M) & (rk[None, :] < k_remaining), other=0.0)
        b = tl.load(B, mask=(rk[:, None] < k_remaining) & (rn[None, :] < N), other=0.0)
        acc += tl.dot(a, b)
        A += BLOCK_K * SPLIT_K * stride_ak
        B += BLOCK_K * SPLIT_K * stride_bk
    if pid_z == 0:
        acc += tl.load(bias_ptr + rn, mask=rn < N, other=0.0)[None, :]
    C = C + (rm[:, None] * N + rn[None, :])
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    if SPLIT_K == 1:
        tl.store(C, acc, mask=mask)
    else:
        tl.atomic_add(C, acc, mask=mask, sem="relaxed")


def run(a, b):
    M, K = a.shape
    _, N = b.shape
    bias = b[0]
    c = torch.zeros((M, N), device=a.device, dtype=torch.float32)
    grid = lambda META: (triton.cdiv(M, META["BLOCK_M"]), triton.cdiv(N, META["BLOCK_N"]), META["SPLIT_K"])
    gemm_kernel[grid](
        a, b, c, bias, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1),
        BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, SPLIT_K=3,
    )
    return c
"""
)


def _simplify(source: str) -> list:
    return list(SPLIT.simplify(Module.parse(source)))


def _materialize(source: str, **options: object) -> list:
    return list(SPLIT.materialize(Module.parse(source), **options))  # type: ignore[arg-type]


def _reason(found: list) -> str:
    assert not proposals(found)
    (refused,) = refusals(found)
    return refused.reason


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("torch.zeros((M, N)", "torch.ones((M, N)", "does not start as zeros"),
        ("N, 16), SPLIT_K)", "N, 16), 5)", "cannot tell which programs share a tile"),
        ("(triton.cdiv(M, 16) * triton.cdiv(N, 16), SPLIT_K)", "(SPLIT_K, triton.cdiv(M, 16))", "not the last axis"),
        ("@triton.jit", "@triton.autotune(configs=[], key=[])\n@triton.jit", "autotune_set goes first"),
        ("c = torch.zeros((M, N), device=a.device, dtype=torch.float32)", "c = a", "does not allocate c itself"),
    ],
    ids=["not zero", "unknown axis", "first axis", "tuned", "given"],
)
def test_splits_that_cannot_be_joined_are_refused(old: str, new: str, words: str):
    assert words in _reason(_simplify(SPLIT_4.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("acc = tl.dot(a, b, acc)", "acc = tl.maximum(acc, tl.dot(a, b))", "acc is carried"),
        ("a_ptrs += BLOCK_K * stride_ak", "a_ptrs += k * stride_ak", "a_ptrs is carried"),
        ("acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)", "acc = tl.full((16, 16), 1.0, tl.float32)", "acc is"),
        ("    c_mask = ", "    tl.store(a_ptr, 0.0)\n    c_mask = ", "does not store its result once"),
        ("    c_mask = ", "    acc = acc + a_ptrs\n    c_mask = ", "a_ptrs is read after the loop"),
        ("c = torch.empty((M, N), device=a.device, dtype=a.dtype)", "c = a.new_empty(M, N)", "not allocated by"),
        (f"{GRID},)", f"{GRID}, 1, 1)", "no axis left"),
        ("    return c\n", "    d = c + 1\n    return c, d\n", "several places"),
    ],
    ids=["maximum", "step", "start", "two stores", "late pointer", "allocation", "batch", "uses"],
)
def test_loops_that_cannot_be_split_are_refused(old: str, new: str, words: str):
    assert words in _reason(_materialize(WHOLE.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("acc = tl.maximum(acc, 0.0)", "acc = tl.maximum(acc, 0.0) is not linear"),
        ("acc = acc * acc", "is not linear"),
        ("acc *= acc", "is not linear"),
        ("acc = acc + 1.0 * acc * acc", "is not linear"),
        ("acc = tl.where(acc > 0, acc, 0.0)", "is not linear"),
    ],
    ids=["relu", "square", "in place", "polynomial", "where"],
)
def test_nonlinear_epilogues_are_refused(line: str, words: str):
    assert words in _reason(_materialize(WHOLE.replace("    c_mask = ", f"    {line}\n    c_mask = ")))


def test_nonlinear_epilogue_unchecked_is_a_counter_example():
    source = WHOLE.replace("    c_mask = ", "    acc = tl.maximum(acc, 0.0)\n    c_mask = ")
    broken = proposals(_materialize(source, checked=False))[0]
    context = Context(Module.parse(source), broken.site, broken.params, TARGETS["sm_90"])
    assert holds(SPLIT.conditions[0], context) is False
    with pytest.raises(AssertionError):
        same(source, broken.source, *_inputs())
    good = proposals(_materialize(WHOLE))[0]
    assert holds(SPLIT.conditions[0], Context(Module.parse(WHOLE), good.site, good.params, TARGETS["sm_90"])) is True


def test_nothing_to_do():
    assert _simplify(WHOLE) == [] and _materialize(ELEMENTWISE) == [] and _materialize(SPLIT_4) == []
    assert "not linear" in _reason(_materialize(MATMUL))


def test_materialize():
    found = proposals(_materialize(WHOLE))
    assert [p.params["split_k"] for p in found] == ["4", "2", "8"]
    assert normal(found[0].source) == normal(SPLIT_4)
    assert proposals(_materialize(WHOLE, hints={"split_k": ["16", "1", "x"]}))[0].params["split_k"] == "16"


def test_simplify():
    (proposal,) = _simplify(SPLIT_4)
    assert normal(proposal.source) == normal(WHOLE)
    assert dict(proposal.params) == {"split_k": "4"}
    assert SPLIT.amount(Module.parse(SPLIT_4)) == 1 and SPLIT.amount(Module.parse(proposal.source)) == 0


def test_simplify_expert():
    (proposal,) = _simplify(EXPERT)
    assert proposal.params["split_k"] == "3"
    assert "SPLIT_K:" not in proposal.source and "pid_z" not in proposal.source
    assert "program_id(2)" not in proposal.source and "SPLIT_K=" not in proposal.source
    assert "    rk = tl.arange(0, BLOCK_K)\n" in proposal.source
    assert "    for k in range(0, tl.cdiv(K, BLOCK_K)):\n        k_remaining = K - k * BLOCK_K\n" in proposal.source
    assert "    tl.store(C, acc, mask=mask)\n" in proposal.source and "atomic" not in proposal.source
    assert "torch.empty((M, N)" in proposal.source
    same(EXPERT, proposal.source, *_inputs())


def test_simplify_follows_a_heuristic():
    flag = """@triton.heuristics({"EVEN_K": lambda args: args["K"] % (args["BLOCK_K"] * args["SPLIT_K"]) == 0})
@triton.jit"""
    source = EXPERT.replace("@triton.jit", flag).replace(
        "SPLIT_K: tl.constexpr,", "SPLIT_K: tl.constexpr, EVEN_K: tl.constexpr,"
    )
    (proposal,) = _simplify(source)
    assert 'args["K"] % (args["BLOCK_K"] * 1) == 0' in proposal.source
    same(source, proposal.source, *_inputs())


def test_materialize_lets_one_split_add_the_bias():
    (whole,) = proposals(_simplify(EXPERT))
    found = proposals(_materialize(whole.source))
    assert "    if pid_k == 0:\n        acc += tl.load(bias_ptr + rn" in found[0].source
    for proposal in found:
        same(whole.source, proposal.source, *_inputs())


def test_loop_over_offsets():
    source = (
        WHOLE.replace("for k in range(0, tl.cdiv(K, BLOCK_K)):", "for k in range(0, K, BLOCK_K):")
        .replace("K - k * BLOCK_K", "K - k")
        .replace("        acc = tl.dot(a, b, acc)\n", "        acc += tl.dot(a, b) * 0.5\n")
    )
    first = proposals(_materialize(source))[0]
    assert "for k in range(pid_k * BLOCK_K, K, BLOCK_K * SPLIT_K):" in first.source
    same(source, first.source, *_inputs())
    assert normal(_simplify(first.source)[0].source) == normal(source)


def test_sixteen_bit_outputs_sum_in_fp32():
    source = WHOLE.replace("acc, mask=c_mask)", "acc.to(tl.float16), mask=c_mask)")
    for proposal in proposals(_materialize(source)):
        assert "acc.to(tl.float16)" not in proposal.source
        same(source, proposal.source, *_inputs(torch.float16), tolerance=2e-3)
    like = WHOLE.replace("torch.empty((M, N), device=a.device, dtype=a.dtype)", "torch.empty_like(a[:, :N])")
    first = proposals(_materialize(like))[0]
    assert "torch.zeros_like(a[:, :N], dtype=torch.float32)" in first.source
    assert normal(_simplify(first.source)[0].source) == normal(like)


def test_meaning_is_kept():
    for proposal in proposals(_materialize(WHOLE)):
        same(WHOLE, proposal.source, *_inputs())
    same(SPLIT_4, _simplify(SPLIT_4)[0].source, *_inputs())
