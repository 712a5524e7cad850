"""Row kernels that the tests of several moves share: one row per program, in one block or in loops over tiles."""

from __future__ import annotations

from .kernels import HEAD

RMS_NORM = (
    HEAD
    + """@triton.jit
def rms_kernel(Y, y_stride, X, x_stride, W, RSTD, n_cols, eps, offset, BLOCK_SIZE: tl.constexpr):
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    y_base = Y + row_idx * y_stride
    x_base = X + row_idx * x_stride
    X_row = tl.load(x_base + col_offsets, mask=mask, other=0)
    X_row_dtype = X_row.dtype
    W_row = tl.load(W + col_offsets, mask=mask, other=0)
    # the statistic is kept in fp32
    X_row = X_row.to(tl.float32)
    mean_square = tl.sum(X_row * X_row, axis=0) / n_cols
    rstd = tl.rsqrt(mean_square + eps)
    tl.store(RSTD + row_idx, rstd)
    X_row = X_row * rstd
    X_row = X_row.to(X_row_dtype)
    Y_row = X_row * (offset + W_row)
    tl.store(y_base + col_offsets, Y_row, mask=mask)


def settings(n):
    BLOCK_SIZE = triton.next_power_of_2(n)
    num_warps = 8 if BLOCK_SIZE >= 2048 else 4
    return BLOCK_SIZE, num_warps


def run(x, w):
    n_rows, n_cols = x.shape
    BLOCK_SIZE, num_warps = settings(n_cols)
    y = torch.empty_like(x)
    r = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    strides = y.stride(0), x.stride(0)
    rms_kernel[(n_rows,)](
        y, strides[0], x, strides[1], w, r, n_cols, 1e-6, 0.0, BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps
    )
    return y, r
"""
)

LAYER_NORM = (
    HEAD
    + """@triton.jit
def layer_norm_kernel(Y, X, W, B, MEAN, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    w = tl.load(W + cols, mask=mask, other=0.0).to(tl.float32)
    b = tl.load(B + cols, mask=mask, other=0.0).to(tl.float32)
    x_ptr = X + row * stride
    x = tl.load(x_ptr + cols, mask=mask, other=0.0)
    x32 = x.to(tl.float32)
    mean = tl.sum(x32, axis=0) / n
    centred = x32 - mean
    kept = tl.where(mask, centred, 0.0)
    var = tl.sum(kept * kept, axis=0) / n
    rstd = tl.rsqrt(var + eps)
    tl.store(MEAN + row, mean)
    y = centred * rstd * w + b
    tl.store(Y + row * stride + cols, y.to(x.dtype), mask=mask)


def run(x, w, b):
    rows, n = x.shape
    y = torch.empty_like(x)
    mean = torch.empty(rows, dtype=torch.float32, device=x.device)
    layer_norm_kernel[(rows,)](y, x, w, b, mean, x.stride(0), n, 1e-5, BLOCK=triton.next_power_of_2(n), num_warps=8)
    return y, mean
"""
)

SOFTMAX = (
    HEAD
    + """@triton.jit
def softmax_kernel(Y, X, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(X + row * stride + offs, mask=mask, other=-float("inf"), cache_modifier=".ca")
    m = tl.max(x, axis=0)
    e = tl.exp(x - m)
    d = tl.sum(e, axis=0)
    y = e / d
    tl.store(Y + row * stride + offs, y, mask=mask, cache_modifier=".cs")


def run(x):
    rows, n = x.shape
    y = torch.empty_like(x)
    BLOCK = triton.next_power_of_2(n)
    softmax_kernel[(rows,)](y, x, x.stride(0), n, BLOCK=BLOCK, num_warps=8)
    return y
"""
)

SOFTMAX_LOOPS = (
    HEAD
    + """@triton.jit
def softmax_kernel(Y, X, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    m = float("-inf")
    for start in range(0, n, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n
        x = tl.load(X + row * stride + offs, mask=mask, other=-float("inf"))
        m = tl.maximum(m, tl.max(x, axis=0))
    d = 0.0
    for start in range(0, n, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n
        x = tl.load(X + row * stride + offs, mask=mask, other=-float("inf"))
        d += tl.sum(tl.exp(x - m), axis=0)
    for start in range(0, n, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        mask = offs < n
        x = tl.load(X + row * stride + offs, mask=mask, other=-float("inf"))
        tl.store(Y + row * stride + offs, tl.exp(x - m) / d, mask=mask)


def run(x):
    rows, n = x.shape
    y = torch.empty_like(x)
    softmax_kernel[(rows,)](y, x, x.stride(0), n, BLOCK=256)
    return y
"""
)

SWIGLU = (
    HEAD
    + """@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def swiglu_kernel(a_ptr, b_ptr, c_ptr, stride, n_cols: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    program_id = tl.program_id(0).to(tl.int64)
    a_ptr += program_id * stride
    b_ptr += program_id * stride
    c_ptr += program_id * stride
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    a_row = tl.load(a_ptr + col_offsets, mask=mask, other=0).to(tl.float32)
    b_row = tl.load(b_ptr + col_offsets, mask=mask, other=0)
    c_row = silu(a_row).cast(b_row.dtype) * b_row
    tl.store(c_ptr + col_offsets, c_row, mask=mask)


def run(a, b):
    rows, n = a.shape
    c = torch.empty_like(a)
    BLOCK_SIZE = triton.next_power_of_2(n)
    swiglu_kernel[(rows,)](a, b, c, c.stride(0), n_cols=n, BLOCK_SIZE=BLOCK_SIZE, num_warps=8)
    return c
"""
)

CROSS_ENTROPY = (
    HEAD
    + """LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def cross_entropy_kernel(X_ptr, X_stride, Y_ptr, loss_ptr, n_cols, ignore_index, BLOCK_SIZE: tl.constexpr):
    program_id = tl.program_id(0).to(tl.int64)
    y = tl.load(Y_ptr + program_id)
    X_ptr += program_id * X_stride
    if y == ignore_index:
        for i in range(0, n_cols, BLOCK_SIZE):
            X_offsets = i + tl.arange(0, BLOCK_SIZE)
            tl.store(X_ptr + X_offsets, 0.0, mask=X_offsets < n_cols)
        tl.store(loss_ptr + program_id, 0.0)
        return
    loss_ptr += program_id
    m = float("-inf")
    d = 0.0
    ori_X_y = tl.load(X_ptr + y).cast(tl.float32)
    for i in range(0, n_cols, BLOCK_SIZE):
        X_offsets = i + tl.arange(0, BLOCK_SIZE)
        X_block = tl.load(
            X_ptr + X_offsets,
            mask=X_offsets < n_cols,
            other=float("-inf"),
            # fp32 for the softmax
        ).cast(tl.float32)
        block_max = tl.max(X_block)
        m_new = tl.maximum(m, block_max)
        d = d * tl.exp2((m - m_new) * LOG2_E) + tl.sum(tl.exp2((X_block - m_new) * LOG2_E))
        m = m_new
    lse = m + tl.log(d)
    for i in range(0, n_cols, BLOCK_SIZE):
        X_offsets = i + tl.arange(0, BLOCK_SIZE)
        X_block = tl.load(X_ptr + X_offsets, mask=X_offsets < n_cols, other=float("-inf")).cast(tl.float32)
        X_block = tl.exp2((X_block - m) * LOG2_E) / d
        tl.store(X_ptr + X_offsets, X_block, mask=X_offsets < n_cols)
    tl.debug_barrier()
    dx_y = tl.exp2((ori_X_y - m) * LOG2_E) / d
    dx_y += -1.0
    tl.store(X_ptr + y, dx_y)
    loss = lse - ori_X_y
    tl.store(loss_ptr, loss)


def run(x, target):
    rows, n = x.shape
    x = x.clone()
    loss = torch.zeros(rows, dtype=torch.float32, device=x.device)
    BLOCK_SIZE = min(32768, triton.next_power_of_2(n))
    cross_entropy_kernel[(rows,)](x, x.stride(0), target, loss, n, -100, BLOCK_SIZE=BLOCK_SIZE, num_warps=32)
    return loss, x
"""
)
