"""Software pipelining: refusals first, then both ways, then the round trip."""

from __future__ import annotations

import pytest
import torch

from klineage.moves import move
from klineage.surface import Module

from .kernels import ELEMENTWISE, MATMUL, ROW, ROW_LOOP, normal, proposals, refusals
from .run import same

PIPELINING = move("software_pipelining")


def _simplify(source: str) -> list:
    return list(PIPELINING.simplify(Module.parse(source)))


def _materialize(source: str, **options: object) -> list:
    return list(PIPELINING.materialize(Module.parse(source), **options))  # type: ignore[arg-type]


TUNED = MATMUL.replace(
    "@triton.jit",
    '@triton.autotune(configs=[triton.Config({"BLOCK_K": 32}, num_stages=4), '
    'triton.Config({"BLOCK_K": 64}, num_stages=4)], key=["K"])\n@triton.jit',
).replace(", num_stages=3", "")


def test_own_parameter_is_refused():
    source = MATMUL.replace("GROUP_M: tl.constexpr", "GROUP_M: tl.constexpr, num_stages: tl.constexpr")
    assert not proposals(_simplify(source))
    assert "parameter of its own" in refusals(_simplify(source))[0].reason


def test_mixed_configurations_are_refused():
    source = TUNED.replace("num_stages=4", "num_stages=2", 1)
    assert not proposals(_simplify(source))
    assert "autotune_set goes first" in refusals(_simplify(source))[0].reason


@pytest.mark.parametrize(
    "source",
    [ELEMENTWISE, ROW, ROW_LOOP, ELEMENTWISE.replace("num_warps=8", "num_stages=4")],
    ids=["elementwise", "whole row", "loop without dot", "stages without a loop"],
)
def test_nothing_to_take_out(source: str):
    assert _simplify(source) == []


def test_simplify_launch_option():
    (proposal,) = _simplify(MATMUL)
    assert proposal.source == MATMUL.replace("num_stages=3", "num_stages=1")
    assert dict(proposal.params) == {"num_stages": "3", "form": "launch"}
    assert PIPELINING.amount(Module.parse(proposal.source)) == 0


def test_absent_option_of_a_dot_loop_is_the_default_of_three():
    (proposal,) = _simplify(MATMUL.replace(", num_stages=3", ""))
    assert proposal.params["num_stages"] == "3"
    assert normal(proposal.source) == normal(MATMUL.replace("num_stages=3", "num_stages=1"))


def test_simplify_range_option():
    source = ROW_LOOP.replace("range(0, n, BLOCK)", "tl.range(0, n, BLOCK, num_stages=4)")
    (proposal,) = _simplify(source)
    assert proposal.source == ROW_LOOP
    assert dict(proposal.params) == {"num_stages": "4", "form": "range"}


def test_range_keeps_other_options():
    source = ROW_LOOP.replace("range(0, n, BLOCK)", "tl.range(0, n, BLOCK, num_stages=4, flatten=True)")
    (proposal,) = _simplify(source)
    assert "tl.range(0, n, BLOCK, flatten=True)" in proposal.source


def test_configurations_alike_go_both_ways():
    (proposal,) = _simplify(TUNED)
    assert proposal.source.count("num_stages=1") == 2
    assert normal(TUNED) in [normal(p.source) for p in proposals(_materialize(proposal.source))]


def test_loop_without_dot_is_pipelined_by_its_range():
    found = proposals(_materialize(ROW_LOOP))
    assert [p.params["num_stages"] for p in found] == ["3", "4", "2", "5"]
    assert "for start in tl.range(0, n, BLOCK, num_stages=3):" in found[0].source


def test_materialize_nothing_without_a_loop():
    assert _materialize(ELEMENTWISE) == [] and _materialize(ROW) == []


def test_hints_come_first():
    source = MATMUL.replace("num_stages=3", "num_stages=1")
    found = proposals(_materialize(source, hints={"num_stages": ["5"]}))
    assert [p.params["num_stages"] for p in found] == ["5", "3", "4", "2"]


@pytest.mark.parametrize("stages", ["2", "3", "4", "5"])
def test_round_trip(stages: str):
    source = MATMUL.replace("num_stages=3", f"num_stages={stages}")
    (proposal,) = _simplify(source)
    assert normal(source) in [normal(p.source) for p in proposals(_materialize(proposal.source))]


def test_unchecked_asks_for_more_buffers_than_any_block_has():
    source = MATMUL.replace("num_stages=3", "num_stages=1")
    assert "16" in [p.params["num_stages"] for p in proposals(_materialize(source, checked=False))]


def test_meaning_is_kept():
    x = torch.randn(3, 1100)
    for proposal in proposals(_materialize(ROW_LOOP)):
        same(ROW_LOOP, proposal.source, x)
