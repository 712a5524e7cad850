"""Input sets of bench cases, the look at timed outputs, and seals on inputs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from klineage.gate.measured import device
from klineage.gate.measured.bench_values import BenchValues, Seal, other_values
from klineage.gate.measured.replay import place
from klineage.task import Task, load_task

TASK = Path(__file__).parents[1] / "data" / "affine_task.py"
CASE = load_task(TASK, check=False).bench_cases[0].model_copy(update={"params": {"n": 4096, "dtype": "fp16"}})


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(device, "DEVICE", "cpu")


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task(TASK, check=False)


def test_wrong_outputs_of_a_timed_call_are_told(task: Task):
    values = BenchValues(8 << 30)
    (x,) = values.sets(task, CASE)[1]
    assert "outputs of another form" in values.wrong(task, CASE, [], 1)
    assert "outputs of another form" in values.wrong(task, CASE, [2 * x.float() + 1], 1)
    assert "error" in values.wrong(task, CASE, [2 * x], 1)
    stale = 2 * values.sets(task, CASE)[0][0] + 1  # right for another set
    assert "error" in values.wrong(task, CASE, [stale], 1)
    poisoned = (2 * x + 1).index_fill(0, torch.tensor([4095]), float("nan"))
    assert "error is inf" in values.wrong(task, CASE, [poisoned], 1)
    assert values.wrong(task, CASE, [2 * x + 1], 1) == ""


def test_sets_have_other_values_and_the_same_layout(task: Task):
    first, second, third = (v[0] for v in BenchValues(8 << 30).sets(task, CASE))
    assert not torch.equal(first, second) and not torch.equal(second, third)
    assert {(v.shape, v.stride(), v.storage_offset()) for v in (first, second, third)} == {((4096,), (1,), 0)}


def test_a_small_device_gets_fewer_sets(task: Task):
    assert len(BenchValues(8 * 2 * 8192).sets(task, CASE)) == 2
    assert len(BenchValues(8).sets(task, CASE)) == 1


def test_the_same_name_with_other_parameters_is_another_case(task: Task):
    values = BenchValues(8 << 30)
    values.sets(task, CASE)
    other = CASE.model_copy(update={"params": {"n": 64, "dtype": "fp32"}})
    assert values.sets(task, other)[0][0].shape == (64,)


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(80.0).as_strided((4, 16), (20, 1), 4),
        torch.arange(12.0).reshape(3, 4).t(),
        torch.ones(4).expand(3, 4),
        torch.tensor(2.0),
        torch.arange(6),
    ],
    ids=["padded", "transposed", "expanded", "scalar tensor", "integers"],
)
def test_other_values_keep_layout_and_memory(value: torch.Tensor):
    made = other_values(value, 1)
    assert (made.shape, made.stride(), made.storage_offset()) == (value.shape, value.stride(), value.storage_offset())
    assert made.untyped_storage().nbytes() == value.untyped_storage().nbytes()
    assert made.data_ptr() != value.data_ptr()
    if not made.is_floating_point():
        assert torch.equal(made, value)


@pytest.mark.parametrize("size", [1, 7, 4096, 300_001, 1_048_576 + 3])
@pytest.mark.parametrize("where", ["first", "last", "middle", "swap"])
def test_a_seal_breaks_when_a_byte_changes(size: int, where: str):
    buffers = place([torch.randint(1, 200, (size,), dtype=torch.uint8)])
    seal = Seal()
    before = seal.of(buffers)
    assert seal.of(buffers) == before
    content = buffers["input0"].content()
    if where == "swap":
        content[0], content[-1] = 201, 202
    else:
        content[{"first": 0, "last": -1, "middle": size // 2}[where]] += 1
    assert seal.of(buffers) != before


def test_a_seal_cannot_be_foreseen():
    buffers = place([torch.arange(100, dtype=torch.uint8)])
    assert Seal().of(buffers) != Seal().of(buffers)
