"""Shipped tasks are sound, their kernels are right on every check case, and broken copies of them are not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from klineage.gate.correctness import check_correctness
from klineage.gate.workers import Zygote
from klineage.model import Kernel, target
from klineage.surface import Module
from klineage.task import Task, load_task, shipped_tasks

SM_90 = target("sm_90")
TASKS = sorted(shipped_tasks())
LAUNCHES = {"gated_delta_rule": 5, "top_k": 2}  # an expert of several kernels; every other is one
WITH_EXPERT = [name for name in TASKS if load_task(name, check=False).definition.expert]


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    with Zygote("interpret", cache_dir=tmp_path_factory.mktemp("cache")) as zygote:
        yield zygote


def broken(kernel: Kernel | None, old: str, new: str) -> Kernel:
    assert kernel is not None
    assert old in kernel.source
    return kernel.derive(kernel.source.replace(old, new), "broken on purpose")


BREAKS = {
    "tail-dropped": ("layer_norm", "range(0, n_cols, BLOCK_SIZE)", "range(0, n_cols - BLOCK_SIZE + 1, BLOCK_SIZE)"),
    "padding-in-variance": ("layer_norm", "centred = tl.where(mask, x - mean, 0.0)", "centred = x - mean"),
    "half-sized-grid": ("softmax", "(n_rows,)", "((n_rows + 1) // 2,)"),
    "contiguity-assumed": ("softmax", "x = x.contiguous()", "x = x"),
    "padding-in-maximum": ("log_softmax", 'other=float("-inf")', "other=0.0"),
    "k-tail-unmasked-short": ("matmul", "range(0, K, BLOCK_K)", "range(0, K - BLOCK_K + 1, BLOCK_K)"),
    "hard-coded-shape": ("gelu", "n_elements = x.numel()", "n_elements = 31"),
    "second-output-stale": ("add_rms_norm", "return y, total", "return y, x"),
    "wrong-dtype": ("layer_norm", "torch.empty_like(x)", "torch.empty_like(x, dtype=torch.float64)"),
    "narrow-accumulator": ("softmax", "row_sum += tl.sum(tl.exp(x - row_max), axis=0)",
                           "row_sum += tl.sum(tl.exp(x - row_max).to(tl.float16), axis=0).to(tl.float32)"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "old", "new"), BREAKS.values(), ids=BREAKS.keys())
def test_broken_kernel_is_rejected(worker, name, old, new):
    task = load_task(name, check=False)
    verdict = check_correctness(worker, task, broken(task.naive(), old, new), task.check_cases, SM_90)
    assert verdict.status is not None
    assert verdict.reason


def test_half_precision_accumulator_of_a_product_is_rejected(worker):
    task = load_task("matmul_epilogue", check=False)
    narrow = "acc = (acc.to(tl.float16) + tl.dot(x, w, out_dtype=tl.float16)).to(tl.float32)"
    kernel = broken(task.expert(), "acc = tl.dot(x, w, acc)", narrow)
    case = next(c for c in task.check_cases if c.params["values"] == "stagnant")
    verdict = check_correctness(worker, task, kernel, [case], SM_90)
    assert verdict.status is not None
    assert "error" in verdict.reason


@pytest.mark.parametrize("name", TASKS)
def test_task_is_sound_and_complete(name):
    task = load_task(name)
    assert task.name == name
    assert task.info.description
    assert task.definition.naive or task.definition.expert
    assert 5 <= len(task.check_cases) <= 8
    assert 1 <= len(task.bench_cases) <= 3
    for case in task.info.cases:
        assert task.work(case).flops > 0
        assert task.work(case).bytes > 0
    for case in task.check_cases:
        assert task.oracle_note(case) == ""


def kernels_of(task: Task) -> dict[str, Kernel]:
    found = {"naive": task.naive(), "expert": task.expert(), "expert for sm_90": task.expert(SM_90)}
    return {role: kernel for role, kernel in found.items() if kernel is not None}


@pytest.mark.parametrize("name", TASKS)
def test_kernels_are_right_on_every_check_case(worker, name):
    task = load_task(name, check=False).salted("test")
    kernels = kernels_of(task)
    assert kernels
    for role, kernel in kernels.items():
        verdict = check_correctness(worker, task, kernel, task.check_cases, SM_90)
        assert verdict.status is None, f"{role}: {verdict.reason}"
        assert {c.name for c in task.check_cases} <= {r.case for r in verdict.cases}


@pytest.mark.parametrize("name", WITH_EXPERT)
def test_expert_is_folded_to_the_launches_of_its_target(name):
    task = load_task(name, check=False)
    kernel = task.expert(SM_90)
    assert kernel is not None
    module = Module.parse(kernel.source)
    launches = LAUNCHES.get(name, 1)
    assert len(module.launches) == launches
    assert len(module.kernels) == launches
    assert "infer_device" not in kernel.source
    assert task.expert(SM_90) is kernel


def test_expert_follows_the_target():
    task = load_task("swiglu", check=False)
    hopper, blackwell = task.expert(SM_90), task.expert(target("sm_100"))
    assert hopper is not None
    assert blackwell is not None
    assert "_tiled" not in hopper.source
    assert "_tiled" in blackwell.source
