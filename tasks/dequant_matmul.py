"""Matrix product with a weight of 8-bit integers. No expert: starts from a naive kernel."""

import torch

from klineage.task.inputs import bench_case, dtype_of, matmul_cases, tensor

NAME = "dequant_matmul"
DESCRIPTION = "a @ (weight * scale): int8 weight with one scale per column, fp32 accumulation"


def reference(a, weight, scale):
    return a @ (weight.to(a.dtype) * scale)


def make_inputs(case, generator):
    weight = torch.randint(-127, 128, (case["k"], case["n"]), generator=generator, dtype=torch.int8)
    scale = tensor((case["n"],), case, generator, values="positive") / 64
    return tensor((case["m"], case["k"]), case, generator), weight, scale


def reduction(case):
    return case["k"]


def work(case):
    m, n, k = case["m"], case["n"], case["k"]
    return 2 * m * n * k, (m * k + m * n + n) * dtype_of(case).itemsize + k * n


CASES = [
    *matmul_cases("fp16", values=("normal", "normal", "normal", "spike", "normal", "normal", "normal")),
    bench_case(m=2048, n=4096, k=2048),
]
NAIVE = "kernels/dequant_matmul.py"
