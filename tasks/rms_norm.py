"""RMSNorm over the rows of a matrix, as Llama models use it: y = x / sqrt(mean(x^2) + eps) * weight."""

import torch.nn.functional as F

from klineage.task.inputs import bench_case, dtype_of, row_cases, tensor

NAME = "rms_norm"
DESCRIPTION = "y = x / sqrt(mean(x^2) + eps) * weight over each row of x"
EPS = 1e-6


def reference(x, weight):
    return F.rms_norm(x, (x.shape[-1],), weight, EPS)


def make_inputs(case, generator):
    return tensor((case["m"], case["n"]), case, generator), tensor((case["n"],), case, generator, values="normal")


def work(case):
    elements = case["m"] * case["n"]
    return 4 * elements, (2 * elements + case["n"]) * dtype_of(case).itemsize


CASES = [*row_cases("fp16", "fp16", "bf16", "fp16", "fp32"), bench_case(m=16384, n=8192)]
EXPERT = "liger_kernel.ops.rms_norm:rms_norm_forward"
EXPERT_RUN = """
def run(x, weight):
    return rms_norm_forward(x.contiguous(), weight, 1e-6, 0.0, "llama", True)[0]
"""
