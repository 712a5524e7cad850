"""Matrix product with few rows: the weight is read once, by as many programs as it takes to fill the device.

Each program has all rows of x (up to 64) and a strip of columns of w. Strips alone are too few programs, so the
reduction is split as well: every fourth block of it goes to another program, and all add their parts to an fp32 output.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def gemm_skinny_kernel(
    x_ptr, w_ptr, y_ptr,
    M, N, K,
    stride_xm, stride_xk, stride_wk, stride_wn, stride_ym, stride_yn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    pid_k = tl.program_id(1)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    pid_m = pid // num_pid_n
    pid_n = pid % num_pid_n
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_n = tl.max_contiguous(tl.multiple_of(offs_n, BLOCK_N), BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_k[None, :] * stride_xk
    w_ptrs = w_ptr + offs_k[:, None] * stride_wk + offs_n[None, :] * stride_wn

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    x_ptrs += pid_k * (BLOCK_K * stride_xk)
    w_ptrs += pid_k * (BLOCK_K * stride_wk)
    for k in range(pid_k, tl.cdiv(K, BLOCK_K), SPLIT_K):
        if EVEN_K:
            x = tl.load(x_ptrs, mask=offs_m[:, None] < M, other=0.0)
            w = tl.load(w_ptrs, mask=offs_n[None, :] < N, other=0.0)
        else:
            x = tl.load(x_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < K - k * BLOCK_K), other=0.0)
            w = tl.load(w_ptrs, mask=(offs_k[:, None] < K - k * BLOCK_K) & (offs_n[None, :] < N), other=0.0)
        acc = tl.dot(x, w, acc)
        x_ptrs += SPLIT_K * (BLOCK_K * stride_xk)
        w_ptrs += SPLIT_K * (BLOCK_K * stride_wk)

    y_ptrs = y_ptr + offs_m[:, None] * stride_ym + offs_n[None, :] * stride_yn
    y_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.atomic_add(y_ptrs, acc, mask=y_mask, sem="relaxed")


def run(x, w):
    M, K = x.shape
    K, N = w.shape
    y = torch.zeros((M, N), dtype=torch.float32, device=x.device)
    BLOCK_M, BLOCK_N, BLOCK_K = 64, 128, 128
    SPLIT_K = 4
    grid = (triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N), SPLIT_K)
    gemm_skinny_kernel[grid](
        x, w, y,
        M, N, K,
        x.stride(0), x.stride(1), w.stride(0), w.stride(1), y.stride(0), y.stride(1),
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, EVEN_K=K % BLOCK_K == 0,
        SPLIT_K=SPLIT_K, num_warps=4, num_stages=3,
    )  # fmt: skip
    return y.to(x.dtype)
