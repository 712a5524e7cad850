"""The loop closed on a real expert: liger-kernel's RMSNorm walked, induced, recovered; its skills used elsewhere."""

from __future__ import annotations

import pytest

from klineage.api import Session
from klineage.induce import ProbePlan
from klineage.model import Provenance, SkillStatus, Status, WalkEnd

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    with Session("sm_90", str(tmp_path_factory.mktemp("loop") / "store.db")) as opened:
        yield opened


@pytest.fixture(scope="module")
def lineage(session):
    return session.walk("rms_norm")


@pytest.fixture(scope="module")
def skills(session, lineage):
    return session.induce([lineage.task], ProbePlan.light())


def test_walk_ends_at_the_naive_kernel_with_every_step_judged(session, lineage):
    assert lineage.end is WalkEnd.NAIVE
    assert lineage.mode is Provenance.MODELLED
    for step in lineage.steps:
        verdict = session.store.get_verdict(step.verdict)
        assert verdict is not None and verdict.status is Status.ACCEPTED
        assert step.is_skill or step.skill_refused
    one_pass = next(s for s in lineage.steps if s.move == "one_pass_row")
    assert one_pass.speedup > 1.1 and one_pass.inverse_ratio * 1.02 >= 1.0
    naive = session.store.get_kernel(lineage.naive).source
    assert "for " in naive and "num_warps" not in naive.split("[(n_rows,)](")[1]


def test_walking_again_judges_nothing_anew(session, lineage):
    known = len(session.store.verdicts())
    again = session.walk("rms_norm")
    assert len(session.store.verdicts()) == known
    assert [s.simpler for s in again.steps] == [s.simpler for s in lineage.steps]


def test_no_modelled_skill_is_called_verified(skills):
    assert skills
    assert all(s.status is SkillStatus.HYPOTHESIS and s.evidence and s.scope for s in skills)


def test_recovery_comes_back_to_the_expert(session, skills):
    report = session.recover("rms_norm", skills=skills)
    assert report.fraction >= 0.98
    assert len([t for t in report.tries if t.verdict]) <= 10


def test_skills_carry_over_to_a_kernel_never_walked(session, skills):
    report = session.optimize("layer_norm", skills=skills)
    assert report.best_us < report.start_us / 1.2
    kept = [t for t in report.tries if t.decision == "kept"]
    assert kept[0].move == "one_pass_row" and kept[-1].kernel == report.best_kernel
    assert session.store.get_verdict(kept[-1].verdict).status is Status.ACCEPTED
