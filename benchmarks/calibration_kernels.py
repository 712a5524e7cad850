"""Kernels the performance model is fitted on: ordinary Triton, from naive to tuned, one launcher per family.

Self-contained on purpose: this text followed by a ``run`` that names one launcher and its parameters is a kernel
module, so the same variants go through KLineage's own compile and trace jobs (see ``calibration_variants.py``).
"""

# ruff: noqa: SIM108  (kernels take many arguments; a branch on a constexpr is not a ternary)
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

# ------------------------------------------------------------------------------------------------- matrix product


@triton.jit
def _tile_of(pid, M, N, BM: tl.constexpr, BN: tl.constexpr, GROUP: tl.constexpr):
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    if GROUP == 0:
        pid_m = pid // tiles_n
        pid_n = pid % tiles_n
    else:
        per_group = GROUP * tiles_n
        first = (pid // per_group) * GROUP
        size = tl.minimum(tiles_m - first, GROUP)
        pid_m = first + (pid % per_group) % size
        pid_n = (pid % per_group) // size
    return pid_m, pid_n


@triton.jit
def _matmul_kernel(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, EVEN: tl.constexpr,
    EPILOGUE: tl.constexpr, PRECISION: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    pid_m, pid_n = _tile_of(tl.program_id(0), M, N, BM, BN, GROUP)
    rm = pid_m * BM + tl.arange(0, BM)
    rn = pid_n * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    a_ptrs = a_ptr + rm[:, None] * stride_am + rk[None, :] * stride_ak
    b_ptrs = b_ptr + rk[:, None] * stride_bk + rn[None, :] * stride_bn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        if EVEN:
            a = tl.load(a_ptrs)
            b = tl.load(b_ptrs)
        else:
            a = tl.load(a_ptrs, mask=(rm[:, None] < M) & (rk[None, :] < K - k), other=0.0)
            b = tl.load(b_ptrs, mask=(rk[:, None] < K - k) & (rn[None, :] < N), other=0.0)
        if UPCAST:
            a = a.to(tl.float32)
            b = b.to(tl.float32)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
        a_ptrs += BK * stride_ak
        b_ptrs += BK * stride_bk
    if EPILOGUE:
        bias = tl.load(bias_ptr + rn, mask=rn < N, other=0.0).to(tl.float32)
        acc += bias[None, :]
        acc = acc * tl.sigmoid(1.702 * acc)
    c_ptrs = c_ptr + rm[:, None] * stride_cm + rn[None, :] * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def _bias_act_kernel(x_ptr, bias_ptr, y_ptr, n, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    x += tl.load(bias_ptr + offs % N, mask=mask).to(tl.float32)
    y = x * tl.sigmoid(1.702 * x)
    tl.store(y_ptr + offs, y.to(y_ptr.dtype.element_ty), mask=mask)


def matmul(
    a, b, bias=None, *, BM, BN, BK, GROUP=8, EVEN=True, PRECISION="tf32", UPCAST=False, STAGES=3, num_warps=4,
    epilogue="none", transposed_b=False,
):  # fmt: skip
    """(M, K) @ (K, N) -> (M, N); ``epilogue`` none, fused or separate (a second launch with a 1024-wide tile)."""
    if transposed_b:
        b = b.T
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    _matmul_kernel[(triton.cdiv(M, BM) * triton.cdiv(N, BN),)](
        a, b, c, bias, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), c.stride(0), c.stride(1),
        BM=BM, BN=BN, BK=BK, GROUP=GROUP, EVEN=EVEN, EPILOGUE=epilogue == "fused", PRECISION=PRECISION,
        UPCAST=UPCAST, num_stages=STAGES, num_warps=num_warps,
    )  # fmt: skip
    if epilogue == "separate":
        y = torch.empty_like(c)
        _bias_act_kernel[(triton.cdiv(c.numel(), 1024),)](c, bias, y, c.numel(), N, BLOCK=1024)
        return y
    return c


@triton.jit
def _persistent_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm, PROGRAMS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    tiles = tl.cdiv(M, BM) * tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS):
        pid_m, pid_n = _tile_of(tile, M, N, BM, BN, GROUP)
        rm = pid_m * BM + tl.arange(0, BM)
        rn = pid_n * BN + tl.arange(0, BN)
        rk = tl.arange(0, BK)
        a_ptrs = a_ptr + rm[:, None] * stride_am + rk[None, :]
        b_ptrs = b_ptr + rk[:, None] * stride_bk + rn[None, :]
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for _ in range(0, K, BK):
            acc = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), acc)
            a_ptrs += BK
            b_ptrs += BK * stride_bk
        c_ptrs = c_ptr + rm[:, None] * stride_cm + rn[None, :]
        tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=(rm[:, None] < M) & (rn[None, :] < N))


def matmul_persistent(a, b, *, BM, BN, BK, GROUP=8, STAGES=3, num_warps=8, programs=132):
    """(M, K) @ (K, N) -> (M, N) with a fixed number of programs that loop over tiles."""
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    _persistent_kernel[(programs,)](
        a, b, c, M, N, K, a.stride(0), b.stride(0), c.stride(0), PROGRAMS=programs,
        BM=BM, BN=BN, BK=BK, GROUP=GROUP, num_stages=STAGES, num_warps=num_warps,
    )  # fmt: skip
    return c


@triton.jit
def _descriptor_kernel(
    a_desc, b_desc, c_desc, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    pid_m, pid_n = _tile_of(tl.program_id(0), M, N, BM, BN, GROUP)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = a_desc.load([pid_m * BM, k])
        b = b_desc.load([k, pid_n * BN])
        acc = tl.dot(a, b, acc)
    c_desc.store([pid_m * BM, pid_n * BN], acc.to(tl.float16))


def matmul_descriptor(a, b, *, BM, BN, BK, GROUP=8, STAGES=3, num_warps=8):
    """(M, K) @ (K, N) -> (M, N), fp16, tiles moved by tensor descriptors (the bulk copy engine on sm_90)."""
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    descriptors = (
        TensorDescriptor.from_tensor(a, [BM, BK]),
        TensorDescriptor.from_tensor(b, [BK, BN]),
        TensorDescriptor.from_tensor(c, [BM, BN]),
    )
    _descriptor_kernel[(triton.cdiv(M, BM) * triton.cdiv(N, BN),)](
        *descriptors, M, N, K, BM=BM, BN=BN, BK=BK, GROUP=GROUP, num_stages=STAGES, num_warps=num_warps
    )
    return c


@triton.jit
def _splitk_kernel(
    a_ptr, b_ptr, part_ptr, M, N, K, stride_am, stride_bk,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    pid_m, pid_n = _tile_of(tl.program_id(0), M, N, BM, BN, 8)
    part = tl.program_id(1)
    rm = pid_m * BM + tl.arange(0, BM)
    rn = pid_n * BN + tl.arange(0, BN)
    rk = part * BK + tl.arange(0, BK)
    a_ptrs = a_ptr + rm[:, None] * stride_am + rk[None, :]
    b_ptrs = b_ptr + rk[:, None] * stride_bk + rn[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, tl.cdiv(K, BK * SPLIT)):
        acc = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), acc)
        a_ptrs += BK * SPLIT
        b_ptrs += BK * SPLIT * stride_bk
    offs = part.to(tl.int64) * M * N + rm[:, None] * N + rn[None, :]
    tl.store(part_ptr + offs, acc, mask=(rm[:, None] < M) & (rn[None, :] < N))


@triton.jit
def _combine_kernel(part_ptr, c_ptr, n, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for s in range(SPLIT):
        acc += tl.load(part_ptr + s * n + offs, mask=mask, other=0.0)
    tl.store(c_ptr + offs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def matmul_splitk(a, b, *, BM, BN, BK, SPLIT, STAGES=3, num_warps=4):
    """(M, K) @ (K, N) -> (M, N): SPLIT partial sums in fp32, then a launch that adds them."""
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    part = torch.empty((SPLIT, M, N), device=a.device, dtype=torch.float32)
    _splitk_kernel[(triton.cdiv(M, BM) * triton.cdiv(N, BN), SPLIT)](
        a, b, part, M, N, K, a.stride(0), b.stride(0), BM=BM, BN=BN, BK=BK, SPLIT=SPLIT, num_stages=STAGES,
        num_warps=num_warps,
    )  # fmt: skip
    _combine_kernel[(triton.cdiv(M * N, 1024),)](part, c, M * N, SPLIT=SPLIT, BLOCK=1024)
    return c


# ----------------------------------------------------------------------------------------------------- row kernels


@triton.jit
def _rmsnorm_one_kernel(x_ptr, w_ptr, y_ptr, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / N + eps)
    tl.store(y_ptr + row * stride + cols, (x * rstd * w).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _rmsnorm_rows_kernel(x_ptr, w_ptr, y_ptr, stride, M, N, eps, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.arange(0, BLOCK)
    mask = (rows < M)[:, None] & (cols < N)[None, :]
    offs = rows[:, None] * stride + cols[None, :]
    x = tl.load(x_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, axis=1) / N + eps)
    tl.store(y_ptr + offs, (x * rstd[:, None] * w[None, :]).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _rmsnorm_two_kernel(
    x_ptr, w_ptr, y_ptr, stride, N, eps, BLOCK: tl.constexpr, STAGES: tl.constexpr, HINTS: tl.constexpr
):
    row = tl.program_id(0)
    x_ptr += row * stride
    y_ptr += row * stride
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in tl.range(0, N, BLOCK, num_stages=STAGES):
        cols = start + tl.arange(0, BLOCK)
        if HINTS:
            x = tl.load(x_ptr + cols, mask=cols < N, other=0.0, eviction_policy="evict_last").to(tl.float32)
        else:
            x = tl.load(x_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        total += x * x
    rstd = tl.rsqrt(tl.sum(total, axis=0) / N + eps)
    for start in tl.range(0, N, BLOCK, num_stages=STAGES):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < N
        if HINTS:
            x = tl.load(x_ptr + cols, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
        else:
            x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + cols, (x * rstd * w).to(y_ptr.dtype.element_ty), mask=mask)


def rmsnorm(x, w, *, mode="one", BLOCK=None, ROWS=1, STAGES=1, HINTS=False, num_warps=8):
    """RMSNorm of rows (M, N): ``mode`` one (row in registers), rows (several rows a program) or two passes."""
    M, N = x.shape
    y = torch.empty_like(x)
    stride = x.stride(0)
    if mode == "one":
        _rmsnorm_one_kernel[(M,)](x, w, y, stride, N, 1e-6, BLOCK=triton.next_power_of_2(N), num_warps=num_warps)
    elif mode == "rows":
        _rmsnorm_rows_kernel[(triton.cdiv(M, ROWS),)](
            x, w, y, stride, M, N, 1e-6, ROWS=ROWS, BLOCK=triton.next_power_of_2(N), num_warps=num_warps
        )
    else:
        _rmsnorm_two_kernel[(M,)](
            x, w, y, stride, N, 1e-6, BLOCK=BLOCK, STAGES=STAGES, HINTS=HINTS, num_warps=num_warps
        )
    return y


@triton.jit
def _layernorm_one_kernel(x_ptr, w_ptr, b_ptr, y_ptr, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(x_ptr + row * stride + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / N
    centred = tl.where(mask, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(centred * centred, axis=0) / N + eps)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * stride + cols, (centred * rstd * w + b).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _layernorm_three_kernel(x_ptr, w_ptr, b_ptr, y_ptr, stride, N, eps, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * stride
    y_ptr += row * stride
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in tl.range(0, N, BLOCK, num_stages=STAGES):
        cols = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / N
    square = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in tl.range(0, N, BLOCK, num_stages=STAGES):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < N, other=0.0).to(tl.float32)
        centred = tl.where(cols < N, x - mean, 0.0)
        square += centred * centred
    rstd = tl.rsqrt(tl.sum(square, axis=0) / N + eps)
    for start in tl.range(0, N, BLOCK, num_stages=STAGES):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < N
        x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + cols, ((x - mean) * rstd * w + b).to(y_ptr.dtype.element_ty), mask=mask)


def layernorm(x, w, b, *, mode="one", BLOCK=None, STAGES=1, num_warps=8):
    """Layer norm of rows (M, N): one pass, or three with BLOCK-wide tiles."""
    M, N = x.shape
    y = torch.empty_like(x)
    if mode == "one":
        _layernorm_one_kernel[(M,)](
            x, w, b, y, x.stride(0), N, 1e-5, BLOCK=triton.next_power_of_2(N), num_warps=num_warps
        )
    else:
        _layernorm_three_kernel[(M,)](x, w, b, y, x.stride(0), N, 1e-5, BLOCK=BLOCK, STAGES=STAGES, num_warps=num_warps)
    return y


@triton.jit
def _softmax_one_kernel(x_ptr, y_ptr, stride, N, EXP2: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + cols, mask=cols < N, other=-float("inf")).to(tl.float32)
    if EXP2:
        x = x * 1.4426950408889634
        e = tl.exp2(x - tl.max(x, axis=0))
    else:
        e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * stride + cols, (e / tl.sum(e, axis=0)).to(y_ptr.dtype.element_ty), mask=cols < N)


@triton.jit
def _softmax_tiled_kernel(
    x_ptr, y_ptr, stride, N, ONLINE: tl.constexpr, EXP2: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr
):
    row = tl.program_id(0)
    x_ptr += row * stride
    y_ptr += row * stride
    top = -float("inf")
    total = 0.0
    if ONLINE:
        for start in tl.range(0, N, BLOCK, num_stages=STAGES):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + cols, mask=cols < N, other=-float("inf")).to(tl.float32)
            new = tl.maximum(top, tl.max(x, axis=0))
            if EXP2:
                total = total * tl.exp2((top - new) * 1.4426950408889634)
                total += tl.sum(tl.exp2((x - new) * 1.4426950408889634), axis=0)
            else:
                total = total * tl.exp(top - new) + tl.sum(tl.exp(x - new), axis=0)
            top = new
    else:
        for start in tl.range(0, N, BLOCK, num_stages=STAGES):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + cols, mask=cols < N, other=-float("inf")).to(tl.float32)
            top = tl.maximum(top, tl.max(x, axis=0))
        for start in tl.range(0, N, BLOCK, num_stages=STAGES):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + cols, mask=cols < N, other=-float("inf")).to(tl.float32)
            total += tl.sum(tl.exp(x - top), axis=0)
    for start in tl.range(0, N, BLOCK, num_stages=STAGES):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < N, other=-float("inf")).to(tl.float32)
        if EXP2:
            y = tl.exp2((x - top) * 1.4426950408889634) / total
        else:
            y = tl.exp(x - top) / total
        tl.store(y_ptr + cols, y.to(y_ptr.dtype.element_ty), mask=cols < N)


def softmax(x, *, mode="one", BLOCK=None, EXP2=False, STAGES=1, num_warps=8):
    """Softmax of rows (M, N): one pass, ``online`` (two passes) or ``three`` passes with BLOCK-wide tiles."""
    M, N = x.shape
    y = torch.empty_like(x)
    if mode == "one":
        _softmax_one_kernel[(M,)](x, y, x.stride(0), N, EXP2=EXP2, BLOCK=triton.next_power_of_2(N), num_warps=num_warps)
    else:
        _softmax_tiled_kernel[(M,)](
            x, y, x.stride(0), N, ONLINE=mode == "online", EXP2=EXP2, BLOCK=BLOCK, STAGES=STAGES, num_warps=num_warps
        )
    return y


@triton.jit
def _cross_entropy_kernel(
    x_ptr, label_ptr, loss_ptr, stride, V, BLOCK: tl.constexpr, ONLINE: tl.constexpr, GRAD: tl.constexpr,
    STAGES: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride
    label = tl.load(label_ptr + row)
    top = -float("inf")
    total = 0.0
    if ONLINE:
        for start in tl.range(0, V, BLOCK, num_stages=STAGES):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + cols, mask=cols < V, other=-float("inf")).to(tl.float32)
            new = tl.maximum(top, tl.max(x, axis=0))
            total = total * tl.exp(top - new) + tl.sum(tl.exp(x - new), axis=0)
            top = new
    else:
        for start in tl.range(0, V, BLOCK, num_stages=STAGES):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + cols, mask=cols < V, other=-float("inf")).to(tl.float32)
            top = tl.maximum(top, tl.max(x, axis=0))
        for start in tl.range(0, V, BLOCK, num_stages=STAGES):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + cols, mask=cols < V, other=-float("inf")).to(tl.float32)
            total += tl.sum(tl.exp(x - top), axis=0)
    tl.store(loss_ptr + row, top + tl.log(total) - tl.load(x_ptr + label).to(tl.float32))
    if GRAD:
        for start in tl.range(0, V, BLOCK, num_stages=STAGES):
            cols = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + cols, mask=cols < V, other=-float("inf")).to(tl.float32)
            g = tl.exp(x - top) / total - tl.where(cols == label, 1.0, 0.0)
            tl.store(x_ptr + cols, g.to(x_ptr.dtype.element_ty), mask=cols < V)


def cross_entropy(x, labels, *, BLOCK, ONLINE=True, GRAD=False, STAGES=1, num_warps=8):
    """Cross entropy of rows of logits (M, V); with GRAD the gradient replaces the logits."""
    loss = torch.empty((x.shape[0],), device=x.device, dtype=torch.float32)
    _cross_entropy_kernel[(x.shape[0],)](
        x, labels, loss, x.stride(0), x.shape[1], BLOCK=BLOCK, ONLINE=ONLINE, GRAD=GRAD, STAGES=STAGES,
        num_warps=num_warps,
    )  # fmt: skip
    return loss


# ---------------------------------------------------------------------------------------------------- elementwise


@triton.jit
def _swiglu_kernel(a_ptr, b_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    a = tl.load(a_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + offs, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + offs, (a * tl.sigmoid(a) * b).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def _swiglu_rows_kernel(a_ptr, b_ptr, y_ptr, stride, N, BLOCK: tl.constexpr, TILED: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * stride
    if TILED:
        for start in range(0, N, BLOCK):
            cols = start + tl.arange(0, BLOCK)
            a = tl.load(a_ptr + row + cols, mask=cols < N, other=0.0).to(tl.float32)
            b = tl.load(b_ptr + row + cols, mask=cols < N, other=0.0).to(tl.float32)
            tl.store(y_ptr + row + cols, (a * tl.sigmoid(a) * b).to(y_ptr.dtype.element_ty), mask=cols < N)
    else:
        cols = tl.arange(0, BLOCK)
        a = tl.load(a_ptr + row + cols, mask=cols < N, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + row + cols, mask=cols < N, other=0.0).to(tl.float32)
        tl.store(y_ptr + row + cols, (a * tl.sigmoid(a) * b).to(y_ptr.dtype.element_ty), mask=cols < N)


def swiglu(a, b, *, mode="flat", BLOCK=1024, num_warps=4):
    """silu(a) * b: ``flat`` over all elements, ``row`` one row a program in registers, ``tiled`` rows in tiles."""
    y = torch.empty_like(a)
    if mode == "flat":
        _swiglu_kernel[(triton.cdiv(a.numel(), BLOCK),)](a, b, y, a.numel(), BLOCK=BLOCK, num_warps=num_warps)
    else:
        M, N = a.shape
        block = triton.next_power_of_2(N) if mode == "row" else BLOCK
        _swiglu_rows_kernel[(M,)](a, b, y, a.stride(0), N, BLOCK=block, TILED=mode == "tiled", num_warps=num_warps)
    return y


@triton.jit
def _copy_kernel(x_ptr, y_ptr, n, STEP: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(y_ptr + offs, tl.load(x_ptr + offs * STEP, mask=mask), mask=mask)


def strided_copy(x, *, STEP=1, BLOCK=1024, num_warps=4):
    """Every STEP-th element of a flat tensor."""
    n = x.numel() // STEP
    y = torch.empty((n,), device=x.device, dtype=x.dtype)
    _copy_kernel[(triton.cdiv(n, BLOCK),)](x, y, n, STEP=STEP, BLOCK=BLOCK, num_warps=num_warps)
    return y


@triton.jit
def _transpose_kernel(x_ptr, y_ptr, M, N, TM: tl.constexpr, TN: tl.constexpr):
    rm = tl.program_id(0) * TM + tl.arange(0, TM)
    rn = tl.program_id(1) * TN + tl.arange(0, TN)
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    x = tl.load(x_ptr + rm[:, None] * N + rn[None, :], mask=mask)
    tl.store(y_ptr + rm[:, None] + rn[None, :] * M, x, mask=mask)


def transpose(x, *, TM, TN, num_warps=4):
    """(M, N) -> (N, M), the store side uncoalesced unless the tile is converted in shared memory."""
    M, N = x.shape
    y = torch.empty((N, M), device=x.device, dtype=x.dtype)
    _transpose_kernel[(triton.cdiv(M, TM), triton.cdiv(N, TN))](x, y, M, N, TM=TM, TN=TN, num_warps=num_warps)
    return y


@triton.jit
def _column_sum_kernel(x_ptr, y_ptr, M, N, TM: tl.constexpr, TN: tl.constexpr):
    rn = tl.program_id(0) * TN + tl.arange(0, TN)
    acc = tl.zeros((TN,), dtype=tl.float32)
    for start in range(0, M, TM):
        rm = start + tl.arange(0, TM)
        mask = (rm[:, None] < M) & (rn[None, :] < N)
        acc += tl.sum(tl.load(x_ptr + rm[:, None] * N + rn[None, :], mask=mask, other=0.0).to(tl.float32), axis=0)
    tl.store(y_ptr + rn, acc, mask=rn < N)


def column_sum(x, *, TM, TN, num_warps=4):
    """Sum over rows: few programs, long chains of loads (latency bound)."""
    M, N = x.shape
    y = torch.empty((N,), device=x.device, dtype=torch.float32)
    _column_sum_kernel[(triton.cdiv(N, TN),)](x, y, M, N, TM=TM, TN=TN, num_warps=num_warps)
    return y


@triton.jit
def _special_kernel(x_ptr, y_ptr, n, ROUNDS: tl.constexpr, EXP2: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    for _ in tl.static_range(ROUNDS):
        if EXP2:
            x = tl.exp2(-x)
        else:
            x = x * 0.999 + 0.001
    tl.store(y_ptr + offs, x, mask=offs < n)


def special(x, *, ROUNDS, EXP2=True, BLOCK=1024, num_warps=4):
    """ROUNDS dependent exp2 (or multiply-add) of every fp32 element: the special-function and the FP32 pipe."""
    y = torch.empty_like(x)
    n = x.numel()
    _special_kernel[(triton.cdiv(n, BLOCK),)](x, y, n, ROUNDS=ROUNDS, EXP2=EXP2, BLOCK=BLOCK, num_warps=num_warps)
    return y


# ------------------------------------------------------------------------------------------------------ attention


@triton.jit
def _attention_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, scale, stride_h, stride_s, S, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    CAUSAL: tl.constexpr,
):  # fmt: skip
    start_m = tl.program_id(0) * BM
    base = tl.program_id(1).to(tl.int64) * stride_h
    rm = start_m + tl.arange(0, BM)
    rn = tl.arange(0, BN)
    rd = tl.arange(0, D)
    q = tl.load(q_ptr + base + rm[:, None] * stride_s + rd[None, :])
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    scale = scale * 1.44269504
    end = S
    if CAUSAL:
        end = start_m + BM
    for n in range(0, end, BN):
        k = tl.load(k_ptr + base + (n + rn)[None, :] * stride_s + rd[:, None])
        s = tl.dot(q, k) * scale
        if CAUSAL:
            s = tl.where(rm[:, None] >= (n + rn)[None, :], s, -1.0e6)
        new = tl.maximum(top, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        alpha = tl.exp2(top - new)
        total = total * alpha + tl.sum(p, 1)
        v = tl.load(v_ptr + base + (n + rn)[:, None] * stride_s + rd[None, :])
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        top = new
    acc = acc / total[:, None]
    tl.store(o_ptr + base + rm[:, None] * stride_s + rd[None, :], acc.to(o_ptr.dtype.element_ty))


def attention(q, k, v, *, BM, BN, CAUSAL=False, STAGES=3, num_warps=4):
    """Flash-style attention over (heads, S, D)."""
    H, S, D = q.shape
    o = torch.empty_like(q)
    _attention_kernel[(triton.cdiv(S, BM), H)](
        q, k, v, o, D**-0.5, q.stride(0), q.stride(1), S, D=D, BM=BM, BN=BN, CAUSAL=CAUSAL, num_stages=STAGES,
        num_warps=num_warps,
    )  # fmt: skip
    return o
