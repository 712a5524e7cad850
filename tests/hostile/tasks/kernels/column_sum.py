"""Column sums in two launches: partial sums of 32 rows, then their sum."""

import torch
import triton
import triton.language as tl


@triton.jit
def partial_kernel(x_ptr, part_ptr, m, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    tile = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    rows = tile * ROWS + tl.arange(0, ROWS)
    mask = (rows[:, None] < m) & (cols[None, :] < n)
    x = tl.load(x_ptr + rows[:, None] * n + cols[None, :], mask=mask, other=0.0).to(tl.float32)
    tl.store(part_ptr + tile * n + cols, tl.sum(x, axis=0), mask=cols < n)


@triton.jit
def total_kernel(part_ptr, y_ptr, tiles, n, BLOCK: tl.constexpr):
    cols = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for tile in range(0, tiles):
        total += tl.load(part_ptr + tile * n + cols, mask=cols < n, other=0.0)
    tl.store(y_ptr + cols, total.to(y_ptr.dtype.element_ty), mask=cols < n)


def run(x):
    x = x.contiguous()
    m, n = x.shape
    tiles = triton.cdiv(m, 32)
    part = torch.empty((tiles, n), dtype=torch.float32, device=x.device)
    y = torch.empty(n, dtype=x.dtype, device=x.device)
    partial_kernel[(tiles, triton.cdiv(n, 64))](x, part, m, n, ROWS=32, BLOCK=64)
    total_kernel[(triton.cdiv(n, 64),)](part, y, tiles, n, BLOCK=64)
    return y
