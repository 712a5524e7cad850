"""Traced traffic against counts made by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton

from klineage.model import Traffic

Trace = Callable[..., list[dict[str, Any]]]
HEADER = "import torch, triton\nimport triton.language as tl\n\n"
ADD = (
    HEADER
    + """
@triton.jit
def add(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(o + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)

def run(x, y):
    o = torch.empty_like(x)
    add[(triton.cdiv(x.numel(), 1024),)](x, y, o, x.numel(), B=1024)
    return o
"""
)
MATMUL = (
    HEADER
    + """
@triton.jit
def matmul(a, b, c, N, K, G: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tiles_n = N // BN
    pid = tl.program_id(0)
    group = pid // (G * tiles_n)
    m = group * G + pid % G
    n = pid % (G * tiles_n) // G
    rm = m * BM + tl.arange(0, BM)
    rn = n * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rm[:, None] * K + (k + rk)[None, :])
        y = tl.load(b + (k + rk)[:, None] * N + rn[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(tl.float16))

def run(a, b):
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=torch.float16)
    matmul[(M // 64 * (N // 64),)](a, b, c, N, K, GROUP, BM=64, BN=64, BK=32)
    return c
"""
)
TWO_PASS_NORM = (
    HEADER
    + """
@triton.jit
def norm(x, w, o, n, eps, B: tl.constexpr):
    row = tl.program_id(0)
    acc = tl.zeros([B], tl.float32)
    for off in range(0, n, B):
        v = tl.load(x + row * n + off + tl.arange(0, B)).to(tl.float32)
        acc += v * v
    scale = tl.rsqrt(tl.sum(acc, 0) / n + eps)
    for off in range(0, n, B):
        i = off + tl.arange(0, B)
        v = tl.load(x + row * n + i).to(tl.float32)
        tl.store(o + row * n + i, (v * scale * tl.load(w + i).to(tl.float32)).to(tl.float16))

def run(x, w):
    o = torch.empty_like(x)
    norm[(x.shape[0],)](x, w, o, x.shape[1], 1e-6, B=256)
    return o
"""
)


def floats(*shape: int, dtype: str = "float32", stride: tuple[int, ...] | None = None) -> tuple[Any, ...]:
    contiguous = torch.empty(shape, device="meta").stride()
    return ("tensor", list(shape), list(stride or contiguous), dtype)


def only(records: list[dict[str, Any]]) -> Traffic:
    assert len(records) == 1
    return Traffic.model_validate(records[0]["traffic"])


def test_a_failing_launcher_is_an_outcome(worker: Any) -> None:
    payload = {"source": ADD.replace("torch.empty_like(x)", "x[0"), "inputs": []}
    value = worker.run("klineage.gate.interpreter.jobs:trace_job", payload).value
    assert value["launches"] == [] and "SyntaxError" in value["error"]


def test_a_launch_out_of_bounds_at_the_full_shape_is_found(worker: Any) -> None:
    source = ADD.replace("mask=m", "mask=i >= 0")
    payload = {"source": source, "inputs": [list(floats(1000)), list(floats(1000))]}
    value = worker.run("klineage.gate.interpreter.jobs:trace_job", payload).value
    assert value["kind"] == "out_of_bounds"


def test_vector_add(trace: Trace) -> None:
    n = 1 << 20
    traffic = only(trace(ADD, floats(n), floats(n)))
    assert traffic.blocks == 1024 and traffic.sampled == 16
    assert (traffic.bytes_loaded, traffic.bytes_stored) == (8 * n, 4 * n)
    assert (traffic.load_requests, traffic.store_requests) == (2 * n / 32, n / 32)
    assert (traffic.load_sectors, traffic.store_sectors) == (8 * n / 32, 4 * n / 32)
    assert (traffic.unique_bytes, traffic.unique_loaded_bytes) == (12 * n, 8 * n)
    assert traffic.program_unique_bytes == 8 * 1024
    assert traffic.alu_lanes == n
    assert (traffic.load_rounds, traffic.loop_trips, traffic.reductions) == (1, 0, 0)
    assert traffic.tile_bytes_per_round == 8 * 1024
    assert (traffic.wave_blocks, traffic.wave_unique_bytes) == (132, 132 * 12 * 1024)


def test_masked_lanes_of_a_small_grid_are_exact(trace: Trace) -> None:
    traffic = only(trace(ADD, floats(2500), floats(2500)))
    assert traffic.sampled == traffic.blocks == 3
    assert (traffic.bytes_loaded, traffic.bytes_stored) == (20000, 10000)
    assert traffic.load_requests == 2 * (32 + 32 + 15)  # 452 lanes in the last program


@pytest.mark.parametrize("group", [1, 4, 16])
def test_matmul(trace: Trace, group: int) -> None:
    source = MATMUL.replace("GROUP", str(group))
    traffic = only(trace(source, floats(1024, 512, dtype="float16"), floats(512, 1024, dtype="float16"), waves=[64]))
    tiles, trips = 16 * 16, 16
    assert traffic.dot_flops == {"fp16": 2.0 * 1024 * 1024 * 512}
    assert traffic.bytes_loaded == tiles * trips * 2 * (64 * 32 * 2)
    assert traffic.load_sectors == traffic.bytes_loaded / 32
    assert traffic.bytes_stored == 1024 * 1024 * 2
    assert traffic.unique_bytes == 2 * 1024 * 512 * 2 + 1024 * 1024 * 2
    assert traffic.unique_loaded_bytes == 2 * 1024 * 512 * 2
    assert (traffic.load_rounds, traffic.loop_trips) == (trips, trips)
    assert traffic.tile_bytes_per_round == 2 * 64 * 32 * 2
    # 64 programs: of 16 tile columns, 64 / rows of them are begun by groups of `group` rows
    rows, columns = {1: (4, 16), 4: (4, 16), 16: (16, 4)}[group]
    strip = 64 * 512 * 2
    assert traffic.wave_unique_bytes == (rows + columns) * strip + 64 * (64 * 64 * 2)
    assert traffic.waves == 4


def test_wave_shows_whether_grouping_pays(trace: Trace) -> None:
    shapes = (floats(2048, 1024, dtype="float16"), floats(1024, 2048, dtype="float16"))
    plain, grouped = (only(trace(MATMUL.replace("GROUP", g), *shapes, waves=[32])) for g in ("1", "4"))
    assert plain.wave_unique_bytes is not None and grouped.wave_unique_bytes is not None
    strip, tile = 64 * 1024 * 2, 64 * 64 * 2
    assert plain.wave_unique_bytes == (1 + 32) * strip + 32 * tile
    assert grouped.wave_unique_bytes == (4 + 8) * strip + 32 * tile


@pytest.mark.parametrize(
    ("options", "dtype", "kind"),
    [("", "float32", "tf32"), (', input_precision="ieee"', "float32", "fp32-ieee"), ("", "bfloat16", "bf16"),
     ("", "float8_e4m3fn", "fp8")],
)  # fmt: skip
def test_dots_are_told_apart_by_operands(trace: Trace, options: str, dtype: str, kind: str) -> None:
    source = MATMUL.replace("GROUP", "1").replace("tl.dot(x, y, acc)", f"tl.dot(x, y, acc{options})")
    traffic = only(trace(source, floats(64, 64, dtype=dtype), floats(64, 64, dtype=dtype)))
    assert traffic.dot_flops == {kind: 2.0 * 64**3}


def test_two_pass_norm_reads_twice(trace: Trace) -> None:
    rows, n = 512, 1024
    traffic = only(trace(TWO_PASS_NORM, floats(rows, n, dtype="float16"), floats(n, dtype="float16")))
    assert traffic.bytes_loaded == rows * n * 2 * 3  # x twice, w once
    assert traffic.unique_bytes == 2 * rows * n * 2 + n * 2
    assert traffic.unique_loaded_bytes == rows * n * 2 + n * 2
    assert traffic.program_unique_bytes == 2 * n * 2
    assert (traffic.loop_trips, traffic.reductions) == (8, 1)
    assert traffic.load_rounds == 8  # one per trip: x and w of the second loop go out together
    assert traffic.reduce_lanes == rows * 256
    # per row: rsqrt, one division; casts, products and sums elementwise
    assert traffic.mufu_lanes == rows * 2
    # first loop: cast, square, add; second: cast, cast, two products, cast back; scalars: cast of n, division 2, sum
    assert traffic.alu_lanes == rows * (n * 3 + n * 5 + 1 + 2 + 1)
    assert traffic.wave_unique_bytes == 132 * 2 * n * 2 + n * 2


@pytest.mark.parametrize(("step", "sectors"), [(1, 4), (2, 8), (8, 32), (32, 32)])
def test_strided_loads_touch_more_sectors(trace: Trace, step: int, sectors: int) -> None:
    source = ADD.replace("(x + i,", f"(x + i * {step},").replace("x.numel()", "y.numel()").replace("like(x)", "like(y)")
    traffic = only(trace(source, floats(32768 * step), floats(32768)))
    assert traffic.load_sectors / traffic.load_requests == (sectors + 4) / 2


@pytest.mark.parametrize("stride", [(256, 1), (1, 256)], ids=["row-major", "column-major"])
def test_a_tile_is_coalesced_along_whichever_axis_is_contiguous(trace: Trace, stride: tuple[int, int]) -> None:
    source = (
        HEADER
        + """
@triton.jit
def kernel(x, o, sr, sc):
    r = tl.arange(0, 64)
    v = tl.load(x + r[:, None] * sr + r[None, :] * sc)
    tl.store(o + r[:, None] * 64 + r[None, :], v)

def run(x):
    o = torch.empty(64, 64)
    kernel[(1,)](x, o, x.stride(0), x.stride(1))
    return o
"""
    )
    traffic = only(trace(source, floats(256, 256, stride=stride)))
    assert traffic.load_sectors == 64 * 64 * 4 / 32
    assert traffic.unique_bytes == 2 * 64 * 64 * 4


def test_dependent_loads_are_rounds_of_their_own(trace: Trace) -> None:
    source = (
        HEADER
        + """
@triton.jit
def kernel(table, x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    page = tl.load(table + tl.program_id(0))
    tl.store(o + tl.program_id(0) * B + i, tl.load(x + page * B + i))

def run(table, x):
    o = torch.empty(table.numel(), 64)
    kernel[(table.numel(),)](table, x, o, B=64)
    return o
"""
    )
    pages = torch.tensor([3, 1, 3, 3], dtype=torch.int32)
    traffic = only(trace(source, ("data", pages), floats(8, 64)))
    assert traffic.load_rounds == 2
    assert traffic.unique_loaded_bytes == 32 + 2 * 64 * 4  # integers are real: two different pages


def test_places_found_by_sorting_are_real(trace: Trace) -> None:
    source = (
        HEADER
        + """
@triton.jit
def kernel(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    bits = tl.load(x + i, mask=i < n, other=0.0).to(tl.int32, bitcast=True)
    keys = bits.to(tl.int64) << 32 | (B - 1 - i).to(tl.int64)
    page = (B - 1) - (tl.topk(keys, 4) & 0xFFFFFFFF)
    tl.store(o + tl.arange(0, 4)[:, None] * 64 + tl.arange(0, 64)[None, :],
             tl.load(x + page[:, None] * 64 + tl.arange(0, 64)[None, :]))

def run(x):
    o = torch.empty(4, 64)
    kernel[(1,)](x, o, 33, B=64)
    return o
"""
    )
    traffic = only(trace(source, floats(64, 64)))
    assert traffic.unique_loaded_bytes == 4 * 64 * 4  # floats are not, so the first four pages are as good as any


def test_atomics_and_integer_data_count(trace: Trace) -> None:
    source = (
        HEADER
        + """
@triton.jit
def kernel(q, o, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(o + tl.arange(0, B), ((tl.load(q + i) >> 4) & 15).to(tl.float32))

def run(q):
    o = torch.zeros(128, device=q.device)
    kernel[(q.numel() // 128,)](q, o, B=128)
    return o
"""
    )
    traffic = only(trace(source, ("data", torch.zeros(1024, dtype=torch.int32))))
    assert traffic.bytes_atomic == 1024 * 4
    assert traffic.bytes_stored == 0
    assert traffic.alu_lanes == 1024 * 3  # shift, and, conversion: on loaded data
    assert traffic.unique_bytes == 1024 * 4 + 128 * 4


PERSISTENT = MATMUL.replace(
    "    pid = tl.program_id(0)\n", "    for pid in tl.range(tl.program_id(0), tiles_n * tiles_n, PROGRAMS):\n"
)


def persistent() -> str:
    head, body = PERSISTENT.split("PROGRAMS):\n")
    kernel, host = body.split("\ndef run")
    indented = "\n".join(f"    {line}" if line.strip() else line for line in kernel.splitlines())
    source = f"{head}PROGRAMS):\n{indented}\n\ndef run{host}"
    return source.replace("PROGRAMS", "24").replace("[(M // 64 * (N // 64),)]", "[(24,)]").replace("GROUP", "1")


def test_persistent_programs_with_unequal_trips_add_up(trace: Trace) -> None:
    traffic = only(trace(persistent(), floats(512, 512, dtype="float16"), floats(512, 512, dtype="float16")))
    assert traffic.blocks == 24  # 64 tiles: 16 programs do three, 8 do two
    assert traffic.dot_flops["fp16"] == pytest.approx(2.0 * 512**3)
    assert traffic.bytes_stored == pytest.approx(512 * 512 * 2)
    assert traffic.waves == pytest.approx(64 / 24)
    assert traffic.loop_trips == pytest.approx(64 / 24 * 16)


def test_two_launches_come_in_order_with_their_configurations(trace: Trace) -> None:
    source = (
        HEADER
        + """
@triton.autotune([triton.Config({"B": 64}), triton.Config({"B": 256})], key=[])
@triton.jit
def tuned(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n), mask=i < n)

def run(x):
    o = torch.empty_like(x)
    for _ in range(2):
        tuned[lambda meta: (triton.cdiv(x.numel(), meta["B"]),)](x, o, x.numel())
    return o
"""
    )
    text = str(triton.Config({"B": 256}))
    records = trace(source, floats(1024), configs=[None, text])
    assert [(r["kernel"], r["grid"]) for r in records] == [("tuned", [16, 1, 1]), ("tuned", [4, 1, 1])]


def test_large_tensors_cost_nothing(trace: Trace) -> None:
    rows, n = 1 << 17, 1 << 13
    traffic = only(trace(TWO_PASS_NORM, floats(rows, n, dtype="float16"), floats(n, dtype="float16")))
    assert traffic.bytes_loaded == rows * n * 2 * 3  # 2 GB of input that is never filled or read
