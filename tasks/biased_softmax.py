"""Softmax of scores with a bias added. No expert: starts from a naive kernel."""

import torch.nn.functional as F

from klineage.task.inputs import bench_case, dtype_of, row_cases, tensor

NAME = "biased_softmax"
DESCRIPTION = "softmax(x * scale + bias) over each row, as attention scores with a position bias"
SCALE = 0.125


def reference(x, bias):
    return F.softmax(x * SCALE + bias, dim=-1)


def make_inputs(case, generator):
    shape = (case["m"], case["n"])
    return tensor(shape, case, generator), tensor(shape, case, generator, values="normal")


def work(case):
    elements = case["m"] * case["n"]
    return 7 * elements, 3 * elements * dtype_of(case).itemsize


CASES = [*row_cases("fp32", "fp32", "fp16"), bench_case(m=16384, n=2048)]
NAIVE = "kernels/biased_softmax.py"
