"""Logarithm of the sum of exponentials of each row. No expert: starts from a naive kernel."""

import torch

from klineage.task.inputs import bench_case, dtype_of, row_cases, tensor

NAME = "log_sum_exp"
DESCRIPTION = "max + log(sum(exp(x - max))) of each row of x"


def reference(x):
    return torch.logsumexp(x, dim=-1)


def make_inputs(case, generator):
    return (tensor((case["m"], case["n"]), case, generator),)


def work(case):
    elements = case["m"] * case["n"]
    return 4 * elements, (elements + case["m"]) * dtype_of(case).itemsize


CASES = [*row_cases("fp32", "fp16", "fp32"), bench_case(m=8192, n=16384)]
NAIVE = "kernels/log_sum_exp.py"
