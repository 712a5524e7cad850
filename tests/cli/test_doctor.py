"""doctor names what is missing, its fix, and whether a run without a GPU is possible."""

from __future__ import annotations

import json

import pytest

from klineage.cli import doctor
from klineage.cli.app import run
from klineage.gate.gpu import Gpu, default_target

TORCH_CPU = json.dumps({"version": "2.13.0+cpu", "cuda": None, "gpu": False})
TORCH_CUDA = json.dumps({"version": "2.13.0", "cuda": "12.9", "gpu": True})
H200 = Gpu(name="NVIDIA H200", arch=90, count=1, cuda=12090)


@pytest.fixture
def answers(monkeypatch, tmp_path):
    """Answers of the child interpreters, by the code asked; no GPU."""
    told: dict[str, str | None] = {doctor._ASK_TORCH: TORCH_CPU, doctor._ASK_TRITON: "3.9.0", doctor._ASK_ISOLATION: ""}
    monkeypatch.setattr(doctor, "_ask", told.__getitem__)
    monkeypatch.setattr(doctor, "find_gpu", lambda: None)
    monkeypatch.chdir(tmp_path)
    return told


def named(checks):
    return {check.name: check for check in checks}


@pytest.mark.parametrize(
    ("installed", "says"),
    [(None, "not installed"), ("3.5.1", "not in"), ("3.10.0", "not in")],
    ids=["none", "old", "new"],
)
def test_triton_out_of_range_is_missing(answers, monkeypatch, installed, says):
    monkeypatch.setattr(doctor, "_installed", lambda name: installed if name == "triton" else "1.0")
    check = named(doctor.examine(None))["triton"]
    assert not check.ok
    assert says in check.found
    assert "pip install 'triton>=3.6,<3.10'" in check.fix


def test_torch_that_does_not_import_is_missing(answers):
    answers[doctor._ASK_TORCH] = None
    checks = doctor.examine(None)
    assert not named(checks)["torch"].ok
    assert not doctor.can_run(checks)


def test_tool_that_does_not_run_is_missing(answers, monkeypatch, tmp_path):
    tool = tmp_path / "ptxas"
    tool.write_text("#!/bin/sh\nexit 1\n")
    tool.chmod(0o755)
    assert doctor._tool_version(tool) is None
    assert doctor._tool_version(tmp_path / "none") is None
    monkeypatch.setattr(doctor, "_tool_version", lambda _: None)
    assert run(["doctor"]) == 3


def test_store_that_cannot_be_used_is_missing(answers, tmp_path):
    (tmp_path / "text").write_text("notes")
    for place in (str(tmp_path), str(tmp_path / "text"), "/proc/none/store.db", "mysql://h/db"):
        check = named(doctor.examine(place))["store"]
        assert not check.ok, place
        assert check.fix


def test_looking_leaves_no_store_behind(answers, tmp_path):
    check = named(doctor.examine(None))["store"]
    assert check.ok
    assert list(tmp_path.iterdir()) == []


def test_missing_expert_is_no_obstacle(answers, monkeypatch):
    monkeypatch.setattr(doctor, "EXPERTS", {"no-such-package-anywhere": "pip install it"})
    checks = doctor.examine(None)
    assert not named(checks)["no-such-package-anywhere"].ok
    assert doctor.can_run(checks)


def test_gpu_with_a_cpu_torch_says_how_to_use_it(answers, monkeypatch):
    monkeypatch.setattr(doctor, "find_gpu", lambda: H200)
    checks = named(doctor.examine(None))
    assert checks["GPU"].found.startswith("1 x NVIDIA H200, sm_90")
    assert "stays unused" in checks["torch"].found
    assert not checks["measured mode"].ok
    assert "torch" in checks["measured mode"].fix


def test_gpu_with_a_cuda_torch_measures(answers, monkeypatch, capsys):
    monkeypatch.setattr(doctor, "find_gpu", lambda: H200)
    answers[doctor._ASK_TORCH] = TORCH_CUDA
    assert run(["doctor"]) == 0
    assert "measured: yes" in capsys.readouterr().out


def test_this_machine_can_run_and_says_so(monkeypatch, tmp_path, capsys):
    """The real thing: no fakes."""
    monkeypatch.chdir(tmp_path)
    assert run(["doctor", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    checks = {check["name"]: check for check in data["checks"]}
    assert data["ok"]
    assert all(checks[name]["ok"] for name in ("python", "torch", "triton", "ptxas", "nvdisasm", "cuobjdump", "store"))
    assert all(check["fix"] for check in checks.values() if not check["ok"] and check["name"] != "measured mode")


@pytest.mark.parametrize(
    ("gpu", "expected"), [(None, "sm_90"), (H200, "sm_90"), (H200.model_copy(update={"arch": 120}), "sm_120"),
                          (H200.model_copy(update={"arch": 75}), "sm_90")],
    ids=["no-gpu", "h200", "known", "unknown"],
)  # fmt: skip
def test_default_target_is_the_gpus(monkeypatch, gpu, expected):
    monkeypatch.setattr("klineage.gate.gpu.find_gpu", lambda: gpu)
    assert default_target().name == expected


def test_missing_extra_is_named_with_its_fix_and_stops_nothing(answers, monkeypatch):
    monkeypatch.setattr(doctor, "_installed", lambda name: None if name == "mcp" else "3.9.0")
    check = named(doctor.examine(None))["extra mcp"]
    assert not check.ok and not check.needed
    assert check.fix == "pip install 'klineage[mcp]'"
    assert named(doctor.examine(None))["extra llm"].ok
