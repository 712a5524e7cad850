"""Kullback-Leibler divergence of each row, the plain way: one row per program, tiles of 256."""

import torch
import triton
import triton.language as tl


@triton.jit
def kl_divergence_kernel(q_ptr, p_ptr, out_ptr, q_row_stride, p_row_stride, n_cols, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    q_row_ptr = q_ptr + row * q_row_stride
    p_row_ptr = p_ptr + row * p_row_stride

    total = 0.0
    for start in range(0, n_cols, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        mask = cols < n_cols
        q = tl.load(q_row_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        p = tl.load(p_row_ptr + cols, mask=mask, other=1.0).to(tl.float32)
        total += tl.sum(p * (tl.log(p) - q), axis=0)
    tl.store(out_ptr + row, total.to(out_ptr.dtype.element_ty))


def run(q, p):
    q, p = q.contiguous(), p.contiguous()
    n_rows, n_cols = q.shape
    out = torch.empty(n_rows, dtype=q.dtype, device=q.device)
    kl_divergence_kernel[(n_rows,)](q, p, out, q.stride(0), p.stride(0), n_cols, BLOCK_SIZE=256)
    return out
