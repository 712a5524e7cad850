"""Top-k that reads a row once and sorts little of it.

The first launch takes the maximum of every group of 32 neighbours. The k largest of a row lie in the k groups with the
largest maxima, so the second launch picks those groups, reads their elements again, and picks among them: a row of
128,256 is cut to 2,048 candidates without a threshold, a histogram or an atomic. Both picks are bitonic networks of
width k (``tl.topk``), which halve the candidates with every merge. A value and its place travel as one 64-bit key
whose integer order is the order of the values (the bits of a negative float are turned round), lower places first.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def keys_of(x, places):
    bits = x.to(tl.int32, bitcast=True)
    bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return (bits.to(tl.int64) << 32) | (0x7FFFFFFF - places).to(tl.int64)


@triton.jit
def group_max_kernel(x_ptr, max_ptr, n_cols, n_groups, stride_row, GROUP: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    groups = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    cols = groups[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    x = tl.load(x_ptr + row * stride_row + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
    tl.store(max_ptr + row * n_groups + groups, tl.max(x, axis=1), mask=groups < n_groups)


@triton.jit
def select_kernel(
    x_ptr, max_ptr, value_ptr, index_ptr, n_cols, n_groups, stride_row, K,
    GROUP: tl.constexpr, GROUPS: tl.constexpr, K_PAD: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    groups = tl.arange(0, GROUPS)
    largest = tl.load(max_ptr + row * n_groups + groups, mask=groups < n_groups, other=float("-inf"))
    chosen = 0x7FFFFFFF - (tl.topk(keys_of(largest, groups), K_PAD) & 0xFFFFFFFF)

    cols = (chosen[:, None] * GROUP + tl.arange(0, GROUP)[None, :]).to(tl.int32)
    x = tl.load(x_ptr + row * stride_row + cols, mask=cols < n_cols, other=float("-inf")).to(tl.float32)
    best = tl.topk(tl.reshape(keys_of(x, cols), (K_PAD * GROUP,)), K_PAD)

    bits = (best >> 32).to(tl.int32)
    bits = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    rank = tl.arange(0, K_PAD)
    value = bits.to(tl.float32, bitcast=True)
    tl.store(value_ptr + row * K + rank, value.to(value_ptr.dtype.element_ty), mask=rank < K)
    tl.store(index_ptr + row * K + rank, 0x7FFFFFFF - (best & 0xFFFFFFFF), mask=rank < K)


def run(x, k):
    x = x.contiguous()
    n_rows, n_cols = x.shape
    K_PAD = triton.next_power_of_2(k)
    GROUP = max(32, triton.next_power_of_2(triton.cdiv(n_cols, 4096)))
    ROWS = 128
    n_groups = triton.cdiv(n_cols, GROUP)
    GROUPS = max(triton.next_power_of_2(n_groups), K_PAD)
    largest = torch.empty((n_rows, n_groups), dtype=torch.float32, device=x.device)
    values = torch.empty((n_rows, k), dtype=x.dtype, device=x.device)
    indices = torch.empty((n_rows, k), dtype=torch.int64, device=x.device)
    group_max_kernel[(n_rows, triton.cdiv(n_groups, ROWS))](
        x, largest, n_cols, n_groups, x.stride(0), GROUP=GROUP, ROWS=ROWS, num_warps=4
    )
    select_kernel[(n_rows,)](
        x, largest, values, indices, n_cols, n_groups, x.stride(0), k,
        GROUP=GROUP, GROUPS=GROUPS, K_PAD=K_PAD, num_warps=8,
    )  # fmt: skip
    return values, indices
