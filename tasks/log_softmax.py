"""Log-softmax over the rows of a matrix. No expert: starts from a naive kernel."""

import torch.nn.functional as F

from klineage.task.inputs import bench_case, dtype_of, row_cases, tensor

NAME = "log_softmax"
DESCRIPTION = "x - max - log(sum(exp(x - max))) over each row of x"


def reference(x):
    return F.log_softmax(x, dim=-1)


def make_inputs(case, generator):
    return (tensor((case["m"], case["n"]), case, generator),)


def work(case):
    elements = case["m"] * case["n"]
    return 5 * elements, 2 * elements * dtype_of(case).itemsize


CASES = [*row_cases("fp16", "fp16", "fp32"), bench_case(m=8192, n=8192)]
NAIVE = "kernels/log_softmax.py"
