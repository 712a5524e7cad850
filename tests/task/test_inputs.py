"""Input helpers: each kind of values and layout is what it says, and specs tell the truth without allocating."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from klineage.errors import TaskError
from klineage.task import load_task, shipped_tasks
from klineage.task.inputs import DTYPES, LAYOUTS, VALUES, check_cases, matmul_cases, row_cases, tensor, with_layout
from klineage.task.specs import input_specs


def made(values="normal", layout="contiguous", dtype="fp32", shape=(7, 33), **more):
    case = {"values": values, "layout": layout, "dtype": dtype}
    return tensor(shape, case, torch.Generator().manual_seed(3), **more)


@pytest.mark.parametrize(
    "case", [{"values": "odd"}, {"layout": "odd"}, {"dtype": "odd"}], ids=["values", "layout", "dtype"]
)
def test_unknown_word_is_a_task_error(case):
    with pytest.raises(TaskError, match="choose one of"):
        tensor((2, 2), case, torch.Generator())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("values", VALUES)
def test_every_combination_has_its_shape_dtype_and_no_nan(values, layout, dtype):
    x = made(values, layout, dtype)
    assert x.shape == (7, 33)
    assert x.dtype is DTYPES[dtype]
    assert x.is_contiguous() == (layout == "contiguous")
    assert torch.isfinite(x.float()).all()


def test_kinds_of_values():
    assert abs(made("shifted").mean() - 5) < 0.3
    assert made("large").std() > 30
    assert (made("constant") == made("constant")[:, :1]).all()
    assert made("constant", shape=(9, 5), axis=0).std(dim=0).max() == 0
    assert 0.5 <= made("positive").min() <= made("positive").max() < 1.5
    assert (made("spike")[:, -1] == 8).all()
    assert (made("spike", axis=0)[-1] == 8).all()
    assert (made("stagnant")[:, 0] == 64).all()
    assert (made("stagnant", axis=0)[0] == 64).all()


def test_layouts_keep_values_and_move_memory():
    x = torch.arange(21.0).reshape(3, 7)
    padded, transposed = with_layout(x, "padded"), with_layout(x, "transposed")
    assert torch.equal(padded, x)
    assert torch.equal(transposed, x)
    assert padded.stride(0) > 7
    assert transposed.stride() == (1, 3)
    between = padded.as_strided((3, padded.stride(0)), (padded.stride(0), 1))[:, 7:]
    assert between.isnan().all()
    assert with_layout(torch.ones(5), "transposed").is_contiguous()


def test_standard_cases_cover_the_sizes_that_break_kernels():
    rows = row_cases("fp16", "fp32")
    assert {c["n"] for c in rows} >= {1, 31, 33, 127, 129, 257, 4097}
    assert {c["layout"] for c in rows} == set(LAYOUTS)
    assert {c["values"] for c in rows} >= {"normal", "shifted", "large", "constant", "spike"}
    assert {c["dtype"] for c in rows} == {"fp16", "fp32"}
    products = matmul_cases("bf16", bias=1)
    assert {d for c in products for d in (c["m"], c["n"], c["k"])} >= {1, 31, 33, 127, 129, 257}
    assert any(c["values"] == "stagnant" for c in products)
    assert all(c["bias"] == 1 for c in products)
    assert [bool(c.get("fresh")) for c in check_cases([{"n": 1}, {"n": 2}], fresh=1)] == [False, True]


MAKERS = {
    "torch-factories": lambda g: (torch.randn(3, 1 << 40, generator=g), torch.zeros(5, dtype=torch.bfloat16), 2, None),
    "derived": lambda g: (torch.rand(1 << 40, generator=g).to(torch.float16)[1:] * 2,),
    "in-place": lambda g: (torch.empty(1 << 40, 2).normal_(generator=g).t(),),
    "float-from-integers": lambda g: (torch.randn(4, generator=g), torch.arange(4) * torch.randn(4, generator=g)),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_specs_do_not_allocate(make):
    specs = input_specs(lambda: make(torch.Generator().manual_seed(0)))
    assert specs[0][0] == "tensor"


def test_specs_tell_shape_strides_dtype_values_and_integers():
    generator = torch.Generator()

    def make():
        target = torch.randint(0, 9, (6,), generator=generator.manual_seed(5))
        return torch.randn(1 << 40, 3).t(), target, target > 4, 0.5, None

    floats, target, mask, number, nothing = input_specs(make)
    assert floats == ("tensor", (3, 1 << 40), (1, 3), "float32")
    assert target[0] == "data"
    assert (target[1] == torch.randint(0, 9, (6,), generator=generator.manual_seed(5)).numpy()).all()
    assert mask[0] == "data"
    assert mask[1].dtype == bool
    assert (number, nothing) == (("value", 0.5), ("value", None))


def test_maker_that_reads_its_floats_is_run_for_real():
    def make():
        x = torch.randn(4, 8)
        return x[: 1 + int(x[0, 0].item() > -100)], x.argmax(-1)

    floats, index = input_specs(make)
    assert floats == ("tensor", (2, 8), (8, 1), "float32")
    assert index[0] == "data"


@pytest.mark.parametrize("name", shipped_tasks())
def test_specs_agree_with_the_inputs_of_every_check_case(name):
    task = load_task(name, check=False)
    for case in task.check_cases:
        values = task.make_inputs(case)
        generator = torch.Generator().manual_seed(1)
        meta = input_specs(lambda case=case, g=generator: task.definition.make_inputs(case.params, g))
        for exact, spec, value in zip(task.input_specs(case), meta, values, strict=True):
            if spec[0] == "tensor":
                dtype = str(value.dtype).removeprefix("torch.")
                assert exact == spec == ("tensor", tuple(value.shape), tuple(value.stride()), dtype), case.name
            elif spec[0] == "value":
                assert exact == spec == ("value", value)
            else:
                assert (exact[1] == value.numpy()).all()
                assert (spec[1].shape, spec[1].dtype) == (exact[1].shape, exact[1].dtype)
                if value.dtype == torch.int64:  # indices
                    assert 0 <= spec[1].min() <= spec[1].max() < case.params["n"]


def test_specs_of_a_bench_case_do_not_load_torchs_compiler():
    code = (
        "import sys; from klineage.task import load_task; task = load_task('cross_entropy', check=False);"
        "task.input_specs(task.bench_cases[0]); print('sympy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
