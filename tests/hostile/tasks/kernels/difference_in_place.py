"""The running difference through a copy, so that no program reads what another writes."""

import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, copy_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(copy_ptr + at, tl.load(x_ptr + at, mask=at < n, other=0.0), mask=at < n)


@triton.jit
def difference_kernel(copy_ptr, x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(copy_ptr + at, mask=at < n, other=0.0)
    before = tl.load(copy_ptr + at - 1, mask=(at > 0) & (at < n), other=0.0)
    tl.store(x_ptr + at, x - before, mask=at < n)


def run(x):
    copy = torch.empty_like(x)
    n = x.numel()
    copy_kernel[(triton.cdiv(n, 256),)](x, copy, n, BLOCK=256)
    difference_kernel[(triton.cdiv(n, 256),)](copy, x, n, BLOCK=256)
    return x
