"""Kullback-Leibler divergence of each row. No expert: starts from a naive kernel."""

import torch

from klineage.task.inputs import bench_case, dtype_of, row_cases, tensor

NAME = "kl_divergence"
DESCRIPTION = "sum(p * (log(p) - q)) of each row, q given as logarithms"


def reference(q, p):
    return (p * (torch.log(p) - q)).sum(dim=-1)


def make_inputs(case, generator):
    shape = (case["m"], case["n"])
    return tensor(shape, case, generator), tensor(shape, case, generator, values="positive")


def work(case):
    elements = case["m"] * case["n"]
    return 4 * elements, (2 * elements + case["m"]) * dtype_of(case).itemsize


CASES = [*row_cases("fp32", "fp32", "fp16"), bench_case(m=4096, n=16384)]
NAIVE = "kernels/kl_divergence.py"
