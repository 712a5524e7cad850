"""Tensor-core dot: refusals first, then both ways, then the round trip."""

from __future__ import annotations

import pytest
import torch

from klineage.model import TARGETS, Case
from klineage.moves import Context, holds, move
from klineage.surface import Module

from .kernels import ELEMENTWISE, MATMUL, normal, proposals, refusals
from .run import same

DOT = move("tensor_core_dot")
NAIVE = MATMUL.replace("tl.dot(a, b, acc)", 'tl.dot(a.to(tl.float32), b.to(tl.float32), acc, input_precision="ieee")')
AT_LOAD = (
    MATMUL.replace("other=0.0)\n        b", "other=0.0).to(tl.float32)\n        b")
    .replace("other=0.0)\n        acc", "other=0.0).to(tl.float32)\n        acc")
    .replace("acc = tl.dot(a, b, acc)", 'acc += tl.dot(a, b, input_precision="ieee")')
)


def _simplify(source: str) -> list:
    return list(DOT.simplify(Module.parse(source)))


def _materialize(source: str, **options: object) -> list:
    return list(DOT.materialize(Module.parse(source), **options))  # type: ignore[arg-type]


def _dot(text: str) -> str:
    return MATMUL.replace("tl.dot(a, b, acc)", text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tl.dot(a, b, out_dtype=tl.float16)", "fp32_accumulation goes first"),
        ("tl.dot(a, b, acc, max_num_imprecise_acc=32)", "fp8 product"),
    ],
    ids=["fp16 accumulation", "fp8 control"],
)
def test_other_accumulation_is_refused(text: str, reason: str):
    assert not proposals(_simplify(_dot(text)))
    assert reason in refusals(_simplify(_dot(text)))[0].reason


def test_integer_product_is_left_alone():
    assert _simplify(MATMUL.replace("dtype=tl.float32)\n    for", "dtype=tl.int32)\n    for")) == []
    assert _simplify(_dot("tl.dot(a, b, acc, out_dtype=tl.int32)")) == []


def test_operand_used_elsewhere_is_refused():
    source = AT_LOAD.replace("        acc +=", "        total = tl.sum(a, axis=1)\n        acc +=")
    assert [r.reason for r in refusals(_materialize(source))] == ["a is used as fp32 elsewhere too"]
    assert proposals(_materialize(source, checked=False))


@pytest.mark.parametrize("source", [NAIVE, AT_LOAD, ELEMENTWISE], ids=["cast in place", "cast at load", "no dot"])
def test_nothing_to_take_out(source: str):
    assert _simplify(source) == []


def test_simplify_casts_the_operands():
    (proposal,) = _simplify(MATMUL)
    assert proposal.source == NAIVE
    assert dict(proposal.params) == {"input_precision": "default"}
    assert DOT.amount(Module.parse(proposal.source)) == 0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("tl.dot(a, b, acc, allow_tf32=False)", 'acc, input_precision="ieee")'),
        ('tl.dot(a, b, acc, input_precision="tf32x3")', 'acc, input_precision="ieee")'),
        ("tl.dot(a, b, acc, input_precision=PRECISION)", 'acc, input_precision="ieee")'),
        ("tl.dot(a + a, tl.trans(b), acc)", "tl.dot((a + a).to(tl.float32), tl.trans(b).to(tl.float32), acc,"),
        ("tl.dot(a.to(b.dtype), b, acc=acc)", "tl.dot(a.to(b.dtype).to(tl.float32), b.to(tl.float32), acc=acc,"),
    ],
    ids=["allow_tf32", "tf32x3", "constexpr", "expressions", "cast to 16 bit"],
)
def test_simplify_forms(before: str, after: str):
    (proposal,) = _simplify(_dot(before))
    assert after in proposal.source


def test_simplify_operands_wide_already_gives_only_ieee():
    source = AT_LOAD.replace(', input_precision="ieee"', "")
    assert _simplify(source)[0].source == AT_LOAD


def test_materialize_strips_casts_at_the_loads():
    (proposal,) = proposals(_materialize(AT_LOAD))
    assert normal(proposal.source) == normal(MATMUL.replace("acc = tl.dot(a, b, acc)", "acc += tl.dot(a, b)"))


def test_materialize_strips_casts_in_both_branches():
    source = AT_LOAD.replace(
        "        b = tl.load", "        if K > 8:\n            a = tl.load(a_ptrs).to(tl.float32)\n        b = tl.load"
    )
    assert ".to(tl.float32)\n        b" not in proposals(_materialize(source))[0].source
    mixed = source.replace("a = tl.load(a_ptrs).to(tl.float32)", "a = tl.load(a_ptrs)")
    assert "tl.dot(a.to(b.dtype), b)" in proposals(_materialize(mixed))[0].source


def test_computed_tile_takes_the_loaded_ones_type():
    source = _dot('tl.dot(tl.exp(a), b.to(tl.float32), acc, input_precision="ieee")')
    assert "tl.dot(tl.exp(a).to(b.dtype), b, acc)" in proposals(_materialize(source))[0].source


def test_round_trip():
    (proposal,) = _simplify(MATMUL)
    assert [p.source for p in proposals(_materialize(proposal.source))] == [MATMUL]


@pytest.mark.parametrize(("dtype", "answer"), [("fp16", True), ("bf16", True), ("fp32", False), ("odd", None)])
def test_condition_looks_at_the_case(dtype: str, answer: bool | None):
    case = Case(name="c", params={"dtype": dtype})
    context = Context(Module.parse(MATMUL), None, {}, TARGETS["sm_90"], case)
    assert holds(DOT.conditions[0], context) is answer


def test_meaning_is_kept():
    inputs = torch.randn(40, 70).half(), torch.randn(70, 33).half(), torch.randn(33).half()
    same(MATMUL, _simplify(MATMUL)[0].source, *inputs, tolerance=2e-3)
    same(AT_LOAD, proposals(_materialize(AT_LOAD))[0].source, *inputs, tolerance=2e-3)
