"""Mean squared error of each row. No expert: starts from a naive kernel."""

from klineage.task.inputs import bench_case, dtype_of, row_cases, tensor

NAME = "mse_rows"
DESCRIPTION = "mean((x - target)^2) of each row"


def reference(x, target):
    return ((x - target) ** 2).mean(dim=-1)


def make_inputs(case, generator):
    shape = (case["m"], case["n"])
    return tensor(shape, case, generator), tensor(shape, case, generator, values="normal")


def work(case):
    elements = case["m"] * case["n"]
    return 3 * elements, (2 * elements + case["m"]) * dtype_of(case).itemsize


CASES = [
    *row_cases(
        "fp32", "fp16", "fp32", values=("normal", "shifted", "normal", "shifted", "normal", "spike", "shifted", "faint")
    ),
    bench_case(m=8192, n=8192),
]
NAIVE = "kernels/mse_rows.py"
