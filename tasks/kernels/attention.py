"""Attention forward with the scores kept on chip.

The published schedule of FlashAttention-2: one program per tile of queries; keys and values stream through in tiles
under an online softmax in base two, so that no score is stored. Tiles left of the diagonal need no causal mask
and are taken in a loop of their own; tiles right of it are skipped. Query heads of a group read the same keys.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr,
    stride_qb, stride_qh, stride_qm, stride_qd,
    stride_kb, stride_kh, stride_kn, stride_kd,
    stride_vb, stride_vh, stride_vn, stride_vd,
    stride_ob, stride_oh, stride_om, stride_od,
    H, G, N, scale_log2e,
    CAUSAL: tl.constexpr, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    # the last tiles of queries see the most keys: start them first
    pid_m = tl.num_programs(0) - 1 - tl.program_id(0)
    pid_bh = tl.program_id(1)
    b = (pid_bh // H).to(tl.int64)
    h = pid_bh % H
    offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, D)
    q_ptrs = q_ptr + b * stride_qb + h * stride_qh + offs_m[:, None] * stride_qm + offs_d[None, :] * stride_qd
    k_ptrs = k_ptr + b * stride_kb + (h // G) * stride_kh + offs_n[None, :] * stride_kn + offs_d[:, None] * stride_kd
    v_ptrs = v_ptr + b * stride_vb + (h // G) * stride_vh + offs_n[:, None] * stride_vn + offs_d[None, :] * stride_vd

    q = tl.load(q_ptrs, mask=offs_m[:, None] < N, other=0.0)
    row_max = tl.full((BLOCK_M,), float("-inf"), dtype=tl.float32)
    row_sum = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)

    if CAUSAL:
        unmasked = (pid_m * BLOCK_M) // BLOCK_N * BLOCK_N
        end = min(pid_m * BLOCK_M + BLOCK_M, N)
    else:
        unmasked = N // BLOCK_N * BLOCK_N
        end = N

    for start in range(0, unmasked, BLOCK_N):
        k = tl.load(k_ptrs + start * stride_kn)
        scores = tl.dot(q, k) * scale_log2e
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        p = tl.exp2(scores - new_max[:, None])
        alpha = tl.exp2(row_max - new_max)
        row_sum = row_sum * alpha + tl.sum(p, axis=1)
        acc = acc * alpha[:, None]
        v = tl.load(v_ptrs + start * stride_vn)
        acc = tl.dot(p.to(v.dtype), v, acc)
        row_max = new_max

    for start in range(unmasked, end, BLOCK_N):
        inside = start + offs_n < N
        k = tl.load(k_ptrs + start * stride_kn, mask=inside[None, :], other=0.0)
        scores = tl.dot(q, k) * scale_log2e
        seen = inside[None, :]
        if CAUSAL:
            seen = seen & (start + offs_n[None, :] <= offs_m[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, axis=1))
        p = tl.exp2(scores - new_max[:, None])
        alpha = tl.exp2(row_max - new_max)
        row_sum = row_sum * alpha + tl.sum(p, axis=1)
        acc = acc * alpha[:, None]
        v = tl.load(v_ptrs + start * stride_vn, mask=inside[:, None], other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc)
        row_max = new_max

    acc = acc / row_sum[:, None]
    o_ptrs = o_ptr + b * stride_ob + h * stride_oh + offs_m[:, None] * stride_om + offs_d[None, :] * stride_od
    tl.store(o_ptrs, acc.to(o_ptr.dtype.element_ty), mask=offs_m[:, None] < N)


def run(q, k, v, causal):
    B, H, N, D = q.shape
    G = H // k.shape[1]
    o = torch.empty((B, H, N, D), dtype=q.dtype, device=q.device)
    BLOCK_M, BLOCK_N = 128, 64 if D > 64 else 128
    scale = 1.4426950408889634 / D**0.5
    grid = (triton.cdiv(N, BLOCK_M), B * H)
    attention_kernel[grid](
        q, k, v, o,
        q.stride(0), q.stride(1), q.stride(2), q.stride(3),
        k.stride(0), k.stride(1), k.stride(2), k.stride(3),
        v.stride(0), v.stride(1), v.stride(2), v.stride(3),
        o.stride(0), o.stride(1), o.stride(2), o.stride(3),
        H, G, N, scale,
        CAUSAL=causal, D=D, BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N,
        num_warps=8, num_stages=3,
    )  # fmt: skip
    return o
