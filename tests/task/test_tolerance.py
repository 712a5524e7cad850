"""The comparison: form before values, NaN never passes, error is relative to its row, bounds as documented."""

from __future__ import annotations

import math

import pytest
import torch

from klineage.model import Case, TaskInfo, Tolerance
from klineage.task import Definition, Task, allowed_error, compare, floor_error

EPS16 = torch.finfo(torch.float16).eps
EPS32 = torch.finfo(torch.float32).eps


def task_of(reference, make, tolerance=None, reduction=None):
    case = Case(name="c", params={}, seed=1)
    info = TaskInfo(name="t", description="", cases=(case,), tolerance=tolerance or Tolerance(), source_hash="0" * 16)
    return Task(info, Definition(make_inputs=lambda *_: make(), reference=reference, reduction=reduction))


def doubled(data, **options):
    """A task y = 2x on fixed data: the oracle is exact."""
    task = task_of(lambda x: x * 2, lambda: (data.clone(),), **options)
    return task, task.info.cases[0], data * 2


ROWS = torch.tensor([[1.0, 2.0, 4.0], [100.0, 200.0, 400.0]], dtype=torch.float16)

FORMS = {
    "nothing": lambda _: None,
    "number": lambda _: 3.0,
    "two-outputs": lambda y: (y, y),
    "no-outputs": lambda _: (),
    "list-inside": lambda y: ([y],),
    "broadcastable-shape": lambda y: y[:1],
    "extra-dimension": lambda y: y[None],
    "wider-dtype": lambda y: y.float(),
    "narrower-dtype": lambda y: y.to(torch.bfloat16),
    "transposed-strides": lambda y: y.t().contiguous().t(),
    "expanded-strides": lambda y: y[:1].expand(2, 3),
    "parameter": torch.nn.Parameter,
}


@pytest.mark.parametrize("bad", FORMS.values(), ids=FORMS.keys())
def test_form_is_judged_before_values(bad):
    task, case, right = doubled(ROWS)
    result = compare(task, case, bad(right))
    assert not result.passed
    assert result.reason
    assert result.error is None


def test_device_is_judged_when_asked():
    task, case, right = doubled(ROWS)
    assert compare(task, case, right, device="cpu").passed
    result = compare(task, case, right, device="cuda")
    assert not result.passed
    assert result.reason == "output is on cpu, expected cuda"


VALUES = {
    "nan-for-a-number": (ROWS, lambda y: y.index_fill(1, torch.tensor([0]), math.nan), "row 0: NaN"),
    "nan-everywhere": (ROWS, lambda y: torch.full_like(y, math.nan), "NaN at 6 places, expected at 0"),
    "inf-for-a-number": (ROWS, lambda y: y.index_fill(1, torch.tensor([2]), math.inf), "+Inf"),
    "number-for-nan": (torch.tensor([[math.nan, 1.0]]), torch.nan_to_num, "NaN at 0 places"),
    "number-for-inf": (torch.tensor([[math.inf, 1.0]]), lambda y: y.clamp(max=3e38), "+Inf at 0 places"),
    "minus-inf-for-inf": (torch.tensor([[math.inf, 1.0]]), lambda _: torch.tensor([[-math.inf, 2.0]]), "Inf"),
    "zeros": (ROWS, torch.zeros_like, "row 0: error 1 > allowed"),
    "small-row-wrong": (ROWS, lambda y: y + torch.tensor([[0.1], [0.0]], dtype=y.dtype), "row 0: error"),
    "one-element": (ROWS, lambda y: y + torch.tensor([[0, 0, 0], [0, 4, 0]], dtype=y.dtype), "row 1: error 0.005"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "bad", "says"), VALUES.values(), ids=VALUES.keys())
def test_wrong_values_fail_with_a_reason(data, bad, says):
    task, case, right = doubled(data)
    result = compare(task, case, bad(right))
    assert not result.passed
    assert says in result.reason


def test_right_values_pass_with_their_error():
    task, case, right = doubled(ROWS)
    result = compare(task, case, [right])
    assert result.passed
    assert result.error == 0.0
    assert result.allowed == floor_error(torch.float16, 3)


def test_matching_nan_and_infinities_pass():
    data = torch.tensor([[math.nan, 1.0, math.inf], [-math.inf, 2.0, 3.0]])
    task, case, right = doubled(data)
    assert compare(task, case, right).passed


def test_error_just_inside_and_outside_the_bound():
    task, case, right = doubled(ROWS.float())
    allowed = floor_error(torch.float32, 3)
    inside, outside = right.clone(), right.clone()
    inside[0, 0] += 0.5 * allowed * 8
    outside[0, 0] += 2 * allowed * 8
    assert compare(task, case, inside).passed
    assert not compare(task, case, outside).passed


def test_row_of_zeros_is_measured_against_the_tensor():
    task, case, right = doubled(torch.tensor([[0.0, 0.0], [1.0, 2.0]]))
    noise = right.clone()
    noise[0, 0] = 1e-9
    assert compare(task, case, noise).passed
    noise[0, 0] = 1e-2
    assert not compare(task, case, noise).passed


@pytest.mark.parametrize("shape", [(), (5,)], ids=["scalar", "vector"])
def test_fewer_than_two_dimensions_are_one_row(shape):
    data = torch.arange(1.0, 6.0) if shape else torch.tensor(5.0)
    task, case, right = doubled(data)
    assert compare(task, case, right).passed
    assert not compare(task, case, right + 0.01).passed


def test_strides_of_the_reference_are_allowed():
    task = task_of(lambda x: x * 2, lambda: (ROWS.t(),))
    case = task.info.cases[0]
    assert not task.native_outputs(case)[0].is_contiguous()
    assert compare(task, case, ROWS.t() * 2).passed
    assert compare(task, case, (ROWS.t() * 2).contiguous()).passed


def test_integers_must_be_equal():
    task = task_of(lambda x: x.argmax(-1), lambda: (ROWS,))
    case = task.info.cases[0]
    assert compare(task, case, torch.tensor([2, 2])).passed
    result = compare(task, case, torch.tensor([2, 1]))
    assert result.reason == "1 integer values differ"


def test_second_output_is_judged_too():
    task = task_of(lambda x: (x, x * 2), lambda: (ROWS,))
    case = task.info.cases[0]
    assert compare(task, case, (ROWS, ROWS * 2)).passed
    result = compare(task, case, (ROWS, ROWS))
    assert result.reason.startswith("output 1: row 0: error 0.5")


@pytest.mark.parametrize(
    ("own", "expected"),
    [(0.0, 1.0), (0.2, 1.0), (0.5, 2.0), (3.9, 15.6), (100.0, 16.0), (math.inf, 1.0)],
    ids=["exact", "below-floor", "four-times", "near-cap", "capped", "unknown"],
)
def test_allowed_follows_the_reference_between_floor_and_cap(own, expected):
    task, case, _ = doubled(ROWS)
    floor = 2 * EPS16 + 8 * EPS32 * math.sqrt(3)
    assert floor == pytest.approx(floor_error(torch.float16, 3))
    assert allowed_error(task, case, torch.float16, own * floor) == pytest.approx(expected * floor)


def test_reduction_length_of_the_task_counts():
    task, case, _ = doubled(ROWS, reduction=lambda _: 1 << 20)
    assert allowed_error(task, case, torch.float32, 0.0) == pytest.approx(2 * EPS32 + 8 * EPS32 * 1024)


def test_override_replaces_the_bound():
    task, case, right = doubled(ROWS, tolerance=Tolerance(override=0.3, reason="test"))
    assert compare(task, case, right * 1.25).passed
    assert not compare(task, case, right * 1.5).passed


def test_oracle_falls_back_to_fp32_and_says_so():
    def reference(x):
        if x.dtype is torch.float64:
            raise RuntimeError("not implemented for 'Double'")
        return x * 2

    task = task_of(reference, lambda: (ROWS,))
    case = task.info.cases[0]
    assert task.oracle(case)[0].dtype is torch.float32
    assert "not implemented for 'Double'" in task.oracle_note(case)
    assert compare(task, case, ROWS * 2).passed


def test_reference_without_half_precision_runs_in_fp32_and_is_rounded():
    def reference(x):
        if x.dtype is torch.float16:
            raise RuntimeError("not implemented for 'Half'")
        return x / 3

    task = task_of(reference, lambda: (ROWS,))
    case = task.info.cases[0]
    assert task.native_outputs(case)[0].dtype is torch.float16
    assert 0 < task.reference_error(case)[0] < EPS16
    assert compare(task, case, (ROWS.float() / 3).half()).passed


def test_oracle_is_computed_once():
    calls = []

    def reference(x):
        calls.append(x.dtype)
        return x * 2

    task = task_of(reference, lambda: (ROWS,))
    case = task.info.cases[0]
    for _ in range(3):
        compare(task, case, ROWS * 2)
    assert sorted(map(str, calls)) == ["torch.float16", "torch.float64"]


def test_half_precision_accumulation_is_caught():
    from klineage.task import load_task

    task = load_task("matmul_epilogue", check=False)
    case = next(c for c in task.check_cases if c.params["values"] == "stagnant")
    x, w, bias = task.make_inputs(case)

    def product(step, dtype):
        total = torch.zeros(x.shape[0], w.shape[1], dtype=dtype)
        for k in range(0, x.shape[1], step):
            total = total + (x[:, k : k + step].float() @ w[k : k + step].float()).to(dtype)
        return torch.nn.functional.gelu(total.float() + bias.float(), approximate="tanh").half()

    assert compare(task, case, product(32, torch.float32)).passed
    assert not compare(task, case, product(32, torch.float16)).passed
