"""SiLU, element by element. No expert: starts from a naive kernel."""

import torch.nn.functional as F

from klineage.task.inputs import bench_case, dtype_of, row_cases, tensor

NAME = "silu"
DESCRIPTION = "x / (1 + exp(-x)), element by element"


def reference(x):
    return F.silu(x)


def make_inputs(case, generator):
    return (tensor((case["m"], case["n"]), case, generator),)


def work(case):
    elements = case["m"] * case["n"]
    return 4 * elements, 2 * elements * dtype_of(case).itemsize


CASES = [*row_cases("fp16", "fp16", "bf16", "fp32"), bench_case(m=8192, n=14336)]
NAIVE = "kernels/silu.py"
