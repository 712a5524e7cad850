"""exp2 for exp: refusals first, then both ways, then the values."""

from __future__ import annotations

import pytest
import torch

from klineage.moves import move
from klineage.surface import Module

from .kernels import HEAD, normal, proposals, refusals
from .run import same

EXP2 = move("exp2_for_exp")

EXP = (
    HEAD
    + """@triton.jit
def softmax_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + cols, mask=cols < n, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n + cols, e / tl.sum(e, axis=0), mask=cols < n)


def run(x):
    y = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
"""
)
BY_HAND = EXP.replace("tl.exp(x - tl.max(x, axis=0))", "tl.exp2((x - tl.max(x, axis=0)) * 1.4426950408889634)")


def test_an_exp2_of_its_own_is_refused():
    source = BY_HAND.replace(" * 1.4426950408889634", " * 2.0")
    found = list(EXP2.simplify(Module.parse(source)))
    assert not proposals(found) and "not a product with log2(e)" in refusals(found)[0].reason


def test_kernels_without_exponentials_are_left():
    source = EXP.replace("tl.exp(x - tl.max(x, axis=0))", "x")
    assert list(EXP2.simplify(Module.parse(source))) == list(EXP2.materialize(Module.parse(source))) == []


@pytest.mark.parametrize(
    "factor",
    [
        pytest.param("1.4426950408889634", id="literal"),
        pytest.param("1.44269504", id="short literal"),
        pytest.param("LOG2_E", id="constant"),
    ],
)
def test_simplify_takes_the_factor_out(factor):
    source = BY_HAND.replace("1.4426950408889634", factor)
    source = source.replace("@triton.jit", "LOG2_E = tl.constexpr(1.4426950408889634)\n\n\n@triton.jit", 1)
    (proposal,) = proposals(list(EXP2.simplify(Module.parse(source))))
    assert "e = tl.exp(x - tl.max(x, axis=0))" in proposal.source and "exp2" not in proposal.source


def test_round_trip():
    (simpler,) = proposals(list(EXP2.simplify(Module.parse(BY_HAND))))
    assert normal(simpler.source) == normal(EXP)
    (back,) = proposals(list(EXP2.materialize(Module.parse(simpler.source))))
    assert normal(back.source) == normal(BY_HAND)


def test_the_module_constant_is_used_again():
    source = EXP.replace("@triton.jit", "LOG2_E = tl.constexpr(1.4426950408889634)\n\n\n@triton.jit", 1)
    (proposal,) = proposals(list(EXP2.materialize(Module.parse(source))))
    assert "* LOG2_E)" in proposal.source


def test_both_give_the_same_values():
    same(EXP, BY_HAND, torch.randn(3, 77) * 4)
