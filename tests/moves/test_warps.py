"""Warps: refusals first, then both ways, then the round trip."""

from __future__ import annotations

import pytest
import torch

from klineage.model import TARGETS
from klineage.moves import Context, holds, move
from klineage.surface import Module

from .kernels import ELEMENTWISE, HEAD, MATMUL, ROW, normal, proposals, refusals
from .run import same

WARPS = move("warps")


def _simplify(source: str) -> list:
    return list(WARPS.simplify(Module.parse(source)))


def _materialize(source: str, **options: object) -> list:
    return list(WARPS.materialize(Module.parse(source), **options))  # type: ignore[arg-type]


TUNED = ELEMENTWISE.replace(
    "@triton.jit",
    '@triton.autotune(configs=[triton.Config({"BLOCK": 512}, num_warps=8), '
    'triton.Config({"BLOCK": 1024}, num_warps=8)], key=["n"])\n@triton.jit',
).replace(", BLOCK=1024, num_warps=8", "")
SMALLER = MATMUL.replace("BLOCK_N = 128, 256", "BLOCK_N = 128, 128")


def test_own_parameter_is_refused():
    source = ELEMENTWISE.replace("BLOCK: tl.constexpr", "BLOCK: tl.constexpr, num_warps: tl.constexpr")
    assert [r.reason for r in refusals(_simplify(source))] == ["scale_kernel takes num_warps as a parameter of its own"]
    assert not proposals(_simplify(source))


def test_mixed_configurations_are_refused():
    source = TUNED.replace("num_warps=8", "num_warps=4", 1)
    assert not proposals(_simplify(source))
    assert "autotune_set goes first" in refusals(_simplify(source))[0].reason


@pytest.mark.parametrize("source", [ROW, ELEMENTWISE.replace("num_warps=8", "num_warps=4")], ids=["none", "default"])
def test_default_is_not_an_optimisation(source: str):
    assert _simplify(source) == []


def test_simplify_drops_the_option():
    (proposal,) = _simplify(ELEMENTWISE)
    assert proposal.source == ELEMENTWISE.replace(", num_warps=8", "")
    assert dict(proposal.params) == {"num_warps": "8"}
    assert WARPS.amount(Module.parse(ELEMENTWISE)) == 1
    assert WARPS.amount(Module.parse(proposal.source)) == 0


def test_simplify_computed_count_keeps_the_settings_line():
    source = ROW.replace("BLOCK = triton.next_power_of_2(n)", "BLOCK, num_warps = settings(n)").replace(
        "BLOCK=BLOCK)", "BLOCK=BLOCK, num_warps=num_warps)"
    )
    (proposal,) = _simplify(source)
    assert "BLOCK, num_warps = settings(n)" in proposal.source
    assert dict(proposal.params) == {"num_warps": "from block"}
    back = proposals(_materialize(proposal.source))
    assert normal(back[0].source) == normal(source)


def test_simplify_named_constant_gives_its_value():
    source = ELEMENTWISE.replace("num_warps=8", "num_warps=WARPS").replace("n = x", "WARPS = 16\n    n = x")
    (proposal,) = _simplify(source)
    assert proposal.params["num_warps"] == "16"


def test_configurations_alike_go_both_ways():
    (proposal,) = _simplify(TUNED)
    assert "num_warps" not in proposal.source
    assert normal(proposals(_materialize(proposal.source))[0].source) == normal(TUNED)


def test_materialize_prefers_what_fits_a_whole_row():
    found = proposals(_materialize(ROW))
    assert [p.params["num_warps"] for p in found] == ["from block", "8", "16", "2", "1", "32"]
    assert "num_warps=32 if BLOCK >= 32768 else 16 if BLOCK >= 8192" in found[0].source


def test_hints_come_first():
    found = proposals(_materialize(ELEMENTWISE.replace(", num_warps=8", ""), hints={"num_warps": ["16", "rubbish"]}))
    assert [p.params["num_warps"] for p in found][:2] == ["16", "8"]


def test_round_trip():
    (proposal,) = _simplify(SMALLER)
    assert normal(SMALLER) in [normal(p.source) for p in proposals(_materialize(proposal.source))]


def test_unchecked_breaks_the_condition():
    def valid(found: list) -> list:
        module = Module.parse(ROW)
        return [holds(WARPS.conditions[0], Context(module, p.site, p.params, TARGETS["sm_90"])) for p in found]

    assert False not in valid(proposals(_materialize(ROW)))
    assert False in valid(proposals(_materialize(ROW, checked=False)))


def test_two_launches_are_two_sites():
    source = ELEMENTWISE.replace(
        "    return y\n", "    scale_kernel[(1,)](x, y, n, BLOCK=64, num_warps=2)\n    return y\n"
    )
    assert len(_simplify(source)) == 2


def test_meaning_is_kept():
    x = torch.randn(1300)
    same(ELEMENTWISE, proposals(_simplify(ELEMENTWISE))[0].source, x)
    same(ROW, proposals(_materialize(ROW))[0].source, torch.randn(3, 300))


def test_module_without_launches_gives_nothing():
    assert _simplify(HEAD) == [] and _materialize(HEAD) == []


def test_warps_that_hold_a_large_accumulator_are_refused():
    found = _simplify(MATMUL)
    assert not proposals(found)
    assert "256 of 255 registers" in refusals(found)[0].reason and "tile_size goes first" in refusals(found)[0].reason


def test_warps_of_a_smaller_tile_go():
    assert len(proposals(_simplify(SMALLER))) == 1
