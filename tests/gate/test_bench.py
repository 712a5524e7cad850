"""Sizes of outputs at bench shapes, and the second look at a case."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from klineage.gate.bench import output_bytes
from klineage.gate.twins import SUFFIX, twins_of
from klineage.task import load_task

HOSTILE = Path(__file__).parents[1] / "hostile" / "tasks"


@pytest.mark.parametrize(
    ("name", "bytes_"),
    [
        ("gelu", 8192 * 8192 * 2),
        ("matmul", 2048 * 4096 * 2),
        ("add_rms_norm", 2 * 8192 * 4096 * 2),
        ("cross_entropy", 4096 * 2),
        (str(HOSTILE / "column_sum.py"), 4096 * 4),
        (str(HOSTILE / "row_mean.py"), 8192 * 2),
    ],
)
def test_output_sizes_follow_input_sizes(name: str, bytes_: int) -> None:
    task = load_task(name, check=False)
    assert output_bytes(task, task.bench_cases[0]) == bytes_


@pytest.mark.parametrize("name", ["gelu", "cross_entropy", "matmul"])
def test_a_twin_has_the_shape_and_the_first_values_of_its_case(name: str) -> None:
    task = load_task(name, check=False).salted("x")
    again, twins = twins_of(task, task.check_cases)
    assert len(twins) == 2
    for twin in twins:
        case = task.case(twin.name.removesuffix(SUFFIX))
        for old, new in zip(task.make_inputs(case), again.make_inputs(twin), strict=True):
            assert (old.shape, old.stride(), old.dtype) == (new.shape, new.stride(), new.dtype)
            if old.is_floating_point():
                assert torch.equal(old.reshape(-1)[:2], new.reshape(-1)[:2]) and not torch.equal(old, new)
            else:
                assert torch.equal(old, new)
        oracle, other = task.oracle(case), again.oracle(twin)
        assert not torch.equal(oracle[0], other[0])
