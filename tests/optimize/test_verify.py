"""Held-out verification: what changes no status first, then what verifies and what demotes."""

import values
from values import skill

from klineage.model import Effect, Provenance, SkillStatus, Status, speedup_interval
from klineage.model.optimize import OptimizeReport, Try
from klineage.optimize import verified


def attempt(after: float | None, kept: bool, name: str = "one-pass-row", verdict: str | None = "v1") -> Try:
    return Try(
        index=0, skill=name, move="one_pass_row", site="k", decision="kept" if kept else "refused",
        reason="", before_us=100.0, after_us=after, kernel="k1", verdict=verdict,
    )  # fmt: skip


def report(task: str, *tries: Try, mode: Provenance = Provenance.MEASURED) -> OptimizeReport:
    return OptimizeReport(
        task=task, target="sm_90", mode=mode, start_kernel="s", best_kernel="b", start_us=100.0, best_us=50.0,
        tries=tries,
    )  # fmt: skip


def none(_: str) -> None:
    return None


def test_other_skills_own_sources_and_what_was_not_judged_change_nothing():
    before = skill()
    source = before.sources[0]
    reports = [
        report("log_softmax", attempt(50.0, kept=True, name="another")),
        report(source, attempt(50.0, kept=True)),
        report("log_softmax", attempt(None, kept=False, verdict=None)),
    ]
    assert verified(before, reports, none) == before


def test_a_modelled_gain_verifies_nothing():
    after = verified(skill(), [report("log_softmax", attempt(50.0, kept=True), mode=Provenance.MODELLED)], none)
    assert after.status is SkillStatus.HYPOTHESIS
    assert "gained on 1 of 1 held-out operators (modelled): log_softmax ×2.00" in after.status_reason


def test_a_measured_gain_verifies_and_is_an_effect():
    reports = [report("log_softmax", attempt(50.0, kept=True)), report("layer_norm", attempt(110.0, kept=False))]
    after = verified(skill(), reports, none)
    assert after.status is SkillStatus.VERIFIED
    assert after.status_reason == "gained on 1 of 2 held-out operators (measured): log_softmax ×2.00"
    gained = next(e for e in after.effects if "log_softmax" in e.context)
    assert gained.speedup == 2.0 and gained.provenance is Provenance.MEASURED
    harmed = next(e for e in after.negative if "layer_norm" in e.context)
    assert harmed.speedup < 1
    assert {"sm_90/log_softmax/held-out", "sm_90/layer_norm/held-out"} <= set(after.scope)
    assert "v1" in after.evidence


def test_no_gain_anywhere_demotes_with_the_reason():
    wrong = values.verdict(status=Status.REJECTED_NUMERIC, reason="case a: error 1 > allowed 0.1", times=(),
                           cases=(values.verdict().cases[0].model_copy(update={"passed": False}),))  # fmt: skip
    reports = [
        report("log_softmax", attempt(100.0, kept=False)),
        report("gelu", attempt(None, kept=False, verdict=wrong.id)),
    ]
    after = verified(skill(), reports, {wrong.id: wrong}.get)
    assert after.status is SkillStatus.DEMOTED
    assert after.status_reason == "gained on none of 2 held-out operators (measured): log_softmax ×1.00, gelu failed"
    risk = after.risks[-1]
    assert (risk.case, risk.verdict, risk.what) == ("gelu", wrong.id, "case a: error 1 > allowed 0.1")


def test_one_operator_without_gain_is_too_few_to_demote():
    after = verified(skill(), [report("log_softmax", attempt(101.0, kept=False))], none)
    assert after.status is SkillStatus.HYPOTHESIS
    assert after.status_reason.startswith("no gain on log_softmax ×0.99 (measured), held out")


def test_verifying_twice_counts_an_operator_once():
    reports = [report("log_softmax", attempt(50.0, kept=True))]
    once = verified(skill(), reports, none)
    assert verified(once, reports, none) == once


def test_the_interval_of_an_effect_holds_its_speedup():
    time = values.verdict().times[0]
    figure = time.latency
    mine = time.model_copy(update={"latency": figure.model_copy(update={"value": 100.0}), "interval_us": (99.0, 101.0)})
    its = time.model_copy(update={"latency": figure.model_copy(update={"value": 200.0}), "interval_us": (196.0, 204.0)})
    found = speedup_interval(mine, its)
    assert found is not None
    assert 1.94 < found[0] < 1.96 and 2.04 < found[1] < 2.06
    assert speedup_interval(mine, its.model_copy(update={"interval_us": None})) is None
    assert Effect(context="c", optimised_us=100.0, simpler_us=200.0, provenance=Provenance.MEASURED, interval=found)
