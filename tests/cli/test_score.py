"""`klineage gate-score`: the table, JSON, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from klineage.cli.app import run
from klineage.gate import gallery

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
