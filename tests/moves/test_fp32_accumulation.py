"""fp32 accumulation: refusals first, then both ways, then what it does to values."""

from __future__ import annotations

import pytest
import torch

from klineage.model import Case, target
from klineage.moves import Context, holds, move
from klineage.surface import Module

from .kernels import ELEMENTWISE, MATMUL, ROW, normal, proposals
from .run import run

FP32 = move("fp32_accumulation")
WIDE = ROW.replace("other=0.0)\n", "other=0.0).to(tl.float32)\n")


def test_nothing_accumulates_in_an_elementwise_kernel():
    module = Module.parse(ELEMENTWISE)
    assert not proposals(list(FP32.materialize(module))) and not proposals(list(FP32.simplify(module)))


def test_operands_of_a_dot_are_left_alone():
    source = MATMUL.replace("tl.dot(a, b, acc)", "tl.dot(a.to(tl.float32), b.to(tl.float32), acc)")
    (proposal,) = proposals(list(FP32.simplify(Module.parse(source))))
    assert "tl.dot(a.to(tl.float32), b.to(tl.float32), acc, out_dtype=tl.float16)" in proposal.source


def test_row_both_ways():
    (narrow,) = proposals(list(FP32.simplify(Module.parse(WIDE))))
    assert normal(narrow.source) == normal(ROW)
    (wide,) = proposals(list(FP32.materialize(Module.parse(narrow.source))))
    assert normal(wide.source) == normal(WIDE)


def test_dot_accumulator_both_ways():
    (narrow,) = proposals(list(FP32.simplify(Module.parse(MATMUL))))
    assert "tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float16)" in narrow.source
    (wide,) = proposals(list(FP32.materialize(Module.parse(narrow.source))))
    assert normal(wide.source) == normal(MATMUL)


def test_it_is_what_keeps_long_sums_right():
    ones = torch.full((1, 4096), 1.001, dtype=torch.float16)
    exact = float(ones.double().sum())
    (narrow,), (wide,) = run(ROW, ones), run(WIDE, ones)
    assert abs(float(wide) - exact) <= abs(float(narrow) - exact)


@pytest.mark.parametrize(("dtype", "answer"), [("fp16", True), ("bf16", True), ("fp32", False)])
def test_condition_follows_the_case(dtype, answer):
    (condition,) = FP32.conditions
    case = Case(name="c", params={"n": 31, "dtype": dtype})
    assert holds(condition, Context(Module.parse(ROW), None, {}, target("sm_90"), case)) is answer
