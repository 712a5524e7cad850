"""Convolution as an implicit matrix product: no patch matrix is ever stored.

Rows of the product are output pixels, columns output channels, and the sum runs over filter taps and input channels
(one tap at a time, so that a tile of the sum has one tap and its mask is a vector over pixels). Programs go in groups
of rows so that the filter's tiles stay in L2.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def conv2d_kernel(
    x_ptr, w_ptr, y_ptr,
    C, CO, H, W, OH, OW, PIXELS,
    stride_xb, stride_xc, stride_xh, stride_xw,
    stride_wo, stride_wc, stride_wr, stride_ws,
    stride_yb, stride_yo, stride_yh, stride_yw,
    STRIDE: tl.constexpr, PADDING: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, EVEN_C: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    num_pid_m = tl.cdiv(PIXELS, BLOCK_M)
    num_pid_n = tl.cdiv(CO, BLOCK_N)
    num_pid_in_group = GROUP_M * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_M)
    pid_m = first_pid_m + ((pid % num_pid_in_group) % group_size_m)
    pid_n = (pid % num_pid_in_group) // group_size_m

    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    image = offs_m // (OH * OW)
    row = offs_m // OW % OH
    column = offs_m % OW
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, R * S * tl.cdiv(C, BLOCK_K)):
        tap = step // tl.cdiv(C, BLOCK_K)
        offs_c = step % tl.cdiv(C, BLOCK_K) * BLOCK_K + offs_k
        h = row * STRIDE - PADDING + tap // S
        w = column * STRIDE - PADDING + tap % S
        inside = (offs_m < PIXELS) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
        x_ptrs = x_ptr + (image * stride_xb + h * stride_xh + w * stride_xw)[:, None] + offs_c[None, :] * stride_xc
        w_ptrs = (
            w_ptr + tap // S * stride_wr + tap % S * stride_ws
            + offs_c[:, None] * stride_wc + offs_n[None, :] * stride_wo
        )  # fmt: skip
        if EVEN_C:
            x = tl.load(x_ptrs, mask=inside[:, None], other=0.0)
            f = tl.load(w_ptrs, mask=offs_n[None, :] < CO, other=0.0)
        else:
            x = tl.load(x_ptrs, mask=inside[:, None] & (offs_c[None, :] < C), other=0.0)
            f = tl.load(w_ptrs, mask=(offs_c[:, None] < C) & (offs_n[None, :] < CO), other=0.0)
        acc = tl.dot(x, f, acc)

    y_ptrs = y_ptr + (image * stride_yb + row * stride_yh + column * stride_yw)[:, None] + offs_n[None, :] * stride_yo
    y_mask = (offs_m[:, None] < PIXELS) & (offs_n[None, :] < CO)
    tl.store(y_ptrs, acc.to(y_ptr.dtype.element_ty), mask=y_mask)


def run(x, w, stride, padding):
    B, C, H, W = x.shape
    CO, _, R, S = w.shape
    OH = (H + 2 * padding - R) // stride + 1
    OW = (W + 2 * padding - S) // stride + 1
    last = torch.channels_last if x.stride(1) == 1 and C > 1 else torch.contiguous_format
    y = torch.empty((B, CO, OH, OW), dtype=x.dtype, device=x.device, memory_format=last)
    PIXELS = B * OH * OW
    BLOCK_M, BLOCK_N, BLOCK_K = 128, 128, 64
    grid = (triton.cdiv(PIXELS, BLOCK_M) * triton.cdiv(CO, BLOCK_N),)
    conv2d_kernel[grid](
        x, w, y,
        C, CO, H, W, OH, OW, PIXELS,
        x.stride(0), x.stride(1), x.stride(2), x.stride(3),
        w.stride(0), w.stride(1), w.stride(2), w.stride(3),
        y.stride(0), y.stride(1), y.stride(2), y.stride(3),
        STRIDE=stride, PADDING=padding, R=R, S=S,
        BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K, GROUP_M=8, EVEN_C=C % BLOCK_K == 0,
        num_warps=8, num_stages=3,
    )  # fmt: skip
    return y
