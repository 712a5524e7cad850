"""Persistent programs: refusals first, then both ways, then the round trip."""

from __future__ import annotations

import pytest
import torch

from klineage.model import TARGETS
from klineage.moves import Context, holds, move
from klineage.surface import Module

from .kernels import ELEMENTWISE, HEAD, MATMUL, ROW, normal, proposals, refusals
from .run import KernelFailed, run, same

PERSISTENT = move("persistent_programs")
INPUT = torch.arange(9000, dtype=torch.float32)

LOOPED = (
    HEAD
    + """@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr, num_tiles, NUM_PROGRAMS: tl.constexpr):
    for tile in range(tl.program_id(0), num_tiles, NUM_PROGRAMS):
        offs = tile * BLOCK + tl.arange(0, BLOCK)
        mask = offs < n
        x = tl.load(x_ptr + offs, mask=mask, other=0.0)
        tl.store(y_ptr + offs, x * 2.0, mask=mask)


def run(x):
    y = torch.empty_like(x)
    n = x.numel()
    num_tiles = triton.cdiv(n, 1024)
    NUM_SMS = torch.cuda.get_device_properties(x.device).multi_processor_count
    scale_kernel[(min(NUM_SMS, num_tiles),)](
        x, y, n, BLOCK=1024, num_tiles=num_tiles, NUM_PROGRAMS=NUM_SMS, num_warps=8
    )
    return y
"""
)

EXPERT = (
    HEAD
    + """@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, NUM_SMS: tl.constexpr):
    start_pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    k_tiles = tl.cdiv(K, BLOCK_K)
    num_tiles = num_pid_m * num_pid_n
    tile_id_c = start_pid - NUM_SMS
    offs_k = tl.arange(0, BLOCK_K)
    for tile_id in tl.range(start_pid, num_tiles, NUM_SMS, flatten=True):
        # this tile
        pid_m = tile_id // num_pid_n
        pid_n = tile_id % num_pid_n
        offs_m = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
        offs_n = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for ki in range(k_tiles):
            ks = ki * BLOCK_K + offs_k
            a_mask = (offs_m[:, None] < M) & (ks[None, :] < K)
            b_mask = (ks[:, None] < K) & (offs_n[None, :] < N)
            a = tl.load(a_ptr + offs_m[:, None] * K + ks[None, :], mask=a_mask, other=0.0)
            b = tl.load(b_ptr + ks[:, None] * N + offs_n[None, :], mask=b_mask, other=0.0)
            acc = tl.dot(a, b, acc)
        tile_id_c += NUM_SMS
        rows = (tile_id_c // num_pid_n) * BLOCK_M + tl.arange(0, BLOCK_M)
        cols = (tile_id_c % num_pid_n) * BLOCK_N + tl.arange(0, BLOCK_N)
        mask = (rows[:, None] < M) & (cols[None, :] < N)
        tl.store(c_ptr + rows[:, None] * N + cols[None, :], acc.to(c_ptr.dtype.element_ty), mask=mask)


def run(a, b):
    M, K = a.shape
    _, N = b.shape
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    NUM_SMS = torch.cuda.get_device_properties("cuda").multi_processor_count
    grid = lambda META: (min(NUM_SMS, triton.cdiv(M, META["BLOCK_M"]) * triton.cdiv(N, META["BLOCK_N"])),)
    matmul_kernel[grid](a, b, c, M, N, K, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, NUM_SMS=NUM_SMS)
    return c
"""
)


def _simplify(source: str) -> list:
    return list(PERSISTENT.simplify(Module.parse(source)))


def _materialize(source: str, **options: object) -> list:
    return list(PERSISTENT.materialize(Module.parse(source), **options))  # type: ignore[arg-type]


def _reason(found: list) -> str:
    assert not proposals(found)
    (refused,) = refusals(found)
    return refused.reason


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("range(tl.program_id(0), ", "range(tl.program_id(1), ", "starts at tl.program_id(1)"),
        ("num_tiles, NUM_PROGRAMS)", "num_tiles, n)", "steps by n, which is not the number of programs"),
        ("mask = offs < n", "mask = offs < n + NUM_PROGRAMS", "reads the number of programs"),
        ("mask = offs < n", "x_ptr += 0\n        mask = offs < n", "x_ptr is carried from tile to tile"),
        ("\n\n\ndef run", "\n    tl.debug_barrier()\n\n\ndef run", "not the kernel's last statement"),
        ("mask = offs < n", "mask = offs < n\n        if tile > 3:\n            break", "may end early"),
        ("mask = offs < n", "mask = offs < n\n        if tile > 3:\n            continue", "skips tiles"),
    ],
    ids=["axis", "step", "body reads step", "carried", "not last", "break", "continue"],
)
def test_loops_that_cannot_be_opened_are_refused(old: str, new: str, words: str):
    assert words in _reason(_simplify(LOOPED.replace(old, new, 1)))


def test_a_grid_of_another_size_is_refused():
    source = LOOPED.replace("[(min(NUM_SMS, num_tiles),)]", "[(num_tiles,)]")
    assert "does not follow from the launch" in _reason(_simplify(source))


def test_a_loop_over_the_programs_own_rows_is_no_tile_loop():
    source = LOOPED.replace(
        "range(tl.program_id(0), num_tiles, NUM_PROGRAMS)", "range(tl.program_id(0) * 4, num_tiles, 1)"
    )
    assert _simplify(source) == []


def test_flattened_loop_is_refused():
    body = """    tile = tl.program_id(0) - NUM_PROGRAMS
    for step in range(0, 2 * num_tiles):
        if step % 2 == 0:
            tile += NUM_PROGRAMS
"""
    source = LOOPED.replace("    for tile in range(tl.program_id(0), num_tiles, NUM_PROGRAMS):\n", body)
    assert "flattened" in _reason(_simplify(source))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("    mask = offs < n", "    if tl.program_id(0) > n:\n        return\n    mask = offs < n", "returns early"),
        ("    mask = offs < n", "    n = n - 1\n    mask = offs < n", "assigns its parameter n"),
        ("(x, y, n, BLOCK", "(*(x, y, n), BLOCK", "passes arguments by star"),
        ("(x, y, n, BLOCK", "(x.view(-1), y.view(-1), n, BLOCK", "the device of its tensors is not written"),
        (
            "[(triton.cdiv(n, 1024),)]",
            "[lambda meta: (triton.cdiv(n, meta['BLOCK']),)]",
            "function of the configuration",
        ),
        ("import torch\n", "from numpy import *\n", "does not import torch"),
    ],
    ids=["return", "parameter", "star", "device", "lambda", "import"],
)
def test_kernels_that_cannot_be_wrapped_are_refused(old: str, new: str, words: str):
    assert words in _reason(_materialize(ELEMENTWISE.replace(old, new)))


def test_counting_programs_is_refused_and_its_counter_example_is_wrong():
    source = ELEMENTWISE.replace("x * 2.0", "x * tl.num_programs(0)")
    assert "asks for the number of programs" in _reason(_materialize(source))
    broken = proposals(_materialize(source, checked=False))[0]
    context = Context(Module.parse(source), broken.site, broken.params, TARGETS["sm_90"])
    assert holds(PERSISTENT.conditions[0], context) is False
    with pytest.raises(AssertionError):
        same(source, broken.source, INPUT)


def test_nothing_to_do():
    assert _simplify(ELEMENTWISE) == [] and _materialize(LOOPED) == []
    planes = ELEMENTWISE.replace("(triton.cdiv(n, 1024),)", "(triton.cdiv(n, 1024), 2)")
    assert _materialize(planes) == []


def test_simplify_opens_the_loop():
    (proposal,) = _simplify(LOOPED)
    assert dict(proposal.params) == {"programs_per_sm": "1", "form": "range"}
    assert "for tile" not in proposal.source and "NUM_" not in proposal.source
    assert "    tile = tl.program_id(0)\n    offs = tile * BLOCK + tl.arange(0, BLOCK)\n" in proposal.source
    assert normal("scale_kernel[(num_tiles,)](x, y, n, BLOCK=1024, num_warps=8)") in normal(proposal.source)
    assert PERSISTENT.amount(Module.parse(LOOPED)) == 1
    assert PERSISTENT.amount(Module.parse(proposal.source)) == 0


def test_simplify_expert_with_a_shadow_index_and_a_grid_of_the_configuration():
    (proposal,) = _simplify(EXPERT)
    assert proposal.params["form"] == "tl.range flatten=True"
    assert "NUM_SMS" not in proposal.source
    assert "    tile_id = tl.program_id(axis=0)\n    # this tile\n" in proposal.source
    assert "    tile_id_c = tile_id\n" in proposal.source
    assert (
        'lambda META: (triton.cdiv(M, META["BLOCK_M"]) * triton.cdiv(N, META["BLOCK_N"]),)'
        in proposal.source.replace("META['BLOCK_M']", 'META["BLOCK_M"]').replace("META['BLOCK_N']", 'META["BLOCK_N"]')
    )
    a, b = torch.randn(70, 40), torch.randn(40, 50)
    same(EXPERT, proposal.source, a, b)


def test_simplify_counts_tiles_as_the_kernel_does_when_the_grid_does_not_say():
    source = EXPERT.replace(
        'lambda META: (min(NUM_SMS, triton.cdiv(M, META["BLOCK_M"]) * triton.cdiv(N, META["BLOCK_N"])),)', "(NUM_SMS,)"
    )
    (proposal,) = _simplify(source)
    assert "grid = (triton.cdiv(M, 16) * triton.cdiv(N, 16),)" in proposal.source
    same(source, proposal.source, torch.randn(70, 40), torch.randn(40, 50))


def test_simplify_number_of_programs():
    source = (
        LOOPED.replace("num_tiles, NUM_PROGRAMS)", "num_tiles, tl.num_programs(0))")
        .replace(", NUM_PROGRAMS: tl.constexpr", "")
        .replace(", NUM_PROGRAMS=NUM_SMS", "")
    )
    (proposal,) = _simplify(source)
    assert "num_programs" not in proposal.source and "scale_kernel[(num_tiles,)]" in proposal.source
    same(source, proposal.source, INPUT)


def test_simplify_wide_program_id():
    source = LOOPED.replace("range(tl.program_id(0), ", "range(start, ").replace(
        "    for tile", "    start = tl.program_id(0).to(tl.int64)\n    for tile"
    )
    (proposal,) = _simplify(source)
    assert "    tile = tl.program_id(0).to(tl.int64)\n    offs" in proposal.source and "start" not in proposal.source
    same(source, proposal.source, INPUT)


def test_materialize_with_the_program_id_inline():
    first = proposals(_materialize(ELEMENTWISE))[0]
    assert normal(first.source) == normal(LOOPED)


def test_materialize_names_the_loop_after_the_program_id():
    found = proposals(_materialize(ROW))
    assert [(p.params["programs_per_sm"], p.params["form"]) for p in found] == [
        ("1", "range"), ("2", "range"), ("4", "range"),
    ]  # fmt: skip
    assert "    for row in range(tl.program_id(0), num_tiles, NUM_PROGRAMS):\n        offs = tl" in found[0].source
    assert "(min(2 * NUM_SMS, rows),)" in found[1].source and "NUM_PROGRAMS=2 * NUM_SMS" in found[1].source
    (back,) = _simplify(found[1].source)
    assert back.params["programs_per_sm"] == "2"


def test_materialize_dot_kernels_try_a_flattened_loop():
    found = proposals(_materialize(MATMUL))
    assert [p.params["form"] for p in found][:2] == ["range", "tl.range flatten=True"]
    assert "grid = (min(NUM_SMS, num_tiles),)" in found[0].source
    hinted = proposals(_materialize(MATMUL, hints={"form": ["tl.range flatten=True"], "programs_per_sm": ["2"]}))
    assert dict(hinted[0].params) == {"programs_per_sm": "2", "form": "tl.range flatten=True"}


def test_materialize_gives_a_moved_pointer_its_own_name():
    source = ROW.replace("    offs = tl.arange", "    x_ptr += row * stride\n    offs = tl.arange").replace(
        "x_ptr + row * stride + offs", "x_ptr + offs"
    )
    first = proposals(_materialize(source))[0]
    assert "x_ptr_tile = x_ptr + row * stride" in first.source and "tl.load(x_ptr_tile + offs" in first.source
    same(source, first.source, torch.randn(11, 30))


@pytest.mark.parametrize("source", [ELEMENTWISE, ROW, MATMUL], ids=["elementwise", "row", "matmul"])
def test_round_trip(source: str):
    for proposal in proposals(_materialize(source)):
        (back,) = proposals(_simplify(proposal.source))
        again = [normal(p.source) for p in proposals(_materialize(back.source))]
        assert normal(proposal.source) in again


def test_meaning_is_kept():
    same(ELEMENTWISE, proposals(_materialize(ELEMENTWISE))[0].source, INPUT)
    same(LOOPED, _simplify(LOOPED)[0].source, INPUT)
    for proposal in proposals(_materialize(ROW)):
        same(ROW, proposal.source, torch.randn(11, 30))


def test_meaning_is_kept_for_dots():
    small = MATMUL.replace("BLOCK_M, BLOCK_N = 128, 256", "BLOCK_M, BLOCK_N = 16, 32").replace(
        "BLOCK_K=64", "BLOCK_K=16"
    )
    inputs = torch.randn(70, 50), torch.randn(50, 90), torch.randn(90)
    for proposal in proposals(_materialize(small))[:2]:
        same(small, proposal.source, *inputs)


def test_the_interpreter_reports_a_broken_kernel():
    with pytest.raises(KernelFailed):
        run(LOOPED.replace("x_ptr + offs", "missing + offs"), INPUT)
