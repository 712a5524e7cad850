"""Rotary position embedding, the plain way: one row per program, tiles of 256 of both halves."""

import torch
import triton
import triton.language as tl


@triton.jit
def rotary_kernel(x_ptr, cos_ptr, sin_ptr, y_ptr, x_row_stride, cos_row_stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row_ptr = x_ptr + row * x_row_stride
    y_row_ptr = y_ptr + row * x_row_stride
    cos_row_ptr = cos_ptr + row * cos_row_stride
    sin_row_ptr = sin_ptr + row * cos_row_stride

    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        mask = cols < n_cols
        x1 = tl.load(x_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        x2 = tl.load(x_row_ptr + n_cols + cols, mask=mask, other=0.0).to(tl.float32)
        cos = tl.load(cos_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        sin = tl.load(sin_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        y1 = x1 * cos - x2 * sin
        y2 = x2 * cos + x1 * sin
        tl.store(y_row_ptr + cols, y1.to(y_ptr.dtype.element_ty), mask=mask)
        tl.store(y_row_ptr + n_cols + cols, y2.to(y_ptr.dtype.element_ty), mask=mask)


def run(x, cos, sin):
    x, cos, sin = x.contiguous(), cos.contiguous(), sin.contiguous()
    y = torch.empty_like(x)
    n_rows, n_cols = cos.shape
    rotary_kernel[(n_rows,)](x, cos, sin, y, x.stride(0), cos.stride(0), n_cols, BLOCK_SIZE=256)
    return y
