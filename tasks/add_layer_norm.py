"""Residual add and LayerNorm in one. No expert: starts from a naive kernel."""

import torch.nn.functional as F

from klineage.task.inputs import bench_case, dtype_of, row_cases, tensor

NAME = "add_layer_norm"
DESCRIPTION = "s = x + residual; y = (s - mean) / sqrt(var + eps) * weight + bias"
EPS = 1e-5


def reference(x, residual, weight, bias):
    total = x + residual
    return F.layer_norm(total, (total.shape[-1],), weight, bias, EPS)


def make_inputs(case, generator):
    shape, n = (case["m"], case["n"]), case["n"]
    return (
        tensor(shape, case, generator),
        tensor(shape, case, generator, values="normal"),
        tensor((n,), case, generator, values="normal"),
        tensor((n,), case, generator, values="normal"),
    )


def work(case):
    elements = case["m"] * case["n"]
    return 8 * elements, (3 * elements + 2 * case["n"]) * dtype_of(case).itemsize


CASES = [
    *row_cases(
        "fp32", "fp32", "fp16", values=("normal", "large", "shifted", "normal", "normal", "spike", "shifted", "normal")
    ),
    bench_case(m=8192, n=5120),
]
NAIVE = "kernels/add_layer_norm.py"
