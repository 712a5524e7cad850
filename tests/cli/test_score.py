"""`klineage gate-score`: the table, JSON, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from klineage.cli.app import run
from klineage.cli.score import score_page
from klineage.errors import KLineageError
from klineage.gate import gallery, gate_score, gpu
from klineage.gate.gate_score import Scorer
from klineage.model import target
from klineage.store import open_store

TASK = Path(__file__).parents[1] / "hostile" / "tasks" / "column_sum.py"
QUICK = ["gate-score", "--target", "sm_90", "--no-honest", "--no-corpus"]


def test_an_unknown_family_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*QUICK, "--family", "nowhere"]) == 2
    assert "no family 'nowhere'" in capsys.readouterr().err


def test_a_hostile_kernel_that_is_accepted_gives_status_1(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = f'[[trick]]\nname = "honest_in_truth"\ntask = "{TASK}"\nbase = "naive"\n'
    (tmp_path / "family.toml").write_text(entry)
    monkeypatch.setattr(gallery, "shipped_gallery", lambda: tmp_path)
    assert run([*QUICK, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["tricks"][0]["status"] == "accepted" and "honest_in_truth" in told["problems"][0]
    assert told["families"][0]["planted"] == 1 and told["families"][0]["killed"] == 0


def test_a_family_is_scored(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*QUICK, "--family", "form", "--sample", "2"]) == 0
    out = capsys.readouterr().out
    assert "form" in out and "comparison" in out


def test_results_are_written_as_they_come_and_not_judged_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "score.jsonl"
    asked = [*QUICK, "--family", "form", "--sample", "1", "--out", str(out), "--json"]
    assert run(asked) == 0
    first = json.loads(capsys.readouterr().out)
    (line,) = out.read_text().splitlines()
    assert json.loads(line)["kind"] == "hostile" and json.loads(line)["result"] == first["tricks"][0]

    with out.open("a") as file:
        file.write(line[: len(line) // 2])  # a run killed while it wrote
    monkeypatch.setattr(Scorer, "trick", lambda *_: pytest.fail("judged again"))
    assert run(asked) == 0
    assert json.loads(capsys.readouterr().out)["tricks"] == first["tricks"]

    monkeypatch.setattr(Scorer, "place", lambda *_: "another judge")
    monkeypatch.setattr(Scorer, "trick", lambda *_: (_ for _ in ()).throw(KLineageError("asked anew", "")))
    assert run(asked) == 2  # by another judge
    assert "asked anew" in capsys.readouterr().err


def test_what_is_left_when_the_time_is_over_counts_nowhere(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store.db"))
    scorer = Scorer(gallery.Gallery(), target("sm_90"), store)
    try:
        score = gate_score.gate_score(scorer, tricks=scorer.gallery.tricks[:5], honest=False, seconds=0.0)
    finally:
        scorer.close()
        store.close()
    assert (score.left, score.tricks, score.families, score.problems) == (5, (), (), [])
    console = Console(width=120)
    with console.capture() as told:
        console.print(score_page(score))
    assert "not judged, for the time was over: 5" in told.get()


def test_a_mode_this_machine_lacks_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu, "measurable_target", lambda: None)
    assert run(["gate-score", "--mode", "measured"]) == 3
    assert "no NVIDIA GPU" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*QUICK, "--out", "/proc/nowhere/score.jsonl"]) == 2
    assert "cannot use /proc/nowhere/score.jsonl" in capsys.readouterr().err
