"""Evidence as files: bad files first; then that nothing is lost, nothing doubled, and no kernel's text leaves."""

import gzip
import json

import pytest
import values

from klineage.errors import KLineageError
from klineage.export import export_evidence, import_evidence
from klineage.store import open_store


@pytest.fixture
def open_at(tmp_path):
    opened = []

    def open_one(name):
        opened.append(open_store(str(tmp_path / name)))
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def full(open_at):
    store = open_at("full.db")
    store.put_kernel(values.kernel("def run(x):\n    return the_text_of_an_expert(x)\n"))
    store.put_verdict(values.verdict())
    store.put_verdict(values.verdict(kernel="ffff"))
    store.put_lineage(values.lineage())
    return store


@pytest.mark.parametrize("content", [b"", b"no gzip", gzip.compress(b"{"), gzip.compress(b'{"format": 1}'),
                                     gzip.compress(b"[]")])  # fmt: skip
def test_what_is_no_evidence_is_named(open_at, tmp_path, content):
    path = tmp_path / "bad.json.gz"
    path.write_bytes(content)
    with pytest.raises(KLineageError, match=r"bad\.json\.gz is no evidence|cannot read evidence .*bad\.json\.gz"):
        import_evidence(open_at("s.db"), [path])


def test_missing_and_empty_places_are_named(open_at, tmp_path, full):
    store = open_at("s.db")
    with pytest.raises(KLineageError, match="cannot read evidence"):
        import_evidence(store, [tmp_path / "none.json.gz"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(KLineageError, match="no evidence"):
        import_evidence(store, [tmp_path / "empty"])
    with pytest.raises(KLineageError, match="no verdict"):
        export_evidence(store, tmp_path / "out")
    with pytest.raises(KLineageError, match="cannot write"):
        export_evidence(full, tmp_path / "full.db")


def test_another_format_is_refused(open_at, tmp_path):
    path = tmp_path / "new.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"format": 99}).encode()))
    with pytest.raises(KLineageError, match="another format"):
        import_evidence(open_at("s.db"), [path])


def test_a_round_trip_keeps_verdicts_and_lineage_once(open_at, tmp_path, full):
    (written,) = export_evidence(full, tmp_path / "evidence")
    assert (written.verdicts, written.lineage) == (2, True)
    other = open_at("other.db")
    for _ in range(2):
        (read,) = import_evidence(other, [tmp_path / "evidence"])
    assert (read.task, read.target, read.verdicts) == (written.task, written.target, 2)
    assert {v.id for v in other.verdicts()} == {v.id for v in full.verdicts()}
    assert other.lineages() == full.lineages()
    assert b"the_text_of_an_expert" not in gzip.decompress(written.path.read_bytes())


def test_the_same_evidence_gives_the_same_bytes(tmp_path, full):
    (first,) = export_evidence(full, tmp_path / "a")
    (second,) = export_evidence(full, tmp_path / "b")
    assert first.path.read_bytes() == second.path.read_bytes()
    assert not list((tmp_path / "a").glob("*.part"))
