"""Which target, and whether by measuring: from what is asked for and the GPU that is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from klineage.cli.app import app
from klineage.errors import EnvironmentLackError, TargetError
from klineage.gate import gpu
from klineage.gate.gpu import Gpu, choose

B200 = Gpu(name="NVIDIA B200", arch=100, count=1, cuda=13000)
UNKNOWN = Gpu(name="Tesla V100", arch=70, count=1, cuda=12000)


def machine(monkeypatch: pytest.MonkeyPatch, found: Gpu | None) -> None:
    monkeypatch.setattr(gpu, "find_gpu", lambda: found)


@pytest.mark.parametrize(
    ("found", "name", "mode", "error"),
    [
        (None, None, "measured", EnvironmentLackError),
        (UNKNOWN, None, "measured", EnvironmentLackError),
        (B200, "sm_90", "measured", TargetError),
        (B200, "sm_1", None, TargetError),
        (B200, None, "guessed", ValueError),
        (B200, None, "unavailable", ValueError),
    ],
)
def test_what_cannot_be_done_is_refused(
    monkeypatch: pytest.MonkeyPatch, found: Gpu | None, name: str | None, mode: str | None, error: type[Exception]
):
    machine(monkeypatch, found)
    with pytest.raises(error):
        choose(name, mode)


@pytest.mark.parametrize(
    ("found", "name", "mode", "expected"),
    [
        (None, None, None, ("sm_90", False)),
        (None, "sm_80", None, ("sm_80", False)),
        (None, None, "modelled", ("sm_90", False)),
        (UNKNOWN, None, None, ("sm_90", False)),
        (B200, None, None, ("sm_100", True)),
        (B200, "sm_100", None, ("sm_100", False)),
        (B200, "sm_90", None, ("sm_90", False)),
        (B200, None, "modelled", ("sm_100", False)),
        (B200, None, "measured", ("sm_100", True)),
        (B200, "100", "measured", ("sm_100", True)),
    ],
)
def test_what_is_chosen(
    monkeypatch: pytest.MonkeyPatch, found: Gpu | None, name: str | None, mode: str | None, expected: tuple[str, bool]
):
    machine(monkeypatch, found)
    target, measured = choose(name, mode)
    assert (target.name, measured) == expected


def test_measuring_without_a_gpu_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    machine(monkeypatch, None)
    store = ["--store", str(tmp_path / "s.db")]
    result = CliRunner().invoke(app, ["gate", "softmax", str(Path(__file__)), "--mode", "measured", *store])
    assert isinstance(result.exception, EnvironmentLackError)
    assert "no NVIDIA GPU" in str(result.exception)
