"""Mean squared error of each row, the plain way."""

import torch
import triton
import triton.language as tl


@triton.jit
def mse_rows_kernel(x_ptr, target_ptr, out_ptr, row_stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row_ptr = x_ptr + row * row_stride
    target_row_ptr = target_ptr + row * row_stride

    total = 0.0
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        mask = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        target = tl.load(target_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        total += tl.sum((x - target) * (x - target), axis=0)
    tl.store(out_ptr + row, (total / n_cols).to(out_ptr.dtype.element_ty))


def run(x, target):
    x, target = x.contiguous(), target.contiguous()
    n_rows, n_cols = x.shape
    out = torch.empty(n_rows, dtype=x.dtype, device=x.device)
    mse_rows_kernel[(n_rows,)](x, target, out, x.stride(0), n_cols, BLOCK_SIZE=256)
    return out
