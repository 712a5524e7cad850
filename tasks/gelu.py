"""GELU (tanh form), element by element. No expert: starts from a naive kernel."""

import torch.nn.functional as F

from klineage.task.inputs import bench_case, dtype_of, row_cases, tensor

NAME = "gelu"
DESCRIPTION = "0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), element by element"


def reference(x):
    return F.gelu(x, approximate="tanh")


def make_inputs(case, generator):
    return (tensor((case["m"], case["n"]), case, generator),)


def work(case):
    elements = case["m"] * case["n"]
    return 9 * elements, 2 * elements * dtype_of(case).itemsize


CASES = [*row_cases("fp16", "fp16", "fp16", "bf16", "fp32"), bench_case(m=8192, n=8192)]
NAIVE = "kernels/gelu.py"
