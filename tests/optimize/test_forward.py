"""The forward loop: order, budget, refusals, and never worse than the start."""

import pytest
from fakes import SOURCE, FakeJudge, cost
from values import skill

from klineage.errors import KLineageError
from klineage.model import Effect, Kernel, Precondition, Provenance, SkillStatus
from klineage.optimize import optimize
from klineage.store import open_store

NAIVE = SOURCE.replace(", num_warps=8, num_stages=3", ", num_stages=1")


@pytest.fixture
def store(tmp_path):
    opened = open_store(str(tmp_path / "store.db"))
    yield opened
    opened.close()


def make(move: str, carriers: dict[str, tuple[str, ...]], **changes):
    values = {"name": move, "move": move, "carriers": carriers, "preconditions": (), "requires": ()}
    return skill(**{**values, **changes})


STAGES = make("software_pipelining", {"num_stages": ("3",)})
WARPS = make("warps", {"num_warps": ("8",)})


def test_start_that_is_wrong_is_refused(store):
    judge = FakeJudge(cost, wrong=lambda _: "wrong")
    with pytest.raises(KLineageError, match="start kernel is not accepted"):
        optimize(judge, store, Kernel(source=NAIVE), [STAGES])


def test_broken_precondition_costs_no_gate_run(store):
    rule = Precondition(
        predicate="kernel_family_is", args={"family": "dot"}, statement="the kernel is of the dot family"
    )
    judge = FakeJudge(cost)
    report = optimize(judge, store, Kernel(source=NAIVE), [make("software_pipelining", {}, preconditions=(rule,))])
    assert len(judge.judged) == 1  # the start alone
    assert report.best_kernel == report.start_kernel
    assert "dot family" in report.tries[0].reason


def test_demoted_skill_is_not_tried(store):
    judge = FakeJudge(cost)
    optimize(judge, store, Kernel(source=NAIVE), [make("warps", {}, status=SkillStatus.DEMOTED)])
    assert len(judge.judged) == 1


def test_skill_that_gained_nothing_anywhere_costs_no_gate_run(store):
    def seen(speedup: float, mode: Provenance) -> Effect:
        return Effect(context="c", optimised_us=100.0, simpler_us=100.0 * speedup, provenance=mode)

    useless = tuple(seen(x, Provenance.MODELLED) for x in (0.98, 1.0, 1.005))
    judge = FakeJudge(cost)
    report = optimize(
        judge, store, Kernel(source=NAIVE), [make("warps", {"num_warps": ("8",)}, effects=useless, negative=())]
    )
    assert len(judge.judged) == 1
    assert "gained nothing" in report.tries[0].reason
    otherwise = (*useless[:1], seen(1.005, Provenance.MEASURED)), (*useless, seen(1.3, Provenance.MODELLED))
    for effects in otherwise:  # judged otherwise, or good somewhere: it is tried
        judge = FakeJudge(cost)
        optimize(
            judge, store, Kernel(source=NAIVE), [make("warps", {"num_warps": ("8",)}, effects=effects, negative=())]
        )
        assert len(judge.judged) > 1


def test_gains_are_kept_and_reported_with_reasons(store):
    report = optimize(FakeJudge(cost), store, Kernel(source=NAIVE), [STAGES, WARPS])
    kept = [t for t in report.tries if t.decision == "kept"]
    assert {t.move for t in kept} == {"software_pipelining", "warps"}
    assert report.speedup == pytest.approx(3.0)
    assert all("modelled" in t.reason for t in kept)


def test_harmful_skill_leaves_the_start(store):
    judge = FakeJudge(lambda s: 100.0 if s == NAIVE else 150.0)
    report = optimize(judge, store, Kernel(source=NAIVE), [STAGES, WARPS])
    assert report.best_kernel == report.start_kernel
    assert report.best_us == report.start_us
    assert all(t.decision == "refused" for t in report.tries)


def test_budget_bounds_the_gate_runs(store):
    judge = FakeJudge(lambda _: 100.0)
    report = optimize(judge, store, Kernel(source=NAIVE), [STAGES, WARPS], budget=2)
    assert len(judge.judged) == 3  # the start and two tries
    assert "budget" in report.end


def test_required_move_goes_first(store):
    eager = make("warps", {"num_warps": ("8",)}, requires=("software_pipelining",))
    report = optimize(FakeJudge(cost), store, Kernel(source=NAIVE), [eager, STAGES])
    assert [t.move for t in report.tries if t.decision == "kept"] == ["software_pipelining", "warps"]
