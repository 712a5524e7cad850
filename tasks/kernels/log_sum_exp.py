"""Log-sum-exp, the plain way: one pass for the maximum, one for the sum."""

import torch
import triton
import triton.language as tl


@triton.jit
def log_sum_exp_kernel(x_ptr, y_ptr, x_row_stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row_ptr = x_ptr + row * x_row_stride

    row_max = float("-inf")
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        mask = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=mask, other=float("-inf")).to(tl.float32)
        row_max = tl.maximum(row_max, tl.max(x, axis=0))

    row_sum = 0.0
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        mask = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=mask, other=float("-inf")).to(tl.float32)
        row_sum += tl.sum(tl.exp(x - row_max), axis=0)
    y = row_max + tl.log(row_sum)
    tl.store(y_ptr + row, y.to(y_ptr.dtype.element_ty))


def run(x):
    x = x.contiguous()
    n_rows, n_cols = x.shape
    y = torch.empty(n_rows, dtype=x.dtype, device=x.device)
    log_sum_exp_kernel[(n_rows,)](x, y, x.stride(0), n_cols, BLOCK_SIZE=256)
    return y
