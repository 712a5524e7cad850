"""Residual add and RMSNorm, the plain way: one kernel adds, another reads the sum twice to normalise it."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, residual_ptr, sum_ptr, row_stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        mask = cols < n_cols
        x = tl.load(x_ptr + row * row_stride + cols, mask=mask, other=0.0).to(tl.float32)
        residual = tl.load(residual_ptr + row * row_stride + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(sum_ptr + row * row_stride + cols, (x + residual).to(sum_ptr.dtype.element_ty), mask=mask)


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, y_ptr, row_stride, n_cols, eps, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_row_ptr = x_ptr + row * row_stride
    y_row_ptr = y_ptr + row * row_stride

    squares = 0.0
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        mask = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        squares += tl.sum(x * x, axis=0)
    rstd = 1.0 / tl.sqrt(squares / n_cols + eps)

    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        mask = cols < n_cols
        x = tl.load(x_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_row_ptr + cols, (x * rstd * weight).to(y_ptr.dtype.element_ty), mask=mask)


def run(x, residual, weight):
    x = x.contiguous()
    residual = residual.contiguous()
    total = torch.empty_like(x)
    y = torch.empty_like(x)
    n_rows, n_cols = x.shape
    add_kernel[(n_rows,)](x, residual, total, x.stride(0), n_cols, BLOCK_SIZE=256)
    rms_norm_kernel[(n_rows,)](total, weight, y, total.stride(0), n_cols, 1e-6, BLOCK_SIZE=256)
    return y, total
