"""What each ablation leaves of the skills, and that a run says which it was."""

from __future__ import annotations

import pytest
from fakes import SOURCE, FakeJudge, cost
from values import skill

from klineage.model import Kernel, Precondition, SkillStatus
from klineage.moves import all_moves
from klineage.optimize import Ablation, ablated, optimize
from klineage.store import open_store

NAIVE = SOURCE.replace(", num_warps=8, num_stages=3", ", num_stages=1")
RULE = Precondition(predicate="kernel_family_is", args={"family": "dot"}, statement="the kernel is of the dot family")
PIPELINE = skill(
    name="pipeline", move="software_pipelining", carriers={"num_stages": ("3",)}, preconditions=(RULE,), requires=()
)
DEMOTED = skill(name="warps-row", move="warps", carriers={}, status=SkillStatus.DEMOTED)


@pytest.fixture
def store(tmp_path):
    opened = open_store(str(tmp_path / "store.db"))
    yield opened
    opened.close()


def test_full_changes_nothing() -> None:
    assert ablated([PIPELINE, DEMOTED], Ablation.FULL) == [PIPELINE, DEMOTED]


def test_none_leaves_nothing() -> None:
    assert ablated([PIPELINE], Ablation.NONE) == []


def test_without_conditions_all_else_stays() -> None:
    (left,) = ablated([PIPELINE], Ablation.NO_CONDITIONS)
    assert left == PIPELINE.model_copy(update={"preconditions": ()})


def test_labels_know_their_move_alone_and_demoted_ones_are_none() -> None:
    twice = PIPELINE.model_copy(update={"name": "again"})
    (left,) = ablated([PIPELINE, twice, DEMOTED], Ablation.LABELS_ONLY)
    assert (left.move, left.intent) == (PIPELINE.move, PIPELINE.intent)
    assert not (left.carriers or left.preconditions or left.effects or left.evidence or left.anchors)


def test_generated_ones_are_the_vocabulary_with_what_it_declares() -> None:
    left = ablated([PIPELINE], Ablation.GENERATED_ONLY)
    assert [s.move for s in left] == [m.name for m in all_moves()]
    assert {p.predicate for s in left for p in s.preconditions} == {
        c.predicate for m in all_moves() for c in m.conditions
    }
    assert not any(s.effects or s.evidence for s in left)


def test_a_run_without_conditions_tries_what_they_would_have_stopped(store) -> None:
    whole = optimize(FakeJudge(cost), store, Kernel(source=NAIVE), [PIPELINE])
    assert whole.skills == "full"
    assert whole.speedup == 1.0  # the kernel is not of the dot family
    judge = FakeJudge(cost)
    report = optimize(judge, store, Kernel(source=NAIVE), [PIPELINE], ablation=Ablation.NO_CONDITIONS)
    assert report.skills == "no-conditions"
    assert len(judge.judged) > 1
    assert report.speedup > 1.0


def test_a_run_without_skills_judges_the_start_alone(store) -> None:
    judge = FakeJudge(cost)
    report = optimize(judge, store, Kernel(source=NAIVE), [PIPELINE], ablation=Ablation.NONE)
    assert (report.skills, len(judge.judged), report.speedup) == ("none", 1, 1.0)
