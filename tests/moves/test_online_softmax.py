"""Online softmax: refusals first, then both ways, the round trip, and equal outputs."""

from __future__ import annotations

import pytest
import torch

from klineage.model import TARGETS
from klineage.moves import Context, holds, move
from klineage.surface import Module

from .gated import Disagree, agree
from .kernels import HEAD, MATMUL, ROW_LOOP, normal, proposals, refusals
from .row_kernels import CROSS_ENTROPY, SOFTMAX, SOFTMAX_LOOPS

MOVE = move("online_softmax")

ATTENTION = (
    HEAD
    + """@triton.jit
def attention_kernel(Q, K, V, O, L, scale, S, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    offs_n = tl.arange(0, BN)
    offs_d = tl.arange(0, D)
    q = tl.load(Q + offs_m[:, None] * D + offs_d[None, :], mask=offs_m[:, None] < S, other=0.0)
    k_ptrs = K + offs_n[None, :] * D + offs_d[:, None]
    v_ptrs = V + offs_n[:, None] * D + offs_d[None, :]
    m_i = tl.full([BM], float("-inf"), dtype=tl.float32)
    l_i = tl.zeros([BM], dtype=tl.float32)
    acc = tl.zeros([BM, D], dtype=tl.float32)
    for start_n in range(0, S, BN):
        k = tl.load(k_ptrs, mask=(start_n + offs_n)[None, :] < S, other=0.0)
        qk = tl.dot(q, k) * scale
        qk = tl.where((start_n + offs_n)[None, :] < S, qk, float("-inf"))
        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.exp(qk - m_ij[:, None])
        l_ij = tl.sum(p, 1)
        alpha = tl.exp(m_i - m_ij)
        l_i = l_i * alpha + l_ij
        acc = acc * alpha[:, None]
        v = tl.load(v_ptrs, mask=(start_n + offs_n)[:, None] < S, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc)
        m_i = m_ij
        k_ptrs += BN * D
        v_ptrs += BN * D
    acc = acc / l_i[:, None]
    tl.store(L + offs_m, m_i + tl.log(l_i), mask=offs_m < S)
    tl.store(O + offs_m[:, None] * D + offs_d[None, :], acc.to(O.dtype.element_ty), mask=offs_m[:, None] < S)


def run(q, k, v):
    S, D = q.shape
    o = torch.empty_like(q)
    lse = torch.empty((S,), dtype=torch.float32, device=q.device)
    attention_kernel[(triton.cdiv(S, 16),)](q, k, v, o, lse, D**-0.5, S, D=D, BM=16, BN=16)
    return o, lse
"""
)


def _simplify(source: str) -> list:
    return list(MOVE.simplify(Module.parse(source)))


def _materialize(source: str, **options: object) -> list:
    return list(MOVE.materialize(Module.parse(source), **options))  # type: ignore[arg-type]


# ---------------------------------------------------------------------- refusals
@pytest.mark.parametrize("source", [SOFTMAX, SOFTMAX_LOOPS, MATMUL, ROW_LOOP], ids=["block", "passes", "matmul", "sum"])
def test_nothing_to_simplify(source: str):
    assert _simplify(source) == []
    assert MOVE.amount(Module.parse(source)) == 0


def test_factor_that_leaks_is_refused():
    source = ATTENTION.replace("l_ij = tl.sum(p, 1)", "l_ij = tl.sum(p, 1) + tl.exp(m_i - m_ij)")
    found = _simplify(source)
    assert not proposals(found)
    assert "something else than a rescaling needs the running maximum" in refusals(found)[0].reason


@pytest.mark.parametrize("source", [SOFTMAX, MATMUL, ROW_LOOP], ids=["block", "matmul", "sum"])
def test_nothing_to_materialize(source: str):
    assert _materialize(source) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("d += tl.sum(tl.exp(x - m), axis=0)", "d += tl.sum(tl.exp(x - m) * tl.exp(x - m), axis=0)"),
        ("d += tl.sum(tl.exp(x - m), axis=0)", "d += tl.sum(tl.exp(x - m) + 1.0, axis=0)"),
        ("d += tl.sum(tl.exp(x - m), axis=0)", "d += tl.sum((x - m) * (x - m), axis=0)"),
        ("    d = 0.0\n", "    d = 0.0\n    tl.store(Y + row * stride, m)\n"),
        ("    d = 0.0\n", "    d = m * 0.0\n"),
    ],
    ids=["square", "plus one", "no exponential", "store between", "start needs the maximum"],
)
def test_passes_that_one_factor_does_not_rescale(old: str, new: str):
    assert _materialize(SOFTMAX_LOOPS.replace(old, new)) == []


def test_passes_over_different_ranges_stay_apart():
    second = SOFTMAX_LOOPS.index("range(0, n, BLOCK)", SOFTMAX_LOOPS.index("d = 0.0"))
    source = SOFTMAX_LOOPS[:second] + "range(0, n // 2, BLOCK)" + SOFTMAX_LOOPS[second + len("range(0, n, BLOCK)") :]
    assert _materialize(source) == []


def test_unchecked_joins_what_the_factor_does_not_rescale():
    source = SOFTMAX_LOOPS.replace("tl.exp(x - m), axis=0)", "tl.exp(x - m) + tl.where(mask, 1.0, 0.0), axis=0)")
    assert _materialize(source) == []
    (broken,) = proposals(_materialize(source, checked=False))
    x = torch.linspace(-4.0, 4.0, 600).repeat(2, 1)
    with pytest.raises(Disagree, match="off by"):
        agree(source, [broken.source], [(x,)])


# ---------------------------------------------------------------------- both ways
def test_simplify_gives_a_maximum_pass_and_a_sum_pass():
    (proposal,) = _simplify(CROSS_ENTROPY)
    text = proposal.source
    assert "m = tl.maximum(m, block_max)" in text
    assert "d += tl.sum(tl.exp2((X_block - m) * LOG2_E))" in text
    assert text.count("for i in range(0, n_cols, BLOCK_SIZE):") == 4
    assert "m_new" not in text and MOVE.amount(Module.parse(text)) == 0


def test_simplify_attention_computes_the_scores_twice():
    (proposal,) = _simplify(ATTENTION)
    text = proposal.source
    assert text.count("tl.dot(q, k)") == 2 and text.count("v = tl.load") == 1
    assert "alpha" not in text
    assert "k_ptrs_max = k_ptrs" in text  # the first pass walks pointers of its own
    assert "l_i += l_ij" in text and "acc = acc\n" not in text


def test_materialize_joins_the_first_two_passes():
    (proposal,) = _materialize(SOFTMAX_LOOPS)
    assert proposal.source.count("for start in") == 2
    assert "m_new = tl.maximum(m, tl.max(x, axis=0))" in proposal.source
    assert "d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new), axis=0)" in proposal.source


def test_round_trip_is_exact_for_one_sum():
    (back,) = proposals(_materialize(_simplify(CROSS_ENTROPY)[0].source))
    assert normal(back.source) == normal(CROSS_ENTROPY)


def test_round_trip_of_attention_has_one_loop():
    (back,) = proposals(_materialize(_simplify(ATTENTION)[0].source))
    assert back.source.count("for start_n in") == 1 and "k_ptrs_max" not in back.source
    assert back.source.count("k_ptrs += BN * D") == 1
    assert "alpha = tl.exp(m_i - m_i_new)" in back.source
    assert MOVE.amount(Module.parse(back.source)) == 1


def test_counters_of_different_names_are_joined():
    at = SOFTMAX_LOOPS.index("for start", SOFTMAX_LOOPS.index("d = 0.0"))
    loop = SOFTMAX_LOOPS[at : SOFTMAX_LOOPS.index("    for start", at + 5)]
    source = SOFTMAX_LOOPS.replace(loop, loop.replace("start", "begin"), 1)
    source = SOFTMAX_LOOPS[:at] + loop.replace("start", "begin") + SOFTMAX_LOOPS[at + len(loop) :]
    (proposal,) = _materialize(source)
    assert proposal.source.count("tl.load(") == 2


def test_two_maxima_in_one_loop_come_apart_one_by_one():
    source = CROSS_ENTROPY.replace("    d = 0.0\n", '    d = 0.0\n    m2 = float("-inf")\n    d2 = 0.0\n').replace(
        "        m = m_new\n",
        "        m = m_new\n        n_new = tl.maximum(m2, tl.max(-X_block))\n"
        "        d2 = d2 * tl.exp(m2 - n_new) + tl.sum(tl.where(X_offsets < n_cols, tl.exp(-X_block - n_new), 0.0))\n"
        "        m2 = n_new\n",
    )
    amounts = [MOVE.amount(Module.parse(source))]
    while found := proposals(_simplify(source)):
        source = found[0].source
        amounts.append(MOVE.amount(Module.parse(source)))
    assert amounts == [2, 1, 0]


def test_argmax_goes_with_the_maximum():
    source = (
        CROSS_ENTROPY.replace("    d = 0.0\n", "    d = 0.0\n    best = 0\n")
        .replace(
            "        m_new =",
            "        here = tl.min(tl.where(X_block == block_max, X_offsets, n_cols))\n"
            "        best = tl.where(block_max > m, here, best)\n        m_new =",
        )
        .replace("tl.store(loss_ptr, loss)", "tl.store(loss_ptr, loss + best)")
    )
    (proposal,) = _simplify(source)
    first, second = proposal.source.split("d += tl.sum")
    assert "best = tl.where(block_max > m, here, best)" in first and "here" not in second
    torch.manual_seed(1)
    cases = [(torch.randn(2, n), torch.randint(0, n, (2,))) for n in (33, 300)]
    agree(source, [proposal.source], cases)


# ---------------------------------------------------------------------- outputs
def test_cross_entropy_outputs_agree():
    torch.manual_seed(0)
    cases = [(3 * torch.randn(3, n), torch.randint(0, n, (3,))) for n in (1, 33, 257)]
    small = CROSS_ENTROPY.replace("min(32768, triton.next_power_of_2(n))", "32")
    simpler = _simplify(small)[0].source
    agree(small, [simpler, *(p.source for p in proposals(_materialize(simpler)))], cases)


def test_softmax_outputs_agree():
    torch.manual_seed(0)
    agree(SOFTMAX_LOOPS, [_materialize(SOFTMAX_LOOPS)[0].source], [(5 * torch.randn(2, n),) for n in (1, 255, 700)])


def test_attention_outputs_agree():
    torch.manual_seed(0)
    cases = [tuple(torch.randn(n, 16) for _ in range(3)) for n in (5, 40)]
    simpler = _simplify(ATTENTION)[0].source
    agree(ATTENTION, [simpler, proposals(_materialize(simpler))[0].source], cases, tolerance=2e-3)  # TF32 dots


def test_condition_tells():
    (condition,) = MOVE.conditions
    (proposal,) = _simplify(CROSS_ENTROPY)

    def told(source: str) -> bool | None:
        return holds(condition, Context(Module.parse(source), proposal.site, {}, TARGETS["sm_90"]))

    assert told(CROSS_ENTROPY) is True and told(proposal.source) is True
    assert told(CROSS_ENTROPY.replace("m_new) * LOG2_E))", "m_new) * LOG2_E) + 1.0)")) is not None
    assert holds(condition, Context(Module.parse(CROSS_ENTROPY), None, {}, TARGETS["sm_90"])) is None
