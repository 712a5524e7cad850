"""Rotary position embedding, halves of a head rotated against each other. No expert: starts from a naive kernel."""

import torch

from klineage.task.inputs import bench_case, dtype_of, row_cases, tensor

NAME = "rotary"
DESCRIPTION = "y = (x1 cos - x2 sin, x2 cos + x1 sin), x1 and x2 the halves of each row"


def reference(x, cos, sin):
    half = x.shape[-1] // 2
    x1, x2 = x[:, :half], x[:, half:]
    return torch.cat((x1 * cos - x2 * sin, x2 * cos + x1 * sin), dim=-1)


def make_inputs(case, generator):
    m, n = case["m"], case["n"]
    return (
        tensor((m, 2 * n), case, generator),
        tensor((m, n), case, generator, values="normal"),
        tensor((m, n), case, generator, values="normal"),
    )


def work(case):
    elements = case["m"] * case["n"]
    return 6 * elements, 6 * elements * dtype_of(case).itemsize


CASES = [*row_cases("fp32", "fp32", "fp16"), bench_case(m=16384, n=2048)]
NAIVE = "kernels/rotary.py"
