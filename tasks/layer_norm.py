"""LayerNorm over the rows of a matrix, with weight and bias. Starts from a naive kernel."""

import torch.nn.functional as F

from klineage.task.inputs import bench_case, dtype_of, row_cases, tensor

NAME = "layer_norm"
DESCRIPTION = "(x - mean) / sqrt(var + eps) * weight + bias over each row of x"
EPS = 1e-5


def reference(x, weight, bias):
    return F.layer_norm(x, (x.shape[-1],), weight, bias, EPS)


def make_inputs(case, generator):
    vector = (case["n"],)
    return (
        tensor((case["m"], case["n"]), case, generator),
        tensor(vector, case, generator, values="normal"),
        tensor(vector, case, generator, values="normal"),
    )


def work(case):
    elements = case["m"] * case["n"]
    return 8 * elements, (2 * elements + 2 * case["n"]) * dtype_of(case).itemsize


CASES = [*row_cases("fp16", "fp16", "fp16", "fp16", "fp32"), bench_case(m=8192, n=4096)]
NAIVE = "kernels/layer_norm.py"
EXPERT = "liger_kernel.ops.layer_norm:layer_norm_forward"
EXPERT_RUN = """
def run(x, weight, bias):
    return layer_norm_forward(x.contiguous(), weight, bias, 1e-5)[0]
"""
