"""Loop-invariant hoist: refusals first, then both ways, then the round trip."""

from __future__ import annotations

import torch

from klineage.moves import move
from klineage.surface import Module

from .kernels import HEAD, normal, proposals, refusals
from .run import same

HOIST = move("loop_invariant_hoist")

INSIDE = (
    HEAD
    + """@triton.jit
def scale_rows(x_ptr, s_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, n, BLOCK):
        s = tl.load(s_ptr + row)
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + offs, mask=offs < n, other=0.0)
        tl.store(y_ptr + row * n + offs, x * s, mask=offs < n)


def run(x, s):
    y = torch.empty_like(x)
    scale_rows[(x.shape[0],)](x, s, y, x.shape[1], BLOCK=32)
    return y
"""
)
LINE = "        s = tl.load(s_ptr + row)\n"
OUTSIDE = INSIDE.replace(LINE, "").replace("    for start", "    s = tl.load(s_ptr + row)\n    for start")
STORED = INSIDE.replace("y_ptr + row * n + offs, x * s", "s_ptr + row, s")


def test_a_value_read_after_the_loop_is_not_sunk():
    source = OUTSIDE.replace("\n\ndef run", "    tl.store(s_ptr + row, s)\n\n\ndef run")
    assert not proposals(list(HOIST.simplify(Module.parse(source))))


def test_a_value_that_changes_in_the_loop_is_not_sunk():
    source = OUTSIDE.replace("        offs =", "        s = s * 2.0\n        offs =")
    assert not proposals(list(HOIST.simplify(Module.parse(source))))


def test_a_load_from_a_stored_pointer_is_refused_when_checked():
    found = list(HOIST.materialize(Module.parse(STORED)))
    assert not proposals(found)
    assert "stores through a pointer" in refusals(found)[0].reason


def test_unchecked_makes_the_unsound_proposal():
    assert len(proposals(list(HOIST.materialize(Module.parse(STORED), checked=False)))) == 1


def test_what_depends_on_the_loop_is_left():
    assert not proposals(list(HOIST.materialize(Module.parse(OUTSIDE))))


def test_sinks_and_hoists_back():
    (sunk,) = proposals(list(HOIST.simplify(Module.parse(OUTSIDE))))
    assert normal(sunk.source) == normal(INSIDE)
    (hoisted,) = proposals(list(HOIST.materialize(Module.parse(sunk.source))))
    assert normal(hoisted.source) == normal(OUTSIDE)
    assert hoisted.params == {"name": "s", "pointer": "s_ptr"}


def test_both_give_the_same_values():
    same(INSIDE, OUTSIDE, torch.randn(5, 77), torch.randn(5))
