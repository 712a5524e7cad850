"""Autotune sets: refusals first, then both ways, then the round trip."""

from __future__ import annotations

import pytest
import torch

from klineage.model import TARGETS
from klineage.moves import Context, holds, move
from klineage.surface import Module

from .kernels import ELEMENTWISE, HEAD, MATMUL, ROW, normal, proposals, refusals
from .run import run, same

AUTOTUNE = move("autotune_set")
INPUT = torch.arange(1300, dtype=torch.float32)

KERNEL = """@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask, other=0.0)
    tl.store(y_ptr + offs, x * 2.0, mask=mask)


def run(x):
    y = torch.empty_like(x)
    n = x.numel()
    scale_kernel[lambda META: (triton.cdiv(n, META["BLOCK"]),)](x, y, n)
    return y
"""
SET = """@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 256}, num_warps=2),
        triton.Config({"BLOCK": 1024}, num_warps=4),
        triton.Config({"BLOCK": 4096}, num_warps=8),
    ],
    key=["n"],
)
"""
TUNED = HEAD + SET + KERNEL
COMPREHENSION = """WARPS = [2, 4]


@triton.autotune(
    configs=[triton.Config({"BLOCK": b}, num_warps=w) for b in (256, 1024) for w in WARPS if b >= 128 * w],
    key=["n"],
)
"""
HELPER = """def settings(largest=1024):
    configs = []
    for block in [128, 256, 512, 1024]:
        if block <= largest:
            configs.append(triton.Config({"BLOCK": block}, num_stages=2))
    return configs


@triton.autotune(configs=settings(256), key=["n"])
"""
MATMUL_SET = """@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 128}, num_warps=8, num_stages=3),
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}, num_warps=4, num_stages=3),
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64}, num_warps=8, num_stages=3),
    ],
    key=["M", "N", "K"],
)
@triton.jit"""


def _simplify(source: str) -> list:
    return list(AUTOTUNE.simplify(Module.parse(source)))


def _materialize(source: str, **options: object) -> list:
    return list(AUTOTUNE.materialize(Module.parse(source), **options))  # type: ignore[arg-type]


def _reason(found: list) -> str:
    assert not proposals(found)
    (refused,) = refusals(found)
    return refused.reason


@pytest.mark.parametrize(
    ("configs", "words"),
    [
        ("CONFIGS", "CONFIGS is not a constant of the module"),
        ("make(device())", "make(device()) does not follow from the text"),
        ('[triton.Config({"BLOCK": 64}, pre_hook=zero)]', "carry a pre_hook"),
        ('[triton.Config({"WIDTH": 64})]', "has no parameter WIDTH"),
        ("[]", "is empty"),
        ('[triton.Config({"BLOCK": 2 ** 999999999})]', "does not follow from the text"),
        ('[triton.Config({"BLOCK": 1 << 999999999})]', "does not follow from the text"),
        ('[triton.Config({"BLOCK": [64] * 999999999})]', "does not follow from the text"),
    ],
    ids=["unknown name", "unknown call", "hook", "unknown parameter", "empty", "power", "shift", "repeat"],
)
def test_sets_that_do_not_follow_are_refused(configs: str, words: str):
    source = HEAD + f'@triton.autotune(configs={configs}, key=["n"])\n' + KERNEL
    assert words in _reason(_simplify(source))


def test_reading_the_choice_is_refused():
    assert "reads scale_kernel.best_config" in _reason(_simplify(TUNED + "\n\nCHOICE = scale_kernel.best_config\n"))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("tl.store(y_ptr", "tl.atomic_add(y_ptr", "accumulates with atomics"),
        ("tl.load(x_ptr", "tl.load(y_ptr", "stores to y_ptr, which it also reads"),
        ("](x, y, n,", "](y, y, n,", "works in place on y"),
    ],
    ids=["atomics", "reads its output", "aliased"],
)
def test_kernels_that_may_not_run_twice_are_refused(old: str, new: str, words: str):
    source = ELEMENTWISE.replace(old, new)
    found = _materialize(source)
    assert words in _reason(found)
    broken = proposals(_materialize(source, checked=False))
    assert broken
    assert all(
        holds(AUTOTUNE.conditions[0], Context(Module.parse(source), p.site, p.params, TARGETS["sm_90"])) is False
        for p in broken
    )


def test_several_launches_and_computed_options_are_refused():
    twice = ELEMENTWISE.replace("    return y\n", "    scale_kernel[(1,)](x, y, n, BLOCK=64)\n    return y\n")
    assert "launched from several places" in _reason(_materialize(twice))
    computed = ELEMENTWISE.replace("num_warps=8", "num_warps=8 if n > 4096 else 4")
    assert "the launcher computes num_warps" in _reason(_materialize(computed))


def test_nothing_to_do():
    assert _simplify(ELEMENTWISE) == []
    assert _materialize(TUNED) == []


def test_simplify_takes_the_middle_first():
    found = proposals(_simplify(TUNED))
    assert found[0].source == HEAD + KERNEL.replace("](x, y, n)", "](x, y, n, BLOCK=1024, num_warps=4)")
    assert [p.note.split(": ")[1] for p in found] == [
        "BLOCK=1024, num_warps=4", "BLOCK=4096, num_warps=8", "BLOCK=256, num_warps=2",
    ]  # fmt: skip
    assert found[0].params["configs"] == "row=1024,num_warps=4;row=4096,num_warps=8;row=256,num_warps=2"
    assert AUTOTUNE.amount(Module.parse(TUNED)) == 1
    assert AUTOTUNE.amount(Module.parse(found[0].source)) == 0


def test_simplify_evaluates_comprehensions_and_drops_their_constants():
    found = proposals(_simplify(HEAD + COMPREHENSION + KERNEL))
    assert {p.note for p in found} == {
        f"one of 3: BLOCK={b}, num_warps={w}" for b, w in ((256, 2), (1024, 2), (1024, 4))
    }
    assert all("WARPS" not in p.source for p in found)


def test_simplify_evaluates_helpers_and_drops_them():
    found = proposals(_simplify(HEAD + HELPER + KERNEL))
    assert sorted(p.note for p in found) == [f"one of 2: BLOCK={b}, num_stages=2" for b in (128, 256)]
    assert all("def settings" not in p.source for p in found)


def test_simplify_keeps_a_constant_that_is_read_elsewhere():
    source = HEAD + COMPREHENSION + KERNEL.replace("n = x.numel()", "n = x.numel() * WARPS[0] // WARPS[0]")
    assert all("WARPS = [2, 4]" in p.source for p in proposals(_simplify(source)))


def test_simplify_keeps_heuristics():
    source = TUNED.replace(
        "@triton.jit", '@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})\n@triton.jit'
    ).replace("BLOCK: tl.constexpr)", "BLOCK: tl.constexpr, EVEN: tl.constexpr)")
    (first, *_rest) = proposals(_simplify(source))
    assert "@triton.heuristics" in first.source and "autotune" not in first.source
    same(source, first.source, INPUT)


def test_simplify_dot_takes_the_largest_tiles_that_fit():
    tuned = MATMUL.replace("@triton.jit", MATMUL_SET, 1)
    tuned = tuned.replace("BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=64, ", "").replace(
        ", num_warps=8, num_stages=3,\n    )", "\n    )"
    )
    first, second, third = proposals(_simplify(tuned))
    assert "BLOCK_M=128, BLOCK_N=256, BLOCK_K=64, num_warps=8, num_stages=3" in first.source
    assert "BLOCK_M=64" in second.source and "BLOCK_M=256" in third.source


def test_materialize_elementwise():
    found = proposals(_materialize(ELEMENTWISE))
    first = found[0]
    assert first.params["configs"].startswith("row=1024,num_warps=8;row=4096,num_warps=8;row=2048,num_warps=8")
    assert 'scale_kernel[lambda META: (triton.cdiv(n, META["BLOCK"]),)](x, y, n)' in first.source
    assert 'triton.Config({"BLOCK": 1024}, num_warps=8),\n' in first.source
    assert 'key=["n"]' in first.source
    assert all(p.source.count("triton.Config(") <= 6 for p in found)


def test_materialize_row_leaves_a_computed_block_alone():
    (proposal,) = proposals(_materialize(ROW))
    assert "BLOCK=BLOCK)" in proposal.source
    assert proposal.source.count("triton.Config({}") == 6


def test_materialize_matmul_reads_named_tiles_from_the_choice():
    first = proposals(_materialize(MATMUL))[0]
    assert 'grid = lambda META: (triton.cdiv(M, META["BLOCK_M"]) * triton.cdiv(N, META["BLOCK_N"]),)' in first.source
    assert "BLOCK_M, BLOCK_N = 128, 256" not in first.source
    assert 'key=["M", "N", "K"]' in first.source
    assert "GROUP_M=8" in first.source and "num_warps=8, num_stages=3,\n    )\n" not in first.source
    first_config = first.source.split("triton.Config(")[1]
    assert first_config.startswith('{"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64}, num_warps=8, num_stages=3)')


def test_tiles_that_the_launcher_counts_with_stay():
    source = ELEMENTWISE.replace("n = x.numel()", "n = x.numel()\n    blocks = triton.cdiv(n, 1024)").replace(
        "(triton.cdiv(n, 1024),)", "(blocks,)"
    )
    found = proposals(_materialize(source))
    assert found and all("BLOCK=1024" in p.source and "[(blocks,)]" in p.source for p in found)


def test_hinted_set_comes_first():
    hints = {"configs": ["row=512,num_warps=2;row=128,num_warps=1", "rubbish"]}
    first = proposals(_materialize(ELEMENTWISE, hints=hints))[0]
    assert first.params["configs"] == "row=1024,num_warps=8;row=512,num_warps=2;row=128,num_warps=1"


def test_round_trip_from_the_fixed_side():
    fixed = HEAD + KERNEL.replace("](x, y, n)", "](x, y, n, BLOCK=1024, num_warps=8)")
    tuned = proposals(_materialize(fixed))[0]
    assert normal(fixed) in [normal(p.source) for p in proposals(_simplify(tuned.source))]


def test_round_trip_from_the_tuned_side():
    fixed = proposals(_simplify(TUNED))[0]
    back = proposals(_materialize(fixed.source, hints={"configs": [fixed.params["configs"]]}))[0]
    assert back.params == fixed.params
    again = proposals(_simplify(back.source))[0]
    assert normal(again.source) == normal(fixed.source)


def test_meaning_is_kept():
    for proposal in proposals(_simplify(TUNED)):
        same(TUNED, proposal.source, INPUT)
    (wanted,) = run(ELEMENTWISE, INPUT)
    tuned = proposals(_materialize(ELEMENTWISE))[0].source
    for config in range(6):
        (output,) = run(tuned, INPUT, config=config)
        assert torch.equal(output, wanted)


def test_meaning_is_kept_for_dots():
    torch.manual_seed(0)
    inputs = torch.randn(70, 50), torch.randn(50, 90), torch.randn(90)
    (wanted,) = run(MATMUL, *inputs)
    tuned = proposals(_materialize(MATMUL))[0].source
    for config in (1, 5):
        (output,) = run(tuned, *inputs, config=config)
        assert torch.allclose(output, wanted, atol=1e-4)
