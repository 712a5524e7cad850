"""Cosine similarity of rows, the plain way: three sums, a pass for each."""

import torch
import triton
import triton.language as tl


@triton.jit
def cosine_similarity_kernel(x_ptr, y_ptr, out_ptr, row_stride, n_cols, eps, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row_ptr = x_ptr + row * row_stride
    y_row_ptr = y_ptr + row * row_stride

    xx = 0.0
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        mask = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        xx += tl.sum(x * x, axis=0)

    yy = 0.0
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        mask = cols < n_cols
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        yy += tl.sum(y * y, axis=0)

    xy = 0.0
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        mask = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        xy += tl.sum(x * y, axis=0)
    length = tl.maximum(tl.sqrt(xx), eps) * tl.maximum(tl.sqrt(yy), eps)
    tl.store(out_ptr + row, (xy / length).to(out_ptr.dtype.element_ty))


def run(x, y):
    x, y = x.contiguous(), y.contiguous()
    n_rows, n_cols = x.shape
    out = torch.empty(n_rows, dtype=x.dtype, device=x.device)
    cosine_similarity_kernel[(n_rows,)](x, y, out, x.stride(0), n_cols, 1e-6, BLOCK_SIZE=256)
    return out
