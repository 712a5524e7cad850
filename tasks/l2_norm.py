"""Rows scaled to unit length. No expert: starts from a naive kernel."""

import torch.nn.functional as F

from klineage.task.inputs import bench_case, dtype_of, row_cases, tensor

NAME = "l2_norm"
DESCRIPTION = "x / max(sqrt(sum(x^2)), eps) over each row of x"
EPS = 1e-6


def reference(x):
    return F.normalize(x, dim=-1, eps=EPS)


def make_inputs(case, generator):
    return (tensor((case["m"], case["n"]), case, generator),)


def work(case):
    elements = case["m"] * case["n"]
    return 3 * elements, 2 * elements * dtype_of(case).itemsize


CASES = [*row_cases("fp16", "bf16", "fp32"), bench_case(m=16384, n=4096)]
NAIVE = "kernels/l2_norm.py"
