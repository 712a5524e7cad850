"""A residual added to a gated input. No expert: starts from a naive kernel."""

import torch

from klineage.task.inputs import bench_case, dtype_of, row_cases, tensor

NAME = "sigmoid_gate"
DESCRIPTION = "x * sigmoid(gate) + residual, element by element"


def reference(x, gate, residual):
    return x * torch.sigmoid(gate) + residual


def make_inputs(case, generator):
    shape = (case["m"], case["n"])
    return (
        tensor(shape, case, generator),
        tensor(shape, case, generator, values="normal"),
        tensor(shape, case, generator, values="normal"),
    )


def work(case):
    elements = case["m"] * case["n"]
    return 6 * elements, 4 * elements * dtype_of(case).itemsize


CASES = [*row_cases("fp32", "fp32", "fp16"), bench_case(m=8192, n=8192)]
NAIVE = "kernels/sigmoid_gate.py"
