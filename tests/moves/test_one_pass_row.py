"""One-pass row: refusals first, then both ways with the text they give, the round trip, and equal outputs."""

from __future__ import annotations

import pytest
import torch

from klineage.model import TARGETS
from klineage.moves import Context, holds, move
from klineage.surface import Module

from .gated import Disagree, agree
from .kernels import ELEMENTWISE, MATMUL, ROW_LOOP, normal, proposals, refusals
from .row_kernels import CROSS_ENTROPY, LAYER_NORM, RMS_NORM, SOFTMAX, SOFTMAX_LOOPS, SWIGLU

MOVE = move("one_pass_row")
EXPERTS = {"rms_norm": RMS_NORM, "layer_norm": LAYER_NORM, "softmax": SOFTMAX, "swiglu": SWIGLU}


def _simplify(source: str) -> list:
    return list(MOVE.simplify(Module.parse(source)))


def _materialize(source: str, **options: object) -> list:
    return list(MOVE.materialize(Module.parse(source), **options))  # type: ignore[arg-type]


def _inputs(name: str, rows: int, n: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(rows * 1000 + n)
    x = torch.randn(rows, n) + 0.5
    if name == "cross_entropy":
        target = torch.randint(0, n, (rows,))
        target[-1] = -100 if rows > 1 else target[-1]
        return x, target
    more = {"rms_norm": [(n,)], "layer_norm": [(n,), (n,)], "swiglu": [(rows, n)]}.get(name, [])
    return (x, *(torch.randn(shape) for shape in more))


# ---------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    "source", [ELEMENTWISE, MATMUL, ROW_LOOP, SOFTMAX_LOOPS], ids=["flat", "matmul", "loop", "3pass"]
)
def test_not_held_whole_is_nothing_to_simplify(source: str):
    assert _simplify(source) == []
    assert MOVE.amount(Module.parse(source)) == 0


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("e = tl.exp(x - m)", "e = tl.cumsum(tl.exp(x - m), 0)", "cumsum mixes the row's lanes"),
        ("m = tl.max(x, axis=0)", "m = tl.argmax(x, axis=0)", "the reduction argmax has no running form here"),
        ("y = e / d", "y = e / d + tl.flip(e)", "flip mixes the row's lanes"),
        (
            "y = e / d",
            "tl.store(X + row * stride + offs, e, mask=mask)\n"
            "    z = tl.load(X + row * stride + offs, mask=mask, other=0.0)\n    y = z / tl.sum(z, axis=0)",
            "the row is read back after it was stored",
        ),
    ],
    ids=["scan", "argmax", "flip", "read back"],
)
def test_what_mixes_lanes_is_refused(old: str, new: str, reason: str):
    found = _simplify(SOFTMAX.replace(old, new))
    assert not proposals(found)
    assert [r.reason for r in refusals(found)] == [reason]


def test_tile_bound_elsewhere_is_refused():
    source = SOFTMAX.replace("BLOCK=BLOCK, ", "").replace(
        "@triton.jit", '@triton.autotune(configs=[triton.Config({"BLOCK": 4096})], key=["n"])\n@triton.jit'
    )
    found = _simplify(source)
    assert not proposals(found)
    assert "BLOCK is not passed" in refusals(found)[0].reason or found == []


def test_loop_left_early_is_refused():
    source = ROW_LOOP.replace("offs = start", "if start > 4096:\n            break\n        offs = start")
    assert [r.reason for r in refusals(_materialize(source))] == ["a loop over the row is left early"]


def test_operand_tiles_of_a_dot_are_no_row():
    assert not proposals(_materialize(MATMUL))


def test_length_the_launcher_does_not_know_is_refused():
    source = SOFTMAX_LOOPS.replace("    m = float", "    n = n // tl.num_programs(1)\n    m = float").replace(
        "range(0, n, BLOCK)", "range(0, n + row, BLOCK)"
    )
    assert not proposals(_materialize(source))
    assert "the launcher does not pass" in refusals(_materialize(source))[0].reason


# ---------------------------------------------------------------------- both ways
def test_simplify_softmax_gives_three_passes():
    (proposal,) = _simplify(SOFTMAX)
    text = proposal.source
    assert text.count("for start in range(0, n, BLOCK):") == 3
    assert "m = tl.maximum(m, tl.max(x, axis=0))" in text and "d += tl.sum(e, axis=0)" in text
    assert "BLOCK = 256" in text
    assert dict(proposal.params) == {"block": "triton.next_power_of_2(n)", "length": "n", "parameter": "BLOCK"}
    assert MOVE.amount(Module.parse(text)) == 0


def test_scalars_stay_outside_the_loops():
    (proposal,) = _simplify(RMS_NORM)
    kernel = proposal.source.split("def settings")[0]
    inside = [line for line in kernel.splitlines() if line.startswith("        ")]
    assert not [line for line in inside if "rstd =" in line or "X_row_dtype =" in line or "RSTD" in line]
    assert "X_row_dtype = x_base.dtype.element_ty" in kernel
    assert "BLOCK_SIZE=256, num_warps=num_warps" in proposal.source  # the warps are another move's matter
    assert "# the statistic is kept in fp32" in kernel


def test_materialize_softmax_merges_the_three_loads():
    first = proposals(_materialize(SOFTMAX_LOOPS))[0]
    assert first.source.count("tl.load(") == 1 and "for start" not in first.source
    assert "BLOCK=triton.next_power_of_2(n)" in first.source
    assert first.params["block"] == "triton.next_power_of_2(n)"


def test_materialize_vector_accumulator_keeps_its_type():
    first = proposals(_materialize(ROW_LOOP))[0]
    assert "tl.zeros" not in first.source
    assert "acc = tl.load(x_ptr + row * stride + offs, mask=offs < n, other=0.0).to(tl.float32)" in first.source
    half = ROW_LOOP.replace(".to(tl.float32)", "")
    assert "other=0.0).to(tl.float32)" in proposals(_materialize(half))[0].source


def test_materialize_online_loop_needs_no_rescaling():
    first = proposals(_materialize(CROSS_ENTROPY))[0]
    assert "d = tl.sum(tl.exp2((X_block - block_max) * LOG2_E))" in first.source
    assert first.source.count('float("-inf"),\n') == 1  # one load of the row left
    assert "BLOCK_SIZE = triton.next_power_of_2(n)" in first.source


def test_materialize_offers_row_loads_first_then_in_order():
    found = proposals(_materialize(_simplify(LAYER_NORM)[0].source))
    assert [p.params["loads"] for p in found] == ["first", "in order"]
    early, late = (p.source for p in found)
    assert early.index("tl.load(W") < early.index("tl.sum") < early.index("tl.store")
    assert late.index("tl.sum") < late.index("tl.load(W")


def test_carried_offsets_and_counted_loops_open_too():
    carried = ROW_LOOP.replace("    acc = ", "    offs = tl.arange(0, BLOCK)\n    acc = ", 1)
    carried = carried.replace("        offs = start + tl.arange(0, BLOCK)\n", "")
    carried = carried.replace("other=0.0).to(tl.float32)", "other=0.0).to(tl.float32)\n        offs += BLOCK")
    counted = ROW_LOOP.replace("range(0, n, BLOCK)", "tl.range(0, tl.cdiv(n, BLOCK), num_stages=2)").replace(
        "start + tl.arange", "start * BLOCK + tl.arange"
    )
    for source in (carried, counted):
        first = proposals(_materialize(source))[0]
        assert "for " not in first.source.split("def run")[0] and "offs += BLOCK" not in first.source
        agree(source, [first.source], [(torch.randn(3, 700),)])


def test_unchecked_breaks_the_tile_on_purpose():
    (broken, *_) = proposals(_materialize(SOFTMAX_LOOPS, checked=False))
    assert "triton.next_power_of_2(n) // 2" in broken.source
    with pytest.raises(Disagree, match=r"off by|NaN"):
        agree(SOFTMAX_LOOPS, [broken.source], [(torch.randn(2, 100),)])


@pytest.mark.parametrize("name", EXPERTS)
def test_round_trip_text(name: str):
    simpler = _simplify(EXPERTS[name])[0].source
    texts = [p.source for p in proposals(_materialize(simpler))]
    assert texts and all(MOVE.amount(Module.parse(t)) == 1 for t in texts)
    if name in ("softmax", "swiglu"):  # the move is exact here
        assert normal(texts[0]) == normal(EXPERTS[name])
    again = {tuple(sorted(normal(_simplify(t)[0].source).splitlines())) for t in texts}
    assert len(again) == 1  # the order of the loads apart, all ways lead back to the same loops


@pytest.mark.parametrize("name", EXPERTS)
def test_outputs_agree(name: str):
    simpler = _simplify(EXPERTS[name])[0].source
    again = [p.source for p in proposals(_materialize(simpler))]
    agree(EXPERTS[name], [simpler, *again], [_inputs(name, 3, n) for n in (1, 31, 129, 256, 700)])


def test_half_precision_outputs_agree():
    simpler = _simplify(RMS_NORM)[0].source
    again = [p.source for p in proposals(_materialize(simpler))]
    inputs = [tuple(t.half() for t in _inputs("rms_norm", 2, n)) for n in (33, 300)]
    agree(RMS_NORM, [simpler, *again], inputs, tolerance=2e-3)


def test_cross_entropy_outputs_agree():
    opened = proposals(_materialize(CROSS_ENTROPY))[0].source
    simpler = _simplify(opened)[0].source
    agree(CROSS_ENTROPY, [opened, simpler], [_inputs("cross_entropy", 3, n) for n in (33, 257)])


def test_name_with_two_meanings_is_split():
    source = SOFTMAX.replace("d = tl.sum(e, axis=0)\n    y = e / d", "m = tl.sum(e, axis=0)\n    y = e / m")
    (proposal,) = _simplify(source)
    agree(source, [proposal.source], [(torch.randn(2, 300),)])


# ---------------------------------------------------------------------- conditions
def test_conditions_tell():
    (proposal,) = _simplify(SOFTMAX)
    covers, fits = MOVE.conditions
    context = Context(Module.parse(SOFTMAX), None, proposal.params, TARGETS["sm_90"])
    assert holds(covers, context) is True
    assert holds(fits, context) is None
    half = Context(Module.parse(SOFTMAX), None, {"block": "triton.next_power_of_2(n) // 2"}, TARGETS["sm_90"])
    assert holds(covers, half) is None
    small = Context(Module.parse(SOFTMAX), None, {"block": "256", "length": "300"}, TARGETS["sm_90"])
    assert holds(covers, small) is False
