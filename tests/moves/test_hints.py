"""Hints: refusals first, then both ways, then the values."""

from __future__ import annotations

import torch

from klineage.moves import move
from klineage.surface import Module

from .kernels import ELEMENTWISE, MATMUL, normal, proposals
from .run import same

HINTS = move("hints")
ALIGNED = ELEMENTWISE.replace(
    "    mask =", "    offs = tl.max_contiguous(tl.multiple_of(offs, BLOCK), BLOCK)\n    mask ="
)
EVICTED = ELEMENTWISE.replace("other=0.0)", 'other=0.0, eviction_policy="evict_first")').replace(
    "x * 2.0, mask=mask)", 'x * 2.0, mask=mask, eviction_policy="evict_first")'
)


def _materialize(source: str, **options: object) -> list:
    return proposals(list(HINTS.materialize(Module.parse(source), **options)))  # type: ignore[arg-type]


def test_offsets_of_unknown_start_are_not_declared_aligned():
    source = ELEMENTWISE.replace("tl.program_id(0) * BLOCK + ", "n + ")
    assert "alignment" not in {p.params["kinds"] for p in _materialize(source)}


def test_kernel_without_hints_has_nothing_to_simplify():
    assert list(HINTS.simplify(Module.parse(ELEMENTWISE))) == []


def test_simplify_takes_every_hint_out_at_once():
    source = ALIGNED.replace("other=0.0)", 'other=0.0, cache_modifier=".ca", eviction_policy="evict_last")')
    (proposal,) = proposals(list(HINTS.simplify(Module.parse(source))))
    assert normal(proposal.source) == normal(ELEMENTWISE)
    assert proposal.params == {"kinds": "alignment+eviction+cache"} or set(proposal.params["kinds"].split("+")) == {
        "alignment",
        "eviction",
        "cache",
    }


def test_inline_hints_leave_the_offset():
    source = ELEMENTWISE.replace("x_ptr + offs", "x_ptr + tl.multiple_of(offs, 16)")
    (proposal,) = proposals(list(HINTS.simplify(Module.parse(source))))
    assert normal(proposal.source) == normal(ELEMENTWISE)


def test_round_trips():
    by_kind = {p.params["kinds"]: p for p in _materialize(ELEMENTWISE)}
    assert normal(by_kind["alignment"].source) == normal(ALIGNED)
    assert normal(by_kind["eviction"].source) == normal(EVICTED)
    for proposal in by_kind.values():
        (back,) = proposals(list(HINTS.simplify(Module.parse(proposal.source))))
        assert normal(back.source) == normal(ELEMENTWISE)


def test_shared_operands_are_kept_in_cache():
    by_kind = {p.params["kinds"]: p for p in _materialize(MATMUL)}
    assert 'tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0, eviction_policy="evict_first")' in (
        by_kind["eviction"].source
    )


def test_hinted_kinds_come_first():
    assert _materialize(ELEMENTWISE, hints={"kinds": ["cache"]})[0].params["kinds"] == "cache"


def test_values_do_not_change():
    x = torch.randn(3000)
    for proposal in _materialize(ELEMENTWISE):
        same(ELEMENTWISE, proposal.source, x)
