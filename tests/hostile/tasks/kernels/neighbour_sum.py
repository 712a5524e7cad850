"""Each element plus the next one, both read from the input."""

import torch
import triton
import triton.language as tl


@triton.jit
def neighbour_sum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    following = tl.load(x_ptr + at + 1, mask=at + 1 < n, other=0.0)
    tl.store(y_ptr + at, x + following, mask=at < n)


def run(x):
    y = torch.empty_like(x)
    n = x.numel()
    neighbour_sum_kernel[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)
    return y
