"""What the confined child answers, with the CPU in the GPU's place and launchers that launch nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from triton.runtime.jit import JITFunction

from klineage.gate.measured import child, device

X = torch.arange(8.0)
HEAD = "import torch\n\n\ndef run(x):\n"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(device, "DEVICE", "cpu")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(JITFunction, "run", lambda _, y: y.fill_(3.0))  # a job hooks it


def answer(body: str) -> dict[str, Any]:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    payload = {"source": HEAD + lines, "entry": "run", "timed": False, "cases": [{"inputs": [X.clone()]}]}
    (case,) = child.run_job(payload)["cases"]
    return case


def test_fresh_memory_is_poisoned():
    found = answer("return torch.empty_like(x)")
    assert found["outputs"][0][0].isnan().all()


def test_what_is_done_to_an_input_is_told():
    assert answer("x[3] = 7.0\nreturn x.clone()")["changed"] == [0]
    assert answer("return x.clone()")["changed"] == []


def test_what_torch_computes_is_told():
    (name,) = answer("return x + 1")["torch_ops"]
    assert "add" in name
    assert answer("y = torch.empty_like(x)\ny.copy_(x)\nreturn y")["torch_ops"] == []


def test_what_torch_computes_on_a_kernels_work_is_told():
    launched = "from triton.runtime.jit import JITFunction\ny = torch.empty_like(x)\nJITFunction.run(None, y)\n"
    found = answer(launched + "return y * 2")
    assert found["torch_ops"] == ["torch.Tensor.mul"]
    assert found["outputs"][0][0].tolist() == [6.0] * 8
    assert answer(launched + "return y.clone()")["torch_ops"] == []


def test_outputs_come_twice_as_tensors_of_the_host():
    found = answer("return x.clone(), torch.zeros_like(x)")
    assert [len(o) for o in found["outputs"]] == [2, 2]
    assert torch.equal(found["outputs"][1][0], X) and found["times"] == []
