"""Programs traced together touch what they touch when traced one by one."""

from __future__ import annotations

from typing import Any

import pytest
from gate.interpreter.test_trace_job import HEADER, MATMUL, floats, persistent

CAUSAL = (
    HEADER
    + """
@triton.jit
def attend(q, k, v, o, S, D: tl.constexpr, B: tl.constexpr):
    block = tl.program_id(0)
    head = tl.program_id(1).to(tl.int64) * S * D
    d = tl.arange(0, D)
    m = block * B + tl.arange(0, B)
    at = head + m[:, None] * D + d[None, :]
    left = tl.load(q + at, mask=m[:, None] < S, other=0.0)
    acc = tl.zeros((B, D), tl.float32)
    for start in range(0, tl.minimum((block + 1) * B, S), B):
        n = start + tl.arange(0, B)
        seen = (n[None, :] < S) & (m[:, None] >= n[None, :])
        s = tl.dot(left, tl.load(k + head + n[None, :] * D + d[:, None], mask=n[None, :] < S, other=0.0))
        p = tl.where(seen, tl.exp(s), 0.0).to(tl.float16)
        acc = tl.dot(p, tl.load(v + head + n[:, None] * D + d[None, :], mask=n[:, None] < S, other=0.0), acc)
    tl.store(o + at, acc.to(tl.float16), mask=m[:, None] < S)

def run(q, k, v):
    o = torch.empty_like(q)
    H, S, D = q.shape
    attend[(triton.cdiv(S, 32), H)](q, k, v, o, S, D=D, B=32)
    return o
"""
)
DESCRIPTORS = (
    HEADER
    + """
@triton.jit
def product(a, b, c, M, N, K, T: tl.constexpr):
    left = tl.make_tensor_descriptor(a, [M, K], [K, 1], [T, T])
    right = tl.make_tensor_descriptor(b, [N, K], [K, 1], [T, T])
    out = tl.make_tensor_descriptor(c, [M, N], [N, 1], [T, T])
    i, j = tl.program_id(0) * T, tl.program_id(1) * T
    acc = tl.zeros((T, T), tl.float32)
    for k in range(0, K, T):
        acc = tl.dot(left.load([i, k]), right.load([j, k]).T, acc)
    out.store([i, j], acc.to(tl.float16))

def run(a, b):
    c = torch.empty((a.shape[0], b.shape[0]), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(a.shape[0], 32), triton.cdiv(b.shape[0], 32))
    product[grid](a, b, c, a.shape[0], b.shape[0], a.shape[1], T=32)
    return c
"""
)
BRANCHING = MATMUL.replace("    acc = tl.zeros", "    if pid % 2 == 0:\n        rm = rm + 0\n    acc = tl.zeros")
HALF = "float16"
SQUARE = (floats(512, 512, dtype=HALF), floats(512, 512, dtype=HALF))
CASES = {
    "grouped-matmul": (MATMUL.replace("GROUP", "4"), SQUARE, 24),
    "matmul-whole-grid": (MATMUL.replace("GROUP", "1"), SQUARE, 64),
    "causal-attention": (CAUSAL, (floats(4, 300, 32, dtype=HALF),) * 3, 24),
    "descriptors": (DESCRIPTORS, (floats(500, 512, dtype=HALF), floats(256, 512, dtype=HALF)), 40),
    "persistent": (persistent(), SQUARE, 132),
}


def payload(name: str) -> dict[str, Any]:
    source, inputs, wave = CASES[name]
    return {"source": source, "inputs": [list(i) for i in inputs], "waves": [wave]}


@pytest.mark.parametrize("name", CASES)
def test_together_is_as_one_by_one(worker: Any, name: str) -> None:
    result = worker.run("gate.interpreter.interpreter_jobs:both_waves", payload(name))
    assert result.ok, result.error
    together, apart = result.value["together"], result.value["apart"]
    assert together["error"] is None, together["error"]
    for left, right in zip(together["launches"], apart["launches"], strict=True):
        assert left["traffic"].pop("dot_flops") == right["traffic"].pop("dot_flops")
        assert left["traffic"] == pytest.approx(right["traffic"], rel=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_these_are_traced_together(worker: Any, name: str) -> None:
    result = worker.run("gate.interpreter.interpreter_jobs:took_the_fast_way", payload(name))
    assert result.value["error"] is None, result.value["error"]


def test_programs_that_branch_apart_are_traced_one_by_one(worker: Any) -> None:
    request = {"source": BRANCHING.replace("GROUP", "1"), "inputs": [list(i) for i in SQUARE], "waves": [24]}
    refused = worker.run("gate.interpreter.interpreter_jobs:took_the_fast_way", request).value
    assert "the slow way" in refused["error"]
    assert worker.run("klineage.gate.interpreter.jobs:trace_job", request).value["error"] is None
