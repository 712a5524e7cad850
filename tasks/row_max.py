"""Largest element of each row. No expert: starts from a naive kernel."""

from klineage.task.inputs import bench_case, dtype_of, row_cases, tensor

NAME = "row_max"
DESCRIPTION = "max(x) of each row of x"


def reference(x):
    return x.amax(dim=-1)


def make_inputs(case, generator):
    return (tensor((case["m"], case["n"]), case, generator),)


def work(case):
    elements = case["m"] * case["n"]
    return elements, (elements + case["m"]) * dtype_of(case).itemsize


CASES = [*row_cases("fp16", "bf16", "fp32"), bench_case(m=4096, n=32768)]
NAIVE = "kernels/row_max.py"
