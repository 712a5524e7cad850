"""Rows per program: refusals first, then both ways and both forms, the round trip, and equal outputs."""

from __future__ import annotations

import pytest
import torch

from klineage.model import TARGETS
from klineage.moves import Context, holds, move
from klineage.surface import Module

from .gated import Disagree, agree
from .kernels import ELEMENTWISE, HEAD, MATMUL, normal, proposals, refusals
from .row_kernels import CROSS_ENTROPY, LAYER_NORM, RMS_NORM, SOFTMAX, SOFTMAX_LOOPS, SWIGLU

MOVE = move("rows_per_program")
ROWS = {"rms": RMS_NORM, "layer_norm": LAYER_NORM, "softmax": SOFTMAX, "softmax_loops": SOFTMAX_LOOPS, "swiglu": SWIGLU}

TILED = (
    HEAD
    + """@triton.jit
def block_rms_kernel(Y, X, stride, W, RSTD, n_rows, n_cols, eps, BLOCK_SIZE: tl.constexpr, BLOCK_ROW: tl.constexpr):
    row_idx = tl.program_id(0).to(tl.int64) * BLOCK_ROW + tl.arange(0, BLOCK_ROW)
    cols = tl.arange(0, BLOCK_SIZE)
    row_mask = row_idx < n_rows
    col_mask = cols < n_cols
    x = tl.load(
        X + row_idx[:, None] * stride + cols[None, :],
        mask=row_mask[:, None] & col_mask[None, :],
        other=0,
    )
    w = tl.load(W + cols, mask=col_mask, other=0)
    mean_square = tl.sum(x * x, axis=1) / n_cols
    rstd = tl.rsqrt(mean_square + eps)
    tl.store(RSTD + row_idx, rstd, row_mask)
    y = x * rstd[:, None] * (1.0 + w)[None, :]
    tl.store(Y + row_idx[:, None] * stride + cols[None, :], y, mask=row_mask[:, None] & col_mask[None, :])


def run(x, w):
    n_rows, n_cols = x.shape
    y = torch.empty_like(x)
    r = torch.empty(n_rows, dtype=torch.float32, device=x.device)
    BLOCK_ROW = 16
    BLOCK = triton.next_power_of_2(n_cols)
    grid = (triton.cdiv(n_rows, BLOCK_ROW),)
    block_rms_kernel[grid](y, x, x.stride(0), w, r, n_rows, n_cols, 1e-6, BLOCK_SIZE=BLOCK, BLOCK_ROW=BLOCK_ROW)
    return y, r
"""
)

LOOPED = (
    HEAD
    + """@triton.jit
def scale_kernel(X, Y, W, stride, n_rows, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    w = tl.load(W + cols, mask=cols < n, other=0.0)
    row_start = pid * ROWS
    row_end = min((pid + 1) * ROWS, n_rows)
    for row in range(row_start, row_end):
        x = tl.load(X + row * stride + cols, mask=cols < n, other=0.0)
        tl.store(Y + row * stride + cols, x * w, mask=cols < n)


def run(x, w):
    n_rows, n = x.shape
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(n_rows, 4),)](x, y, w, x.stride(0), n_rows, n, ROWS=4, BLOCK=triton.next_power_of_2(n))
    return y
"""
)


CARRIED = LOOPED.replace("    for row", "    total = 0.0\n    for row").replace(
    "        tl.store", "        total += tl.sum(x)\n        tl.store"
)
COUNTED = (
    LOOPED.replace("    row_start = pid * ROWS\n    row_end = min((pid + 1) * ROWS, n_rows)\n", "")
    .replace("    for row in range(row_start, row_end):\n", "    for r in tl.static_range(ROWS):\n")
    .replace("        x = tl.load", "        row = pid * ROWS + r\n        if row < n_rows:\n            x = tl.load")
    .replace("        tl.store", "            tl.store")
)


def _simplify(source: str) -> list:
    return list(MOVE.simplify(Module.parse(source)))


def _materialize(source: str, **options: object) -> list:
    return list(MOVE.materialize(Module.parse(source), **options))  # type: ignore[arg-type]


def _cases(name: str) -> list:
    torch.manual_seed(0)
    shapes = [(1, 5), (5, 33), (9, 64)]
    more = {"rms": 1, "layer_norm": 2}.get(name, 0)
    cases = [(torch.randn(r, n), *(torch.randn(n) for _ in range(more))) for r, n in shapes]
    return [(x, torch.randn_like(x)) for (x,) in cases] if name == "swiglu" else cases


# ---------------------------------------------------------------------- refusals
@pytest.mark.parametrize("source", [*ROWS.values(), MATMUL, ELEMENTWISE], ids=[*ROWS, "matmul", "flat"])
def test_one_row_per_program_is_nothing_to_simplify(source: str):
    assert _simplify(source) == [] and MOVE.amount(Module.parse(source)) == 0


@pytest.mark.parametrize(
    ("source", "old", "new", "reason"),
    [
        (TILED, "tl.sum(x * x, axis=1)", "tl.sum(x * x, axis=0)", "a reduction runs over the rows"),
        (TILED, "y = x * rstd", "y = tl.cumsum(x, 0) * rstd", "cumsum may mix the rows"),
        (TILED, ".to(tl.int64) * BLOCK_ROW +", ".to(tl.int64) * 8 +", "the rows of a program are not its number"),
        (TILED, "triton.cdiv(n_rows, BLOCK_ROW)", "n_rows // BLOCK_ROW", "the grid is not the number of rows over"),
        (LOOPED, "(triton.cdiv(n_rows, 4),)", "(132,)", "the grid is not the number of rows over"),
        (
            CARRIED,
            "x * w,", "x * w + total,", "total is carried from row to row",
        ),
    ],
    ids=["sum over rows", "scan", "overlap", "floor", "persistent", "carried"],
)  # fmt: skip
def test_simplify_refuses(source: str, old: str, new: str, reason: str):
    assert old in source
    found = _simplify(source.replace(old, new))
    assert not proposals(found)
    assert all(r.reason.startswith(reason) for r in refusals(found))
    assert refusals(found) or "axis=0" in new  # what is no tile of rows at all is left alone


FLAT = ELEMENTWISE.replace("offs = tl.program_id(0)", "pid = tl.program_id(0)\n    offs = pid")


@pytest.mark.parametrize("source", [MATMUL, FLAT], ids=["matmul", "flat"])
def test_materialize_leaves_other_kernels_alone(source: str):
    assert not proposals(_materialize(source))


def test_branch_and_early_return_are_refused():
    reasons = [r.reason for r in refusals(_materialize(CROSS_ENTROPY))]
    assert reasons == [
        "tile: a branch in the kernel may go another way for each row",
        "loop: the kernel may return before its end",
    ]
    assert not proposals(_materialize(CROSS_ENTROPY))


def test_atomics_and_scans_are_refused_as_a_tile():
    for old, new in (("tl.store(RSTD", "tl.atomic_add(RSTD"), ("X_row * rstd", "tl.cumsum(X_row, 0) * rstd")):
        found = _materialize(RMS_NORM.replace(old, new))
        assert any(r.reason.startswith("tile:") for r in refusals(found))
        assert all(p.params["form"] == "loop" for p in proposals(found))


# ---------------------------------------------------------------------- both ways
def test_simplify_tile_gives_the_row_form():
    (proposal,) = _simplify(TILED)
    text = proposal.source
    assert "[:, None]" not in text and "row_mask" not in text and "BLOCK_ROW: tl" not in text
    assert "row_idx = tl.program_id(0).to(tl.int64)\n" in text
    assert "x = tl.load(X + row_idx * stride + cols, mask=col_mask, other=0)" in text
    assert "y = x * rstd * (1.0 + w)\n" in text
    assert "tl.store(RSTD + row_idx, rstd)\n" in text and "grid = (n_rows,)" in text
    assert dict(proposal.params) == {"rows": "16", "form": "tile", "guard": "mask"}
    assert MOVE.amount(Module.parse(TILED)) == 1 and MOVE.amount(Module.parse(text)) == 0


def test_simplify_does_not_raise_one_pass_row():
    first = move("one_pass_row")
    assert first.amount(Module.parse(TILED)) == first.amount(Module.parse(_simplify(TILED)[0].source)) == 1


def test_simplify_loop_gives_the_row_form():
    (proposal,) = _simplify(LOOPED)
    text = proposal.source
    assert "row = tl.program_id(0)\n" in text and "for row" not in text and "row_start" not in text
    assert "scale_kernel[(n_rows,)]" in text and "ROWS" not in text
    assert proposal.params["form"] == "loop"


def test_simplify_counted_loop_with_a_guard():
    (proposal,) = _simplify(COUNTED)
    assert normal(proposal.source) == normal(_simplify(LOOPED)[0].source)


def test_materialize_keeps_shared_loads_before_the_loop():
    found = {p.params["form"]: p.source for p in reversed(proposals(_materialize(RMS_NORM)))}
    loop = found["loop"]
    assert loop.index("tl.load(W") < loop.index("for row_idx in range(first_row, min(first_row + ROWS, n_rows)):")
    assert "ROWS=4" in loop and "(triton.cdiv(n_rows, 4),)" in loop
    assert "X_row * rstd[:, None]" in found["tile"]


def test_hints_come_first_and_the_list_stays_short():
    found = proposals(_materialize(SOFTMAX, hints={"rows": ["32"], "form": ["loop"]}))
    assert dict(found[0].params) == {"rows": "32", "form": "loop", "guard": "mask"}
    assert len(proposals(_materialize(SOFTMAX))) == 6


@pytest.mark.parametrize("name", ROWS)
def test_round_trip(name: str):
    for proposal in proposals(_materialize(ROWS[name])):
        (back,) = proposals(_simplify(proposal.source))
        if proposal.params["form"] == "tile":
            assert normal(back.source) == normal(ROWS[name])
        assert back.params["rows"] == proposal.params["rows"]


@pytest.mark.parametrize("name", ROWS)
def test_outputs_agree(name: str):
    made = [p.source for p in proposals(_materialize(ROWS[name])) if p.params["rows"] == "4"]
    back = [_simplify(m)[0].source for m in made]
    assert len(made) == 2
    agree(ROWS[name], [*made, *back], _cases(name))


def test_simplified_outputs_agree():
    torch.manual_seed(0)
    cases = [(torch.randn(r, n), torch.randn(n)) for r, n in ((1, 5), (17, 33))]
    agree(TILED, [_simplify(TILED)[0].source], cases)
    agree(LOOPED, [_simplify(LOOPED)[0].source], cases)


def test_unchecked_leaves_the_bound_out():
    for proposal in proposals(_materialize(SOFTMAX, checked=False))[::4]:
        assert proposal.params["guard"] == "none" and "row_mask" not in proposal.source
        with pytest.raises(Disagree, match="out_of_bounds"):
            agree(SOFTMAX, [proposal.source], [(torch.randn(3, 16),)])


def test_condition_tells():
    (condition,) = MOVE.conditions

    def told(params: dict[str, str]) -> bool | None:
        return holds(condition, Context(Module.parse(SOFTMAX), None, params, TARGETS["sm_90"]))

    assert told({"guard": "mask"}) is True and told({"guard": "none"}) is False and told({}) is None
