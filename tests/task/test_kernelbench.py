"""KernelBench files load unchanged: refusals, shapes, parameters, and that their cases judge."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from klineage.errors import TaskError
from klineage.gate.correctness import check_correctness
from klineage.gate.workers import Zygote
from klineage.model import CaseRole, Kernel, target
from klineage.task import compare, load_task

DATA = Path(__file__).parent / "data"
FILES = ["kb_relu", "kb_matmul", "kb_layernorm"]

SCALE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(n))
        self.register_buffer("offset", torch.randn(n))

    def forward(self, x):
        BODY

SIZE = 4096

def get_inputs():
    return [torch.rand(512, SIZE)]

def get_init_inputs():
    return [SIZE]
"""

BAD = {
    "forward-raises": ("raise RuntimeError('no luck')", "no luck"),
    "never-finite": ("return x / 0 * float('nan')", "not finite"),
    "constant": ("return x * 0", "returns zeros"),
}


@pytest.mark.parametrize(("body", "says"), BAD.values(), ids=BAD.keys())
def test_worthless_file_is_refused(tmp_path, body, says):
    path = tmp_path / "kb.py"
    path.write_text(SCALE.replace("BODY", body))
    with pytest.raises(TaskError, match=says):
        load_task(path)


def test_given_shapes_too_big_to_check_are_refused(tmp_path):
    path = tmp_path / "kb.py"
    body = "assert x.shape[1] == 1 << 12\n        return torch.sin(x)"
    path.write_text(SCALE.replace("BODY", body).replace("512", "1 << 14"))
    with pytest.raises(TaskError, match="no check case can be made"):
        load_task(path)


def test_given_shapes_are_checked_when_no_smaller_ones_are_taken(tmp_path):
    path = tmp_path / "kb.py"
    body = "assert x.shape[1] == 1 << 12\n        return torch.sin(x * self.scale)"
    path.write_text(SCALE.replace("BODY", body).replace("512", "16"))
    task = load_task(path)
    assert "no smaller shapes" in task.notes[0]
    assert all(c.params["scheme"] == "given" for c in task.check_cases)


@pytest.mark.parametrize("name", FILES)
def test_given_shapes_are_the_bench_case_and_checks_are_small(name):
    task = load_task(DATA / f"{name}.py")
    assert task.notes == ()
    assert task.info.description
    assert len(task.bench_cases) == 1
    assert 3 <= len(task.check_cases) <= 7
    for case in task.check_cases:
        inputs = task.make_inputs(case)
        assert sum(t.numel() for t in inputs) <= 1 << 17
        assert compare(task, case, task.reference(*inputs)).passed, case.name
        assert not compare(task, case, task.reference(*inputs) * 1.01).passed, case.name


def test_bench_specs_come_from_the_file_without_allocating():
    (matmul,) = load_task(DATA / "kb_matmul.py").bench_cases
    task = load_task(DATA / "kb_matmul.py", check=False)
    assert [s[1] for s in task.input_specs(matmul)] == [(512, 65536), (65536, 768)]
    assert task.work(matmul).flops == 2 * 512 * 768 * 65536


def test_parameters_follow_the_inputs_then_buffers(tmp_path):
    path = tmp_path / "kb.py"
    path.write_text(SCALE.replace("BODY", "return x * self.scale + self.offset"))
    task = load_task(path)
    case = task.check_cases[0]
    x, scale, offset = task.make_inputs(case)
    assert x.shape[1:] == scale.shape == offset.shape
    assert not scale.requires_grad
    assert compare(task, case, x * scale + offset).passed
    assert not compare(task, case, x * scale).passed
    again = task.make_inputs(case)
    assert all(torch.equal(a, b) for a, b in zip((x, scale, offset), again, strict=True))


def test_parameters_stay_real_after_specs_were_taken_first(tmp_path):
    path = tmp_path / "kb.py"
    path.write_text(SCALE.replace("BODY", "return x * self.scale + self.offset"))
    task = load_task(path, check=False)
    for case in task.info.cases:
        assert all(spec[0] == "tensor" for spec in task.input_specs(case))
    assert all(not t.is_meta for t in task.make_inputs(task.check_cases[0]))


def test_layer_norm_parameters_are_inputs():
    task = load_task(DATA / "kb_layernorm.py", check=False)
    case = task.check_cases[0]
    x, weight, bias = task.make_inputs(case)
    assert compare(task, case, F.layer_norm(x, weight.shape, weight, bias)).passed
    assert not compare(task, case, F.layer_norm(x, weight.shape)).passed


def test_relu_is_checked_on_negative_numbers_too():
    task = load_task(DATA / "kb_relu.py", check=False)
    lowest = [float(task.make_inputs(c)[0].min()) for c in task.check_cases]
    assert min(lowest) < -1
    layouts = [task.make_inputs(c)[0].is_contiguous() for c in task.check_cases]
    assert not all(layouts)
    assert [c.role for c in task.info.cases].count(CaseRole.BENCH) == 1


@pytest.mark.slow
def test_plain_kernels_are_judged_on_kernelbench_files(tmp_path):
    kernels = Path(__file__).parents[2] / "tasks" / "kernels"
    product = Kernel(source=(kernels / "matmul.py").read_text())
    rows = (kernels / "layer_norm.py").read_text()
    flat = Kernel(source=rows.replace("n_rows, n_cols = x.shape", "n_rows, n_cols = x.shape[0], weight.numel()"))
    with Zygote("interpret", cache_dir=tmp_path) as worker:
        for name, kernel in (("kb_matmul", product), ("kb_layernorm", flat)):
            task = load_task(DATA / f"{name}.py", check=False)
            verdict = check_correctness(worker, task, kernel, task.check_cases, target("sm_90"))
            assert verdict.status is None, f"{name}: {verdict.reason}"
            wrong = kernel.derive(kernel.source.replace("other=0.0", "other=1.0"), "padding counted")
            assert check_correctness(worker, task, wrong, task.check_cases, target("sm_90")).status is not None
