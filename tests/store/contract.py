"""What every store must do. A test class derives from StoreContract and gives a ``place`` fixture to open."""

from __future__ import annotations

import hashlib

import pytest
import values

from klineage.errors import StoreError
from klineage.model import Provenance, SkillStatus, Status
from klineage.store import Store, open_store


class StoreContract:
    """The suite. ``place`` is what ``open_store`` takes; ``artifacts`` a folder for artifact files."""

    persistent = True

    @pytest.fixture
    def store(self, place, tmp_path):
        opened = open_store(place, artifacts=tmp_path / "artifacts")
        yield opened
        opened.close()

    @pytest.mark.parametrize("action", ["UPDATE {} SET created = 0", "DELETE FROM {}"], ids=["update", "delete"])
    @pytest.mark.parametrize("table", ["kernels", "verdicts", "lineages", "skills", "checkpoints"])
    def test_database_refuses_to_change_evidence(self, store, action, table):
        fill(store)
        with pytest.raises(StoreError, match="append-only"), store._write() as connection:
            connection.exec_driver_sql(action.format(table))
        assert store.get_verdict(values.verdict().id) == values.verdict()

    def test_failed_transaction_leaves_nothing(self, store):
        with pytest.raises(RuntimeError), store._write() as connection:
            connection.exec_driver_sql("INSERT INTO checkpoints (key, json, created) VALUES ('k', '1', 0)")
            raise RuntimeError("harness broke")
        assert store.checkpoint("k") is None

    def test_unknown_keys_give_nothing(self, store):
        assert store.get_kernel("nope") is None
        assert store.get_verdict("nope") is None
        assert store.find_verdict("t", "k", "f") is None
        assert store.latest_lineage("rms_norm", "sm_90") is None
        assert store.checkpoint("nope") is None
        assert (store.verdicts(), store.lineages(), store.skills(), store.steps("r")) == ([], [], [], [])

    def test_kernel_comes_back_and_keeps_its_first_parent(self, store):
        first = values.kernel("x = '\U0001f600\\n\"quoted\"'\n", parent=None, origin="expert")
        assert store.put_kernel(first) == first.id
        store.put_kernel(first.model_copy(update={"parent": "other", "origin": "later"}))
        assert store.get_kernel(first.id) == first

    @pytest.mark.parametrize("status", list(Status), ids=str)
    def test_verdict_of_each_status_comes_back(self, store, status):
        verdict = values.verdict(status)
        assert store.put_verdict(verdict) == verdict.id
        assert store.get_verdict(verdict.id) == verdict
        assert store.verdicts(status=status) == [verdict]

    def test_same_verdict_is_kept_once(self, store):
        store.put_verdict(values.verdict(judge_s=1.0))
        store.put_verdict(values.verdict(judge_s=2.0))
        assert [v.judge_s for v in store.verdicts()] == [1.0]

    @pytest.mark.parametrize("changed", ["task_id", "kernel", "fingerprint"])
    def test_find_verdict_matches_every_part_of_the_key(self, store, changed):
        verdict = values.verdict()
        store.put_verdict(verdict)
        key = {"task_id": verdict.task_id, "kernel": verdict.kernel, "fingerprint": verdict.environment.fingerprint}
        assert store.find_verdict(*key.values()) == verdict
        assert store.find_verdict(*{**key, changed: "other"}.values()) is None

    def test_find_verdict_never_answers_with_a_broken_harness(self, store):
        broken, good = values.verdict(Status.INFRA_ERROR), values.verdict()
        key = (good.task_id, good.kernel, good.environment.fingerprint)
        store.put_verdict(broken)
        assert store.find_verdict(*key) is None
        store.put_verdict(good)
        store.put_verdict(values.verdict(Status.INFRA_ERROR, reason="again"))
        assert store.find_verdict(*key) == good

    def test_timed_verdict_answers_only_for_its_incumbent(self, store):
        slow = values.verdict(Status.REJECTED_SLOW, incumbent="fast")
        key = (slow.task_id, slow.kernel, slow.environment.fingerprint)
        store.put_verdict(slow)
        assert store.find_verdict(*key) is None
        assert store.find_verdict(*key, incumbent="other") is None
        assert store.find_verdict(*key, incumbent="fast") == slow

    def test_numeric_rejection_answers_for_any_incumbent(self, store):
        wrong = values.verdict(Status.REJECTED_NUMERIC, incumbent="fast")
        store.put_verdict(wrong)
        key = (wrong.task_id, wrong.kernel, wrong.environment.fingerprint)
        assert store.find_verdict(*key) == store.find_verdict(*key, incumbent="other") == wrong

    def test_steps_and_refusals_belong_to_their_run(self, store):
        store.put_step("a", values.step(0))
        store.put_step("b", values.step(7))
        store.put_step("a", values.step(1))
        store.put_refusal("a", values.refusal())
        assert [s.index for s in store.steps("a")] == [0, 1]
        assert store.refusals("a") == [values.refusal()]
        assert store.refusals("b") == []

    def test_latest_lineage_is_per_task_and_target(self, store):
        early, late = values.lineage(naive_us=300.0), values.lineage(naive_us=200.0)
        other = values.lineage(target="sm_80")
        for lineage in (early, late, other):
            store.put_lineage(lineage)
        assert store.latest_lineage("rms_norm", "sm_90") == late
        assert store.latest_lineage("rms_norm", "sm_80") == other
        assert store.lineages("rms_norm") == [early, late, other]
        assert store.lineages(target="sm_80") == [other]

    def test_later_skill_of_a_name_stands_for_the_earlier(self, store):
        first, other = values.skill("b"), values.skill("a")
        demoted = values.skill("b", status=SkillStatus.DEMOTED, status_reason="slower on sm_80")
        store.put_skills([first, other])
        store.put_skills([demoted])
        store.put_skills([])
        assert store.skills() == [other, demoted]
        assert store.skill_history("b") == [first, demoted]

    def test_figures_at_the_edge_come_back(self, store):
        odd = values.verdict(
            Status.REJECTED_NUMERIC,
            cases=(values.CaseResult(case="n=1", passed=False, error=float("inf"), allowed=5e-324),),
        )
        store.put_verdict(odd)
        found = store.get_verdict(odd.id)
        assert found == odd
        assert found.id == odd.id

    def test_artifact_comes_back_by_its_hash(self, store):
        data = bytes(range(256)) * 40
        digest = store.put_artifact(data, kind="cubin")
        assert digest == store.put_artifact(data)
        assert digest == hashlib.sha256(data).hexdigest()
        assert store.get_artifact(digest) == data

    def test_missing_artifact_is_one_clear_error(self, store):
        with pytest.raises(StoreError, match="missing"):
            store.get_artifact("0" * 64)

    def test_damaged_artifact_is_refused_then_replaced(self, store, tmp_path):
        digest = store.put_artifact(b"cubin bytes")
        (tmp_path / "artifacts" / digest[:2] / digest[2:]).write_bytes(b"cubin byteX")
        with pytest.raises(StoreError, match="damaged"):
            store.get_artifact(digest)
        store.put_artifact(b"cubin bytes")
        assert store.get_artifact(digest) == b"cubin bytes"

    def test_latest_checkpoint_wins(self, store):
        store.set_checkpoint("walk/rms_norm", {"at": 1, "done": ["a"]})
        store.set_checkpoint("walk/rms_norm", {"at": 2, "done": ["a", "b"]})
        store.set_checkpoint("walk/other", None)
        assert store.checkpoint("walk/rms_norm") == {"at": 2, "done": ["a", "b"]}
        assert store.checkpoint("walk/other") is None

    def test_what_was_put_is_there_after_opening_again(self, place, tmp_path):
        if not self.persistent:
            pytest.skip("a store in memory ends with its process")
        first = open_store(place, artifacts=tmp_path / "artifacts")
        fill(first)
        first.close()
        again = open_store(place, artifacts=tmp_path / "artifacts")
        assert again.verdicts() == [values.verdict()]
        assert again.check() == "ok"
        again.close()

    def test_measured_and_modelled_verdicts_do_not_answer_for_each_other(self, store):
        modelled = values.verdict()
        measured = values.verdict(environment=values.environment(mode=Provenance.MEASURED))
        store.put_verdict(modelled)
        key = (modelled.task_id, modelled.kernel)
        assert store.find_verdict(*key, measured.environment.fingerprint) is None


def fill(store: Store) -> None:
    """One of each."""
    store.put_kernel(values.kernel())
    store.put_verdict(values.verdict())
    store.put_lineage(values.lineage())
    store.put_skills([values.skill()])
    store.set_checkpoint("k", 1)
