"""Matrix product with bias and GELU in its epilogue: gelu(x @ w + bias)."""

import torch.nn.functional as F

from klineage.task.inputs import bench_case, dtype_of, matmul_cases, tensor

NAME = "matmul_epilogue"
DESCRIPTION = "gelu(x @ w + bias), tanh form of GELU, fp32 accumulation"


def reference(x, w, bias):
    return F.gelu(x @ w + bias, approximate="tanh")


def make_inputs(case, generator):
    return (
        tensor((case["m"], case["k"]), case, generator),
        tensor((case["k"], case["n"]), case, generator, axis=0),
        tensor((case["n"],), case, generator, values="normal"),
    )


def reduction(case):
    return case["k"]


def work(case):
    m, n, k = case["m"], case["n"], case["k"]
    return 2 * m * n * k, (m * k + k * n + m * n + n) * dtype_of(case).itemsize


CASES = [*matmul_cases("fp16"), bench_case(m=4096, n=4096, k=4096)]
EXPERT = "kernels/matmul_epilogue.py"
