"""The backward walk on a kernel whose cost follows from its launch options."""

import pytest
from fakes import SOURCE, FakeJudge, cost, option

from klineage.errors import KLineageError
from klineage.model import Kernel, WalkEnd
from klineage.store import open_store
from klineage.walk import WalkBudget, walk


@pytest.fixture
def store(tmp_path):
    opened = open_store(str(tmp_path / "store.db"))
    yield opened
    opened.close()


def moves_of(lineage):
    return {s.move: s for s in lineage.steps}


def test_expert_that_is_refused_is_an_error_not_a_walk(store):
    judge = FakeJudge(cost, wrong=lambda _: "wrong everywhere")
    with pytest.raises(KLineageError, match="not accepted"):
        walk(judge, store, Kernel(source=SOURCE))


def test_walk_reaches_the_naive_end_with_signed_effects(store):
    lineage = walk(FakeJudge(cost), store, Kernel(source=SOURCE))
    steps = moves_of(lineage)
    assert lineage.end is WalkEnd.NAIVE
    assert steps["software_pipelining"].speedup == pytest.approx(2.0)
    assert steps["warps"].speedup == pytest.approx(1.5)
    assert lineage.naive_us == pytest.approx(300.0)
    assert all(s.is_skill for s in (steps["software_pipelining"], steps["warps"]))


def test_independent_steps_have_no_edge_between_them(store):
    lineage = walk(FakeJudge(cost), store, Kernel(source=SOURCE))
    steps = moves_of(lineage)
    pair = {steps["software_pipelining"].index, steps["warps"].index}
    assert not any(set(edge) == pair for edge in lineage.edges)


def test_inverse_that_stays_slower_is_a_step_and_no_skill(store):
    def only_expert_is_fast(source: str) -> float:
        return 100.0 if source == SOURCE else 200.0

    lineage = walk(FakeJudge(only_expert_is_fast), store, Kernel(source=SOURCE))
    first = lineage.steps[0]
    assert not first.is_skill
    assert "re-derived" in first.skill_refused


def test_failing_simplification_is_recorded_with_its_verdict(store):
    judge = FakeJudge(cost, wrong=lambda s: "needs its warps" if "num_warps" not in s else "")
    lineage = walk(judge, store, Kernel(source=SOURCE))
    refused = [r for r in lineage.refusals if r.move == "warps"]
    assert refused and refused[0].kind == "risk" and refused[0].verdict
    assert "warps" not in moves_of(lineage)


def test_failure_that_passes_later_is_a_dependency(store):
    def wrong(source: str) -> str:
        return (
            "warps first need one stage" if "num_warps" not in source and option(source, "num_stages", 3) != 1 else ""
        )

    lineage = walk(FakeJudge(cost, wrong), store, Kernel(source=SOURCE))
    assert "warps" in moves_of(lineage)
    assert {r.kind for r in lineage.refusals if r.move == "warps" and r.verdict} == {"dependency"}


@pytest.mark.parametrize(
    ("budget", "end"),
    [
        pytest.param(WalkBudget(steps=1), WalkEnd.STEP_BUDGET, id="steps"),
        pytest.param(WalkBudget(gates=1), WalkEnd.GATE_BUDGET, id="gates"),
        pytest.param(WalkBudget(seconds=-1.0), WalkEnd.TIME_BUDGET, id="time"),
    ],
)
def test_budget_names_the_end(store, budget, end):
    assert walk(FakeJudge(cost), store, Kernel(source=SOURCE), budget).end is end


def test_stopping_keeps_the_steps_so_far(store):
    judge = FakeJudge(cost)
    judge.stop_after = 3
    with pytest.raises(KeyboardInterrupt):
        walk(judge, store, Kernel(source=SOURCE))
    kept = store.latest_lineage("fake", "sm_90")
    assert kept is not None and kept.end is WalkEnd.INTERRUPTED and len(kept.steps) >= 1
