"""Texts of small kernel modules for the tests of compiling."""

HEAD = """
import torch
import triton
import triton.language as tl
"""

COPY = (
    HEAD
    + """
@triton.jit
def copy_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)

def run(x):
    y = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024, num_warps=4)
    return y
"""
)

MATMUL = (
    HEAD
    + """
@triton.autotune(
    configs=[
        triton.Config({"BM": 128, "BN": 128, "BK": 32}, num_stages=3, num_warps=8),
        triton.Config({"BM": 64, "BN": 64, "BK": 32}, num_stages=3, num_warps=4),
    ],
    key=["M", "N", "K"],
)
@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) // tl.cdiv(N, BN) * BM + tl.arange(0, BM)
    cols = tl.program_id(0) % tl.cdiv(N, BN) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        left = tl.load(a + rows[:, None] * K + (k * BK + ks)[None, :], mask=(k * BK + ks)[None, :] < K, other=0.0)
        right = tl.load(b + (k * BK + ks)[:, None] * N + cols[None, :], mask=(k * BK + ks)[:, None] < K, other=0.0)
        acc = tl.dot(left, right, acc)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c + rows[:, None] * N + cols[None, :], acc.to(tl.float16), mask=mask)

def run(a, b):
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)
    matmul_kernel[grid](a, b, c, M, N, K)
    return c
"""
)

DESCRIPTOR = (
    HEAD
    + """
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def move_kernel(src, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    dst = tl.make_tensor_descriptor(y, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    at = [tl.program_id(0) * BM, tl.program_id(1) * BN]
    dst.store(at, src.load(at))

def run(x):
    y = torch.empty_like(x)
    M, N = x.shape
    src = TensorDescriptor.from_tensor(x, [64, 64])
    move_kernel[(triton.cdiv(M, 64), triton.cdiv(N, 64))](src, y, M, N, BM=64, BN=64)
    return y
"""
)

SPILLING = (
    HEAD
    + """
@triton.jit
def sort_kernel(x, y, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at, tl.cumsum(tl.load(x + at) * 2, 0))

def run(x):
    y = torch.empty_like(x)
    sort_kernel[(1,)](x, y, BLOCK=4096, num_warps=1, maxnreg=32)
    return y
"""
)


def copy_with(old: str, new: str) -> str:
    """COPY with one replacement that must take place."""
    assert old in COPY
    return COPY.replace(old, new)
