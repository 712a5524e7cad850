"""An autotuned kernel is checked with the configuration that tuning chose, on every case and on its twins."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import triton

from klineage.gate.correctness import check_correctness
from klineage.gate.workers import Zygote
from klineage.model import Kernel, target
from klineage.task import load_task

SOURCE = """
import torch, triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=["n"])
@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n).to(tl.float32)
    tl.store(y_ptr + i, (x * tl.sigmoid(x)).to(y_ptr.dtype.element_ty), mask=i < n)

def run(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y
"""
SECOND = str(triton.Config({"BLOCK": 256}))


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    with Zygote("interpret", cache_dir=tmp_path_factory.mktemp("cache")) as zygote:
        yield zygote


def test_the_chosen_configuration_is_not_taken_for_another_launch(worker: Zygote) -> None:
    task = load_task("silu", check=False)
    chosen = {c.name: [SECOND] for c in task.check_cases}
    verdict = check_correctness(worker, task, Kernel(source=SOURCE), task.check_cases, target("sm_90"), chosen)
    assert verdict.status is None, verdict.reason
    assert len(verdict.cases) == len(task.check_cases) + 2
    assert verdict.configurations == 2
