"""Descriptor loads: refusals first, then both ways, the round trip, and equal outputs on both sides of the flag."""

from __future__ import annotations

import pytest
import torch

from klineage.model import TARGETS
from klineage.moves import Context, holds, move
from klineage.surface import Module

from .gated import agree
from .kernels import ELEMENTWISE, HEAD, normal, proposals, refusals
from .row_kernels import SOFTMAX

MOVE = move("descriptor_loads")

POINTERS = (
    HEAD
    + """@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):
    pid_m = tl.program_id(0)
    pid_n = tl.program_id(1)
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a_ptrs = a_ptr + offs_m[:, None] * stride_am + (k + offs_k)[None, :] * stride_ak
        b_ptrs = b_ptr + (k + offs_k)[:, None] * stride_bk + offs_n[None, :] * stride_bn
        a = tl.load(a_ptrs, mask=(offs_m[:, None] < M) & ((k + offs_k)[None, :] < K), other=0.0)
        b = tl.load(b_ptrs, mask=((k + offs_k)[:, None] < K) & (offs_n[None, :] < N), other=0.0)
        acc += tl.dot(a, b)
    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn
    c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(c_ptrs, acc, mask=c_mask)


def run(a, b):
    M, K = a.shape
    K, N = b.shape
    c = torch.empty((M, N), dtype=torch.float32, device=a.device)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    matmul_kernel[grid](
        a, b, c, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1),
        BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, num_warps=4,
    )
    return c
"""
)

WALKED = (
    POINTERS.replace("    for k in range(0, K, BLOCK_K):\n        a_ptrs =", "    a_ptrs =")
    .replace("(k + offs_k)[None, :] * stride_ak\n        b_ptrs =", "offs_k[None, :] * stride_ak\n    b_ptrs =")
    .replace(
        "(k + offs_k)[:, None] * stride_bk + offs_n[None, :] * stride_bn\n",
        "offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn\n    for k in range(0, tl.cdiv(K, BLOCK_K)):\n",
    )
    .replace("(k + offs_k)[None, :] < K", "offs_k[None, :] < K - k * BLOCK_K")
    .replace("(k + offs_k)[:, None] < K", "offs_k[:, None] < K - k * BLOCK_K")
    .replace(
        "        acc += tl.dot(a, b)\n",
        "        acc += tl.dot(a, b)\n        a_ptrs += BLOCK_K * stride_ak\n        b_ptrs += BLOCK_K * stride_bk\n",
    )
)

DESCRIBED = (
    HEAD
    + """@triton.jit
def scale_kernel(a_ptr, c_ptr, M, K, stride, BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr):
    pid = tl.program_id(0)
    a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [stride, 1], [BLOCK_M, BLOCK_K])
    c_desc = tl.make_tensor_descriptor(c_ptr, shape=[M, K], strides=[stride, 1], block_shape=[BLOCK_M, BLOCK_K])
    for k in range(0, K, BLOCK_K):
        x = a_desc.load([pid * BLOCK_M, k])
        c_desc.store([pid * BLOCK_M, k], x * 2.0)


def alloc(size: int, alignment: int, stream: int | None):
    return torch.empty(size, dtype=torch.int8, device="cuda")


def run(a):
    M, K = a.shape
    c = torch.empty_like(a)
    triton.set_allocator(alloc)
    scale_kernel[(triton.cdiv(M, 16),)](a, c, M, K, a.stride(0), BLOCK_M=16, BLOCK_K=16)
    return c
"""
)


def _simplify(source: str) -> list:
    return list(MOVE.simplify(Module.parse(source)))


def _materialize(source: str, **options: object) -> list:
    return list(MOVE.materialize(Module.parse(source), **options))  # type: ignore[arg-type]


# ---------------------------------------------------------------------- refusals
@pytest.mark.parametrize("source", [POINTERS, ELEMENTWISE, SOFTMAX], ids=["matmul", "flat", "row"])
def test_pointers_are_nothing_to_simplify(source: str):
    assert _simplify(source) == [] and MOVE.amount(Module.parse(source)) == 0


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("x = a_desc.load([pid * BLOCK_M, k])", "x = a_desc.gather(tl.arange(0, 16), k)", "a_desc.gather has no plain"),
        ("x = a_desc.load([pid * BLOCK_M, k])", "x = fetch(a_desc, k)", "a_desc is used for more"),
        ("a_ptr, [M, K],", "a_ptr, shape,", "the shape of a_desc is not written out"),
        ("a_desc.load([pid * BLOCK_M, k])", "a_desc.load(where)", "the offsets of a_desc are not written out"),
    ],
    ids=["gather", "passed on", "shape in a name", "offsets in a name"],
)  # fmt: skip
def test_simplify_refuses(old: str, new: str, reason: str):
    assert old in DESCRIBED
    found = _simplify(DESCRIBED.replace(old, new))
    assert not proposals(found) and refusals(found)[0].reason.startswith(reason)


@pytest.mark.parametrize("source", [ELEMENTWISE, SOFTMAX], ids=["flat", "row"])
def test_one_dimension_is_nothing_to_materialize(source: str):
    assert _materialize(source) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("other=0.0)", 'other=float("-inf"))'),
        ("offs_m[:, None] * stride_am +", "offs_m[:, None] * offs_m[:, None] * stride_am +"),
        ("mask=(offs_m[:, None] < M) & ((k + offs_k)[None, :] < K), other=0.0", "mask=offs_m[:, None] < M, other=0.0"),
    ],
    ids=["fill value", "square index", "no bound"],
)
def test_tiles_that_a_descriptor_does_not_describe_stay(old: str, new: str):
    assert old in POINTERS
    texts = [p.source for p in proposals(_materialize(POINTERS.replace(old, new)))]
    assert not any("a_desc" in t for t in texts)


def test_strides_the_launcher_does_not_know_are_refused():
    source = POINTERS.replace(
        "    pid_m = tl", "    stride_am = stride_am * tl.num_programs(2)\n    row = stride_am * 1\n    pid_m = tl"
    )
    source = source.replace("offs_m[:, None] * stride_am", "offs_m[:, None] * row")
    found = _materialize(source)
    assert not proposals(found)
    assert "the launcher does not pass the strides" in refusals(found)[0].reason


# ---------------------------------------------------------------------- both ways
def test_simplify_gives_masked_pointers_and_drops_the_allocator():
    (proposal,) = _simplify(DESCRIBED)
    text = proposal.source
    assert "desc" not in text.split("def run")[0] and "alloc" not in text
    assert "a_rows = pid * BLOCK_M + tl.arange(0, BLOCK_M)" in text
    assert (
        "x = tl.load(a_ptr + a_rows[:, None] * stride + a_cols[None, :], "
        "mask=(a_rows[:, None] < M) & (a_cols[None, :] < K), other=0.0)" in text
    )
    assert proposal.params["accesses"] == "loads and stores"
    assert MOVE.amount(Module.parse(DESCRIBED)) == 1 and MOVE.amount(Module.parse(text)) == 0


def test_allocator_of_another_kernel_stays():
    other = DESCRIBED.split("\n\n\n")[1].replace("scale_kernel", "other_kernel")
    source = DESCRIBED.replace("def alloc", f"{other}\n\n\ndef alloc")
    assert "triton.set_allocator(alloc)" in _simplify(source)[0].source


def test_materialize_offers_loads_then_stores_too():
    found = proposals(_materialize(POINTERS))
    assert [p.params["accesses"] for p in found] == ["loads", "loads and stores"]
    text = found[0].source
    assert "a = a_desc.load([pid_m * BLOCK_M, k])" in text and "b = b_desc.load([k, pid_n * BLOCK_N])" in text
    assert "strides=[stride_am, 1],\n            block_shape=[BLOCK_M, BLOCK_K]" in text
    assert "a.stride(1) == 1\n        and a.stride(0) * a.element_size() % 16 == 0" in text
    assert text.index("triton.set_allocator") < text.index("matmul_kernel[grid]")
    assert "c_desc.store([pid_m * BLOCK_M, pid_n * BLOCK_N], acc.to(c_ptr.dtype.element_ty))" in found[1].source


def test_materialize_pointers_that_walk():
    text = proposals(_materialize(WALKED))[0].source
    assert "a = a_desc.load([pid_m * BLOCK_M, k * BLOCK_K])" in text
    assert "b = b_desc.load([k * BLOCK_K, pid_n * BLOCK_N])" in text


def test_materialize_wrapped_rows_and_turned_tiles():
    wrapped = POINTERS.replace("tl.arange(0, BLOCK_M)\n", "tl.arange(0, BLOCK_M)\n    offs_am = offs_m % M\n", 1)
    wrapped = wrapped.replace("a_ptr + offs_m[:, None]", "a_ptr + offs_am[:, None]")
    wrapped = wrapped.replace("(offs_m[:, None] < M) & ((k", "((k")
    assert "shape=[M, K]" in proposals(_materialize(wrapped))[0].source
    turned = POINTERS.replace("(k + offs_k)[:, None] * stride_bk + offs_n[None, :] * stride_bn",
                              "(k + offs_k)[:, None] + offs_n[None, :] * stride_bn")  # fmt: skip
    text = proposals(_materialize(turned))[0].source
    assert "b = b_desc.load([pid_n * BLOCK_N, k]).T" in text and "shape=[N, K]" in text


@pytest.mark.parametrize("source", [POINTERS, WALKED], ids=["indexed", "walked"])
def test_round_trip_is_exact(source: str):
    for proposal in proposals(_materialize(source)):
        assert normal(_simplify(proposal.source)[0].source) == normal(source)


def test_plain_descriptors_come_back_behind_a_flag():
    back = proposals(_materialize(_simplify(DESCRIBED)[0].source))
    assert "x = a_desc.load([pid * BLOCK_M, k])" in back[-1].source
    assert "c_desc.store([pid * BLOCK_M, k], (x * 2.0).to(c_ptr.dtype.element_ty))" in back[-1].source


# ---------------------------------------------------------------------- outputs
def test_outputs_agree_on_both_sides_of_the_flag():
    torch.manual_seed(0)
    shapes = [(16, 32, 48), (20, 24, 36), (5, 7, 9), (33, 40, 12)]  # rows of 16 bytes or not
    cases = [(torch.randn(m, k), torch.randn(k, n)) for m, n, k in shapes]
    cases.append((torch.randn(24, 32).T, torch.randn(24, 16)))
    for source in (POINTERS, WALKED):
        agree(source, [p.source for p in proposals(_materialize(source))], cases, tolerance=2e-3)


def test_described_outputs_agree():
    simpler = _simplify(DESCRIBED)[0].source
    cases = [(torch.randn(m, k),) for m, k in ((16, 32), (20, 36))]
    agree(DESCRIBED, [simpler, *(p.source for p in proposals(_materialize(simpler)))], cases)


def test_unchecked_has_no_flag():
    loads, _ = proposals(_materialize(POINTERS, checked=False))
    assert "TMA" not in loads.source and "describable" not in loads.source
    assert loads.params["flag"] == "none" and "a = a_desc.load" in loads.source


def test_conditions_tell():
    hardware, aligned = MOVE.conditions

    def told(condition, target: str, params: dict[str, str]) -> bool | None:
        return holds(condition, Context(Module.parse(POINTERS), None, params, TARGETS[target]))

    assert told(hardware, "sm_90", {}) is True and told(hardware, "sm_80", {}) is False
    assert told(aligned, "sm_90", {"flag": "TMA"}) is True and told(aligned, "sm_90", {"flag": "none"}) is False
    assert told(aligned, "sm_90", {}) is None
