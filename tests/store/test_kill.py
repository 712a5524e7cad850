"""A kill at any moment loses no finished verdict and corrupts nothing."""

from __future__ import annotations

import random
import time

from store.test_store import spawn

from klineage.store import open_store

KILLS = 20

WRITER = """
import sys, values
from klineage.store import open_store
store = open_store(sys.argv[1])
for i in range(1_000_000):
    verdict = values.verdict(kernel=f"{sys.argv[2]}-{i}")
    store.put_artifact(verdict.kernel.encode() * 500)
    store.put_verdict(verdict)
    print(verdict.id, flush=True)  # only after the commit
"""


def test_killed_writer_loses_no_reported_verdict(tmp_path):
    """Ids reach the pipe one line at a time after each commit; kill -9 falls anywhere, also while opening."""
    random.seed(20)
    path = tmp_path / "store.db"
    reported: set[str] = set()
    for life in range(KILLS):
        child = spawn(WRITER, path, life)
        if life % 5:  # let it open and write; every fifth life is killed wherever its start has come to
            reported.add(child.stdout.readline().strip())
            time.sleep(random.uniform(0, 0.15))
        else:
            time.sleep(random.uniform(0.2, 1.0))
        child.kill()
        out, err = child.communicate()
        assert "Error" not in err, err
        lines = out.splitlines()
        reported |= set(lines[:-1] if out and not out.endswith("\n") else lines)
        check(path, reported)
    assert len(reported) > KILLS


def check(path, reported):
    """Every reported verdict is there, the file is sound, artifacts are whole or absent."""
    if not path.exists():
        assert not reported
        return
    store = open_store(path)
    assert store.check() == "ok"
    assert reported <= {v.id for v in store.verdicts()}
    for file in (path.parent / "artifacts").rglob("*"):
        if file.is_file() and not file.name.startswith(".tmp-"):
            store.get_artifact(file.parent.name + file.name)
    store.close()
