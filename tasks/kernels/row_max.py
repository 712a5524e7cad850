"""Largest element of each row, the plain way."""

import torch
import triton
import triton.language as tl


@triton.jit
def row_max_kernel(x_ptr, out_ptr, x_row_stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row_ptr = x_ptr + row * x_row_stride

    largest = float("-inf")
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        mask = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=mask, other=float("-inf")).to(tl.float32)
        largest = tl.maximum(largest, tl.max(x, axis=0))
    tl.store(out_ptr + row, largest.to(out_ptr.dtype.element_ty))


def run(x):
    x = x.contiguous()
    n_rows, n_cols = x.shape
    out = torch.empty(n_rows, dtype=x.dtype, device=x.device)
    row_max_kernel[(n_rows,)](x, out, x.stride(0), n_cols, BLOCK_SIZE=256)
    return out
