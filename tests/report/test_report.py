"""What pages say: signs, provenance, the place of a step in the tree, nothing lost when a part is empty."""

from __future__ import annotations

import io

import pytest
import values
from rich.console import Console

from klineage.cli.progress import RichProgress
from klineage.model import CaseTime, Provenance, Status, WalkEnd, measured
from klineage.report import lineage_tree, skill_page, skill_rows, step_rows, verdict_page
from klineage.report.figures import bytes_text, effect_text, time_text


def text_of(page) -> str:
    out = io.StringIO()
    Console(file=out, width=140, markup=False).print(page)
    return out.getvalue()


@pytest.mark.parametrize(
    ("times", "says"),
    [
        ([(100, 150)], "×1.50 slower without it (modelled)"),
        ([(100, 80)], "×1.25 faster without it (modelled)"),
        ([(100, 101)], "neutral (×1.01) (modelled)"),
        ([(100, 110), (100, 190)], "×1.45 slower without it, ×1.10 to ×1.90 over 2 contexts (modelled)"),
        ([], "no effect known (unavailable)"),
    ],
    ids=["pays", "harms", "neutral", "two-contexts", "none"],
)
def test_effect_says_its_sign_and_provenance(times, says):
    step = values.step(effects=tuple(values.effect(*pair) for pair in times))
    assert effect_text(step.effects, step.speedup) == says


def test_effects_of_both_kinds_say_both():
    effects = (values.effect(), values.effect(provenance=Provenance.MEASURED))
    assert effect_text(effects, 1.2).endswith("(measured and modelled)")


@pytest.mark.parametrize(
    ("us", "text"),
    [(None, "unavailable"), (0.5, "0.5 us"), (1234.0, "1.23 ms"), (2.5e6, "2.5 s")],
    ids=["none", "us", "ms", "s"],
)
def test_times_read_in_their_unit(us, text):
    assert time_text(us) == text


def test_bytes_read_in_their_unit():
    assert [bytes_text(n) for n in (0, 2048, 3 << 20, 5 << 40)] == ["0 B", "2 KiB", "3 MiB", "5120 GiB"]


def test_step_stands_under_the_last_step_it_needs_and_names_the_others():
    steps = tuple(values.step(i, f"m{i}") for i in range(4))
    rows = step_rows(values.lineage(steps, edges=((0, 3), (2, 3))))
    assert [(r.under, r.also_needs) for r in rows] == [(None, ()), (None, ()), (None, ()), (2, (0,))]
    tree = text_of(lineage_tree(values.lineage(steps, edges=((0, 3), (2, 3)))))
    assert "│   └── 4. m3" in tree
    assert "also needs 1" in tree


def test_step_that_is_no_skill_says_why():
    steps = (values.step(0, skill_refused="came back 7% slower"), values.step(1, inverse_verdict=None))
    tree = text_of(lineage_tree(values.lineage(steps)))
    assert "not a skill: came back 7% slower" in tree
    assert "not a skill: its inverse was not derived" in tree


@pytest.mark.parametrize("end", [e for e in WalkEnd if e is not WalkEnd.NAIVE], ids=str)
def test_walk_that_stopped_early_does_not_claim_the_naive_end(end):
    tree = text_of(lineage_tree(values.lineage(end=end)))
    assert "the naive end: no move applies" not in tree


def test_walk_without_steps_is_shown():
    assert "the naive end" in text_of(lineage_tree(values.lineage(())))


def test_skill_without_effects_claims_none():
    (row,) = skill_rows([values.skill(effects=(), negative=())])
    assert row.speedup == "×1.00 (unavailable)"
    page = text_of(skill_page(values.skill(effects=(), negative=(), risks=())))
    assert page.count("none") == 3


def test_skills_come_greatest_effect_first():
    skills = [values.skill("small", negative=()), values.skill("big", effects=(values.effect(1, 9),), negative=())]
    assert [row.name for row in skill_rows(skills)] == ["big", "small"]


def test_rejected_verdict_shows_what_there_is():
    page = text_of(verdict_page(values.verdict(Status.REJECTED_COMPILE, reason="smem [over]", cases=(), launches=(),
                                             blind_spots=("races",))))  # fmt: skip
    assert "Not seen" not in page
    assert "rejected_compile  smem [over]" in page
    assert "Correctness" not in page


def test_measured_time_shows_interval_vendor_and_blind_spots():
    time = CaseTime(case="big", latency=measured(135.2, "us"), interval_us=(134.9, 135.6), vendor_us={"torch": 150.0},
                    roofline_us=112.0)  # fmt: skip
    environment = values.environment(mode=Provenance.MEASURED)
    page = text_of(verdict_page(values.verdict(times=(time,), environment=environment, blind_spots=("races",))))
    for expected in ("135.2 us (measured)", "[134.9, 135.6]", "torch 150 us", "112 us (modelled)",
                     "Not seen in this mode:", "races"):  # fmt: skip
        assert expected in page


def test_progress_in_a_log_is_plain_lines():
    out = io.StringIO()
    with RichProgress(Console(file=out, width=100, markup=False)) as progress:
        progress.done()
        progress.start("walk [rms]", 2)
        progress.start("gate")
        progress.step("compiled")
        progress.note("refused: [reason]")
        progress.done()
        progress.done()
    lines = out.getvalue().splitlines()
    assert lines[:3] == ["walk [rms] ...", "  gate ...", "    refused: [reason]"]
    assert lines[3].startswith("  gate: done in")
    assert lines[4].startswith("walk [rms]: done in")


def test_stage_that_an_exception_ends_does_not_claim_to_be_done():
    out = io.StringIO()
    progress = RichProgress(Console(file=out, width=100, markup=False))
    progress.start("walk")
    with pytest.raises(KeyboardInterrupt):
        try:
            raise KeyboardInterrupt
        finally:
            progress.done()
    assert out.getvalue().splitlines()[-1].startswith("walk: stopped after")
