"""Squared ReLU, element by element. No expert: starts from a naive kernel."""

import torch.nn.functional as F

from klineage.task.inputs import bench_case, dtype_of, row_cases, tensor

NAME = "relu_squared"
DESCRIPTION = "max(x, 0)^2, element by element"


def reference(x):
    return F.relu(x) ** 2


def make_inputs(case, generator):
    return (tensor((case["m"], case["n"]), case, generator),)


def work(case):
    elements = case["m"] * case["n"]
    return 2 * elements, 2 * elements * dtype_of(case).itemsize


CASES = [
    *row_cases(
        "fp16", "fp32", values=("normal", "normal", "shifted", "normal", "normal", "normal", "shifted", "normal")
    ),
    bench_case(m=8192, n=16384),
]
NAIVE = "kernels/relu_squared.py"
