"""Matrix product with ReLU. No expert: starts from a naive kernel."""

import torch

from klineage.task.inputs import bench_case, dtype_of, matmul_cases, tensor

NAME = "matmul_relu"
DESCRIPTION = "max(a @ b, 0) with fp32 accumulation"


def reference(a, b):
    return torch.relu(a @ b)


def make_inputs(case, generator):
    return tensor((case["m"], case["k"]), case, generator), tensor((case["k"], case["n"]), case, generator, axis=0)


def reduction(case):
    return case["k"]


def work(case):
    m, n, k = case["m"], case["n"], case["k"]
    return 2 * m * n * k, (m * k + k * n + m * n) * dtype_of(case).itemsize


CASES = [*matmul_cases("fp16"), bench_case(m=4096, n=2048, k=2048)]
NAIVE = "kernels/matmul_relu.py"
