"""The gallery: complete, applicable, and a sample of every family is turned away. The whole: `klineage gate-score`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from klineage.errors import KLineageError
from klineage.gate.gallery import Gallery
from klineage.gate.gate_score import GateScore, Scorer, gate_score, sampled
from klineage.gate.policy import check_policy
from klineage.model import Status, target
from klineage.store import open_store

GALLERY = Gallery()
SM_90 = target("sm_90")
CAUGHT_BY = json.loads((GALLERY.folder / "caught_by.json").read_text())
FAMILIES = {
    "autotune", "caches", "elsewhere", "flags", "form", "hidden", "memory", "no_work", "numerics", "patches", "process",
    "shapes", "snoops", "torch_answers", "two_faced",
}  # fmt: skip


# ------------------------------------------------------------------ refused
@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ('name = "a"\ntask = "gelu"\nstatuses = ["accepted"]', "would count as killed by accepted"),
        ('name = "a"\ntask = "gelu"\nstatuses = ["infra_error"]', "would count as killed"),
        ('name = "a"\ntask = "gelu"\nlayer = "policy"', "unknown key 'layer'"),
        ('task = "gelu"', "name"),
    ],
    ids=["accepted", "infra_error", "unknown key", "no name"],
)
def test_an_entry_that_proves_nothing_is_refused(tmp_path: Path, entry: str, says: str) -> None:
    (tmp_path / "family.toml").write_text(f"[[trick]]\n{entry}\n")
    with pytest.raises(KLineageError, match=says):
        Gallery(tmp_path)


def test_two_entries_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "family.toml").write_text('[[trick]]\nname = "a"\ntask = "gelu"\n' * 2)
    with pytest.raises(KLineageError, match="two tricks"):
        Gallery(tmp_path)


def test_an_edit_that_does_not_apply_is_refused(tmp_path: Path) -> None:
    edit = '[[trick]]\nname = "a"\ntask = "gelu"\nbase = "naive"\nedits = [["not there", ""]]\n'
    (tmp_path / "family.toml").write_text(edit)
    gallery = Gallery(tmp_path)
    with pytest.raises(KLineageError, match="does not hold"):
        gallery.kernel(gallery.tricks[0])


# ------------------------------------------------------------------ complete
def test_every_family_is_there() -> None:
    assert set(GALLERY.families) == FAMILIES
    assert len(GALLERY.tricks) >= 250
    assert set(CAUGHT_BY) == {t.name for t in GALLERY.tricks}, "record it: scripts/record_gallery.py"


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_the_policy_sees_what_it_should_and_nothing_else(family: str) -> None:
    for trick in (t for t in GALLERY.tricks if t.family == family):
        findings = check_policy(GALLERY.kernel(trick, SM_90).source)
        if trick.statuses == (Status.REJECTED_POLICY,):
            assert findings, trick.name
        if Status.REJECTED_POLICY not in trick.statuses:
            assert not findings, (trick.name, findings)


# ------------------------------------------------------------------ judged
@pytest.fixture(scope="module")
def score(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GateScore]:
    """Two tricks of every family, but none that waits for a time limit."""
    store = open_store(str(tmp_path_factory.mktemp("store") / "store.db"))
    scorer = Scorer(GALLERY, SM_90, store)
    slow = {"fork_bomb", "never_ends", "sleeps", "ignores_signals", "eats_memory", "python_lists", "task_file_read"}
    chosen = [t for t in sampled(GALLERY, most=2) if t.name not in slow]
    try:
        yield gate_score(scorer, tricks=chosen, honest=False)
    finally:
        scorer.close()
        store.close()


def test_a_sample_of_every_family_is_turned_away_with_and_without_the_policy(score: GateScore) -> None:
    assert {f.family for f in score.families} == FAMILIES
    assert score.problems == []
    assert all(f.killed == f.planted and f.killed_unpoliced + f.no_effect == f.planted for f in score.families)


def test_the_layer_that_catches_is_the_recorded_one(score: GateScore) -> None:
    found = {t.name: [t.layer, t.unpoliced_layer] for t in score.tricks}
    assert found == {name: CAUGHT_BY[name] for name in found}


def test_after_a_crash_the_next_honest_kernel_is_judged_right(score: GateScore) -> None:
    after = [t for t in score.tricks if t.next_honest is not None]
    assert after and all(t.next_honest is Status.ACCEPTED for t in after)
