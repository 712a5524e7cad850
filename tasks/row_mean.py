"""Mean of each row. No expert: starts from a naive kernel."""

from klineage.task.inputs import bench_case, dtype_of, row_cases, tensor

NAME = "row_mean"
DESCRIPTION = "mean(x) of each row of x"


def reference(x):
    return x.mean(dim=-1)


def make_inputs(case, generator):
    return (tensor((case["m"], case["n"]), case, generator),)


def work(case):
    elements = case["m"] * case["n"]
    return elements, (elements + case["m"]) * dtype_of(case).itemsize


CASES = [
    *row_cases(
        "fp16",
        "fp16",
        "fp32",
        values=("normal", "shifted", "shifted", "constant", "shifted", "spike", "shifted", "positive"),
    ),
    bench_case(m=16384, n=8192),
]
NAIVE = "kernels/row_mean.py"
