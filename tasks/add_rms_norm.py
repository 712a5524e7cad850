"""Residual add and RMSNorm in one: the sum and its norm are both returned. No expert: starts from a naive kernel."""

import torch.nn.functional as F

from klineage.task.inputs import bench_case, dtype_of, row_cases, tensor

NAME = "add_rms_norm"
DESCRIPTION = "s = x + residual; y = s / sqrt(mean(s^2) + eps) * weight; returns y and s"
EPS = 1e-6


def reference(x, residual, weight):
    total = x + residual
    return F.rms_norm(total, (total.shape[-1],), weight, EPS), total


def make_inputs(case, generator):
    shape = (case["m"], case["n"])
    return (
        tensor(shape, case, generator),
        tensor(shape, case, generator, values="normal"),
        tensor((case["n"],), case, generator, values="normal"),
    )


def work(case):
    elements = case["m"] * case["n"]
    return 5 * elements, (4 * elements + case["n"]) * dtype_of(case).itemsize


CASES = [*row_cases("fp16", "fp16", "fp16", "fp16", "fp32"), bench_case(m=8192, n=4096)]
NAIVE = "kernels/add_rms_norm.py"
