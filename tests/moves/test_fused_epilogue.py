"""Fused epilogue: refusals first, then both ways, round trips, and outputs in the interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from klineage.model import target
from klineage.moves import Context, holds, measure, move
from klineage.surface import Module

from .gated import agree
from .kernels import ELEMENTWISE, HEAD, MATMUL, ROW_LOOP, normal, proposals, refusals

FUSED = move("fused_epilogue")
EXPERT = (Path(__file__).parents[2] / "tasks" / "kernels" / "matmul_epilogue.py").read_text()
PLAIN = (Path(__file__).parents[2] / "tasks" / "kernels" / "matmul.py").read_text()


def _simplify(source: str) -> list:
    return list(FUSED.simplify(Module.parse(source)))


def _materialize(source: str, **options: object) -> list:
    return list(FUSED.materialize(Module.parse(source), **options))  # type: ignore[arg-type]


def _small(source: str) -> str:
    """The same module with tiles of 16."""
    source = source.replace("BLOCK_M, BLOCK_N = 128, 256", "BLOCK_M, BLOCK_N = 16, 16").replace(
        "BLOCK_K=64", "BLOCK_K=16"
    )
    return source.replace("BLOCK_M, BLOCK_N, BLOCK_K = 128, 256, 64", "BLOCK_M, BLOCK_N, BLOCK_K = 16, 16, 16")


# A product as a person writes it: one tile a program, a plane of programs, the result in a tensor of its own.
PRODUCT = """@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, t_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_tm, stride_tn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        offs_k = k + tl.arange(0, BLOCK_K)
        a = tl.load(
            a_ptr + offs_m[:, None] * stride_am + offs_k[None, :] * stride_ak,
            mask=(offs_m[:, None] < M) & (offs_k[None, :] < K), other=0.0,
        )
        b = tl.load(
            b_ptr + offs_k[:, None] * stride_bk + offs_n[None, :] * stride_bn,
            mask=(offs_k[:, None] < K) & (offs_n[None, :] < N), other=0.0,
        )
        acc += tl.dot(a, b)
    t_ptrs = t_ptr + offs_m[:, None] * stride_tm + offs_n[None, :] * stride_tn
    tl.store(t_ptrs, acc, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


"""
FLAT = """@triton.jit
def bias_relu_kernel(t_ptr, bias_ptr, y_ptr, n, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(t_ptr + offs, mask=mask)
    x = x + tl.load(bias_ptr + offs % N, mask=mask)
    tl.store(y_ptr + offs, tl.maximum(x, 0.0), mask=mask)


"""
LAUNCH = """def run(a, b, bias):
    M, K = a.shape
    _, N = b.shape
    t = torch.empty((M, N), device=a.device, dtype=torch.float32)
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    matmul_kernel[grid](
        a, b, t, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), t.stride(0), t.stride(1),
        BLOCK_M=16, BLOCK_N=16, BLOCK_K=16,
    )
    y = torch.empty((M, N), device=a.device, dtype=a.dtype)
    n = t.numel()
    bias_relu_kernel[(triton.cdiv(n, 128),)](t, bias, y, n, N, BLOCK=128)
    return y
"""
TWO = HEAD + PRODUCT + FLAT + LAUNCH
PLANE = """@triton.jit
def bias_relu_kernel(t_ptr, bias_ptr, y_ptr, M, N, stride, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    rows = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    cols = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    inside = (rows[:, None] < M) & (cols[None, :] < N)
    bias = tl.load(bias_ptr + cols, mask=cols < N, other=0.0)
    where = rows[:, None] * stride + cols[None, :]
    x = tl.load(t_ptr + where, mask=inside, other=0.0)
    tl.store(y_ptr + where, tl.maximum(x + bias[None, :], 0.0), mask=inside)


"""
PLANE_LAUNCH = LAUNCH.replace("    n = t.numel()\n", "").replace(
    "bias_relu_kernel[(triton.cdiv(n, 128),)](t, bias, y, n, N, BLOCK=128)",
    "bias_relu_kernel[(triton.cdiv(M, 32), triton.cdiv(N, 16))](t, bias, y, M, N, t.stride(0), TILE_M=32, TILE_N=16)",
)
TILES = HEAD + PRODUCT + PLANE + PLANE_LAUNCH
IN_PLACE = (
    HEAD
    + PRODUCT
    + FLAT.replace("t_ptr, bias_ptr, y_ptr, n", "t_ptr, bias_ptr, n").replace("y_ptr", "t_ptr")
    + LAUNCH.replace("    y = torch.empty((M, N), device=a.device, dtype=a.dtype)\n", "")
    .replace("t, bias, y, n", "t, bias, n")
    .replace("return y", "return t")
)
HALF = TWO.replace("dtype=torch.float32", "dtype=torch.float16")
LIKE = TWO.replace("y = torch.empty((M, N), device=a.device, dtype=a.dtype)", "y = torch.empty_like(t, dtype=a.dtype)")
NATURAL = {"like": LIKE, "flat": TWO, "tiles": TILES, "in place": IN_PLACE, "half": HALF}


def _inputs(m: int, n: int, k: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(m + n + k)
    return torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype), torch.randn(n).to(dtype)


CASES = [_inputs(1, 1, 1), _inputs(21, 33, 20)]
HALF_CASES = [_inputs(21, 33, 20, torch.float16)]


# ------------------------------------------------------------------ refusals
NOT_FUSED = {
    "escapes": (TWO.replace("return y", "return y, t"), "t is read by more than the elementwise kernel"),
    "operand": (
        TWO.replace("    y = torch.empty((M, N), device=a.device, dtype=a.dtype)\n", "    y = a\n"),
        "does not allocate the result itself",
    ),
    "reads elsewhere": (TWO.replace("tl.load(t_ptr + offs, ", "tl.load(t_ptr + offs + 1, "), "at other elements"),
    "reads its row": (TWO.replace("tl.load(t_ptr + offs, ", "tl.load(t_ptr + offs // N, "), "at other elements"),
    "reduces": (TWO.replace("x = x + tl", "x = x - tl.max(x, axis=0) + tl"), "is not elementwise"),
    "loops": (
        TWO.replace("    tl.store(y_ptr + offs", "    for i in range(2):\n        x += 1.0\n    tl.store(y_ptr + offs"),
        "is not elementwise",
    ),
    "stores twice": (
        TWO.replace("    tl.store(y_ptr + offs", "    tl.store(t_ptr + offs, x, mask=mask)\n    tl.store(y_ptr + offs"),
        "stores 2 times",
    ),
    "own condition": (
        TWO.replace(
            "x = tl.load(t_ptr + offs, mask=mask)", "x = tl.load(t_ptr + offs, mask=mask & (offs > 5), other=0.0)"
        ),
        "under a condition of its own",
    ),
    "other row length": (TWO.replace("(t, bias, y, n, N, ", "(t, bias, y, n, K, "), "N of the elementwise kernel"),
    "fewer elements": (TWO.replace("(t, bias, y, n, N, ", "(t, bias, y, n - 1, N, "), "n of the elementwise kernel"),
    "short grid": (TWO.replace("triton.cdiv(n, 128)", "n // 128"), "grid of the elementwise kernel"),
    "other block": (TWO.replace("BLOCK=128", "BLOCK=64"), "grid of the elementwise kernel"),
    "work between": (
        TWO.replace("    n = t.numel()\n", "    n = t.numel()\n    bias.add_(1.0)\n"),
        "more between the two launches",
    ),
    "sum between": (
        TWO.replace("    n = t.numel()\n", "    n = t.numel()\n    s = t.sum()\n"),
        "between the two launches",
    ),
    "given tensor": (
        TWO.replace("t = torch.empty((M, N), device=a.device, dtype=torch.float32)", "t = a @ b"),
        "allocate",
    ),
    "column major": (TWO.replace("t.stride(0), t.stride(1),\n", "t.stride(1), M,\n"), "not stored row by row"),
    "two products": (
        TWO.replace("        acc += tl.dot(a, b)\n", "        acc += tl.dot(a, b)\n        two += tl.dot(a, b)\n")
        .replace("    for k in", "    two = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)\n    for k in")
        .replace("t_ptrs, acc,", "t_ptrs, acc * two,"),
        "2 accumulators",
    ),
    "decorator": (
        TWO.replace("@triton.jit", '@triton.heuristics({"X": lambda args: args["stride_tm"]})\n@triton.jit', 1),
        "a decorator of matmul_kernel looks at stride_tm",
    ),
    "nested": (TWO.replace("    bias_relu_kernel[(", "    if n:\n        bias_relu_kernel[("), "one block"),
}


@pytest.mark.parametrize("name", list(NOT_FUSED))
def test_what_cannot_be_fused_is_refused_with_a_reason(name: str):
    source, reason = NOT_FUSED[name]
    found = _materialize(source)
    assert not proposals(found)
    assert [r for r in refusals(found) if reason in r.reason], [r.reason for r in refusals(found)]


@pytest.mark.parametrize("name", ["escapes", "operand"])
def test_unchecked_conditions_are_skipped_and_their_predicates_are_false(name: str):
    module = Module.parse(NOT_FUSED[name][0])
    (proposal,) = proposals(FUSED.materialize(module, checked=False))
    context = Context(module, proposal.site, proposal.params, target("sm_90"))
    expected = {"product_read_by_one_kernel": name != "escapes", "result_is_no_operand": name != "operand"}
    assert {c.predicate: holds(c, context) for c in FUSED.conditions} == expected


NOT_SPLIT = {
    "reduces": (
        MATMUL.replace("acc = tl.maximum(acc, 0.0)", "acc = acc / tl.sum(acc, axis=1)[:, None]"),
        "not elementwise",
    ),
    "transposed": (
        MATMUL.replace("acc += bias.to(tl.float32)[None, :]", "acc += bias[:, None]"),
        "not a row or column",
    ),
    "loop value": (
        MATMUL.replace("acc = tl.maximum(acc, 0.0)", "acc = tl.maximum(acc, k)"),
        "k, which the epilogue reads",
    ),
    "two stores": (
        MATMUL.replace("    tl.store(c_ptrs", "    tl.store(c_ptrs, acc, mask=c_mask)\n    tl.store(c_ptrs"),
        "stores 2 times",
    ),
    "atomic": (
        MATMUL.replace("tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty)", "tl.atomic_add(c_ptrs, acc"),
        "atomics",
    ),
    "tuned key": (
        MATMUL.replace("@triton.jit", '@triton.autotune(configs=[], key=["stride_cm"])\n@triton.jit', 1),
        "a decorator of matmul_kernel looks at stride_cm",
    ),
    "unpacked": (
        MATMUL.replace(
            "    matmul_kernel[grid](\n        a, b, bias", "    matmul_kernel[grid](\n        *(a,), b, bias"
        ),
        "pass",
    ),
}


@pytest.mark.parametrize("name", list(NOT_SPLIT))
def test_what_cannot_be_split_is_refused_with_a_reason(name: str):
    source, reason = NOT_SPLIT[name]
    found = _simplify(source)
    assert not proposals(found)
    assert reason in refusals(found)[0].reason


CAST_ONLY = MATMUL.replace("    acc += bias.to(tl.float32)[None, :]\n    acc = tl.maximum(acc, 0.0)\n", "")


@pytest.mark.parametrize(
    "source", [PLAIN, CAST_ONLY, ELEMENTWISE, ROW_LOOP], ids=["expert", "cast", "elementwise", "row"]
)
def test_nothing_to_take_out_and_nothing_to_fuse(source: str):
    assert _simplify(source) == [] and _materialize(source) == []


# ------------------------------------------------------------------- simplify
SPLIT_TAIL = """    c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(acc_ptr + offs_m[:, None] * N + offs_n[None, :], acc, mask=c_mask)


@triton.jit
def matmul_epilogue_kernel(acc_ptr, bias_ptr, c_ptr, stride_cm, stride_cn, N, n_elements, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n_elements
    rows = offs // N
    cols = offs % N
    acc = tl.load(acc_ptr + offs, mask=mask, other=0.0)
    bias = tl.load(bias_ptr + cols, mask=mask, other=0.0)
    acc += bias.to(tl.float32)
    acc = tl.maximum(acc, 0.0)
    c_ptrs = c_ptr + rows * stride_cm + cols * stride_cn
    tl.store(c_ptrs, acc.to(c_ptr.dtype.element_ty), mask=mask)


def run(a, b, bias):
    M, K = a.shape
    _, N = b.shape
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    BLOCK_M, BLOCK_N = 128, 256
    grid = (triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N),)
    c_acc = torch.empty((M, N), device=c.device, dtype=torch.float32)
    matmul_kernel[grid](
        a, b, c_acc, M, N, K,
        a.stride(0), a.stride(1), b.stride(0), b.stride(1), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=64, GROUP_M=8, num_warps=8, num_stages=3,
    )
    matmul_epilogue_kernel[(triton.cdiv(M * N, 256),)](
        c_acc, bias, c, c.stride(0), c.stride(1), N, M * N,
        BLOCK=256,
    )
    return c
"""  # noqa: E501


def test_simplify_moves_everything_after_the_loop_to_a_flat_kernel():
    (proposal,) = _simplify(MATMUL)
    assert proposal.source.endswith(SPLIT_TAIL)
    assert dict(proposal.params) == {"intermediate": "float32"}
    assert _simplify(proposal.source) == []


C_MASK = "    c_mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)\n"
HERE = "c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn"
LEAKY = "@triton.jit\ndef leaky(x, slope):\n    return tl.where(x >= 0, x, slope * x)\n\n\n@triton.jit"
BRANCH = "    if RELU:\n        acc = tl.maximum(acc, 0.0)\n    else:\n        acc = acc * 2.0\n"
EPILOGUES = {
    "tutorial": MATMUL,
    "residual": MATMUL.replace("acc = tl.maximum(acc, 0.0)", f"acc = acc * 0.5 + tl.load({HERE}, mask=c_mask)")
    .replace(C_MASK, "")
    .replace("    bias = tl", f"{C_MASK}    bias = tl")
    .replace("c = torch.empty", "c = torch.zeros"),
    "helper": MATMUL.replace("tl.maximum(acc, 0.0)", "leaky(acc, 0.1)").replace("@triton.jit", LEAKY, 1),
    "late indices": MATMUL.replace(
        "    c_ptrs = c_ptr + offs_m[:, None] * stride_cm + offs_n[None, :] * stride_cn\n",
        "    offs_cm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)\n    offs_cn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)\n"
        "    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]\n",
    ),
    "branch": MATMUL.replace("    acc = tl.maximum(acc, 0.0)\n", BRANCH)
    .replace("GROUP_M: tl.constexpr", "GROUP_M: tl.constexpr, RELU: tl.constexpr")
    .replace("GROUP_M=8", "GROUP_M=8, RELU=True"),
    "unmasked row scale": MATMUL.replace(
        "    acc = tl.maximum(acc, 0.0)\n", "    acc = acc * (offs_m[:, None].to(tl.float32) / M) + tl.load(bias_ptr)\n"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(EPILOGUES))
def test_round_trip_and_outputs(name: str):
    source = _small(EPILOGUES[name])
    (proposal,) = _simplify(source)
    (back,) = _materialize(proposal.source)
    assert "epilogue_kernel" not in back.source
    (again,) = _simplify(back.source)
    assert normal(again.source) == normal(proposal.source)
    agree(source, [proposal.source, back.source], CASES)


# ---------------------------------------------------------------- materialize
FUSED_TAIL = """        acc += tl.dot(a, b)
    x = acc
    x = x + tl.load(bias_ptr + offs_n[None, :], mask=offs_n[None, :] < N)
    tl.store(y_ptr + (offs_m[:, None] * N + offs_n[None, :]), tl.maximum(x, 0.0), mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


def run(a, b, bias):
    M, K = a.shape
    _, N = b.shape
    grid = (triton.cdiv(M, 16), triton.cdiv(N, 16))
    y = torch.empty((M, N), device=a.device, dtype=a.dtype)
    matmul_kernel[grid](
        a, b, bias, y, M, N, K, a.stride(0), a.stride(1), b.stride(0), b.stride(1), BLOCK_M=16, BLOCK_N=16, BLOCK_K=16,
    )
    return y
"""  # noqa: E501


def test_materialize_writes_the_elementwise_body_at_the_store():
    (proposal,) = _materialize(TWO)
    assert normal(proposal.source).endswith(normal(FUSED_TAIL.split("\n\n\n")[1]))
    assert FUSED_TAIL.split("\n\n\n", maxsplit=1)[0] in proposal.source
    assert proposal.source.count("@triton.jit") == 1


@pytest.mark.parametrize("name", list(NATURAL))
def test_natural_forms_keep_their_outputs(name: str):
    (proposal,) = _materialize(NATURAL[name])
    agree(NATURAL[name], [proposal.source], CASES)
    agree(NATURAL[name], [proposal.source], HALF_CASES, tolerance=1e-3)


def test_a_narrower_intermediate_goes_on_rounding():
    (proposal,) = _materialize(HALF)
    assert "x = acc.to(tl.float16)\n" in proposal.source


def test_an_intermediate_of_the_operands_type_rounds_to_that_type():
    (proposal,) = _materialize(TWO.replace("dtype=torch.float32", "dtype=a.dtype"))
    assert "x = acc.to(a_ptr.dtype.element_ty)\n" in proposal.source
    agree(TWO.replace("dtype=torch.float32", "dtype=a.dtype"), [proposal.source], HALF_CASES, tolerance=1e-3)


def test_an_elementwise_kernel_that_other_code_uses_stays():
    source = TWO.replace("def run(", "def other():\n    return bias_relu_kernel\n\n\ndef run(")
    (proposal,) = _materialize(source)
    assert "def bias_relu_kernel(" in proposal.source and "bias_relu_kernel[" not in proposal.source


def test_names_that_both_kernels_use_are_kept_apart():
    clash = FLAT.replace("offs", "offs_m").replace("x = ", "offs_n = ").replace("x + tl", "offs_n + tl")
    source = HEAD + PRODUCT + clash.replace("maximum(x", "maximum(offs_n") + LAUNCH
    (proposal,) = _materialize(source)
    agree(source, [proposal.source], CASES)


# --------------------------------------------------------------------- expert
def test_expert_of_the_shipped_task_goes_both_ways():
    (proposal,) = _simplify(EXPERT)
    (back,) = _materialize(proposal.source)
    assert normal(_simplify(back.source)[0].source) == normal(proposal.source)
    assert measure(Module.parse(proposal.source)) < measure(Module.parse(EXPERT))
    agree(_small(EXPERT), [_small(proposal.source), _small(back.source)], HALF_CASES, tolerance=1e-3)


@pytest.mark.parametrize("name", ["grouped_program_order", "mask_elimination", "tensor_core_dot", "tile_size", "hints"])
def test_expert_can_be_split_before_and_after_other_moves(name: str):
    simpler = proposals(move(name).simplify(Module.parse(EXPERT)))[0].source
    (after,) = _simplify(simpler)
    (before,) = _simplify(EXPERT)
    other = [normal(p.source) for p in proposals(move(name).simplify(Module.parse(before.source)))]
    assert normal(after.source) in other
